"""The reference page of the configuration, rendered from the declared options.

python -m firesteel.config.reference > docs/reference/configuration.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable

from firesteel.config.option import Option, Section
from firesteel.config.sections import SECTIONS

COMMAND = "python -m firesteel.config.reference > docs/reference/configuration.md"

EXAMPLE = """\
engine:
  master: local[4]
  memory: 2g
  jvm-options: [-Xss4m, -Duser.timezone=UTC]
state.checkpoints.dir: s3a://warehouse/checkpoints
spark.sql.shuffle.partitions: 64
"""

_INTRODUCTION = f"""\
<!-- Generated from the declared options. Do not edit; run: {COMMAND} -->

# Configuration

Every setting has a key, such as `engine.memory`. It can be set in three places; the first one in which it is set wins:

1. **On the command line**: `-Dengine.memory=2g`.
2. **In the environment**: `FIRESTEEL_ENGINE_MEMORY=2g`. The variable is the key in upper case after `FIRESTEEL_`, with
   underscores for dots and dashes: `engine.start-timeout` is `FIRESTEEL_ENGINE_START_TIMEOUT`.
3. **In a file**, the one given with `--config`, or else the first of these that exists:
   `$FIRESTEEL_CONF_DIR/config.yaml`, `./firesteel.yaml`, `~/.config/firesteel/config.yaml`
   (`$XDG_CONFIG_HOME` in place of `~/.config` where it is set). Only one file is read.

A setting that is set nowhere has the default that the tables below show.

The file is YAML. Keys can be written flat or as nested maps, even in the same file:

```yaml
{EXAMPLE}```

Keys that start with `spark.` go to Spark unchanged; set them in the file or on the command line. Any other key
or `FIRESTEEL_` variable that is not in the tables is an error, as is a key that the file gives twice. All errors are
reported at once, each with its place.
"""

_VALUES = """\
## How values are written

| Type | Written as |
|---|---|
| backend | `none`, `sql`, `zookeeper`, `kubernetes`, or `package.module:name`. |
| boolean | `true` or `false`; `yes`, `on`, `no` and `off` work too. |
| duration | A number and a unit: `500 ms`, `10 s`, `2 min`, `1 h`, `1 d`. The space is optional, the unit is not. |
| integer | A whole number. |
| labels | `name=value`, separated by commas, or a YAML list of them: `zone=a,disk=ssd`. |
| list of strings | A YAML list in the file; elsewhere words, quoted as in a shell: `-Xss4m "-Dname=two words"`. |
| master | `local[*]`, `local[N]`, `spark://host:port` (several, separated by commas), or `sc://host:port`. |
| memory size | A whole number and `k`, `m`, `g` or `t`: `512m`, `2g`. |
| path | `~` is the home directory. A relative path starts where the file is that sets it, otherwise at the working directory. |
| path or URL | A path, as above, or a URL, which is used unchanged. |
| paths or URLs | Several of those: a YAML list in the file; elsewhere words, quoted as in a shell. |

Empty text unsets an option that has no default value, and means the empty list for a list.
"""


def render(sections: Iterable[type[Section]] = SECTIONS) -> str:
    """The whole page, as markdown."""
    return "\n".join([_INTRODUCTION, *(_section(s) for s in sections), _VALUES])


def _section(section: type[Section]) -> str:
    lines = [
        f"## {section.PREFIX}",
        "",
        inspect.getdoc(section) or "",
        "",
        "| Key | Type | Default | Description | Since |",
        "|---|---|---|---|---|",
        *(_row(o) for o in section.OPTIONS),
        "",
    ]
    return "\n".join(lines)


def _row(option: Option) -> str:
    description = option.description
    if option.secret:
        description += " Masked wherever it is shown."
    if option.deprecated:
        description += f" Formerly {', '.join(f'`{key}`' for key in option.deprecated)}."
    plain_value = option.default_text and option.computed is None and option.default is not None
    default = f"`{option.default_text}`" if plain_value else option.default_text or "empty"
    return f"| `{option.key}` | {option.kind.name} | {default} | {description} | {option.since} |"


if __name__ == "__main__":
    sys.stdout.write(render())
