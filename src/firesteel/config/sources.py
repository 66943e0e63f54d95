"""Reading settings from where users write them: a YAML file, the environment, -D.

Each source gives entries (key, text, origin) and the problems that can be seen without knowing the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from firesteel.errors import Problem


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where an entry was written."""

    source: str
    """`file`, `environment` or `-D`; within one source, nothing may be set twice."""
    base: Path
    """Where relative paths start: for a file in its own directory, so that it means the same from anywhere."""
    variable: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file:
            return f"file {self.file}:{self.line}"
        return f"environment {self.variable}" if self.variable else self.source


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    value: str | tuple[str, ...] | None
    """As written: text, a list of texts (files only), or nothing (files only)."""
    origin: SettingOrigin


def given_twice(key: str, first: SettingOrigin, second: SettingOrigin) -> Problem:
    return Problem(
        f"is given twice, first in {first}",
        "keep one of them",
        field=key,
        file=second.file,
        line=second.line,
    )


def shown_path(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def read_overrides(overrides: Mapping[str, str], *, cwd: Path) -> list[Entry]:
    return [Entry(key, text, SettingOrigin("-D", cwd)) for key, text in overrides.items()]


def read_environment(
    environ: Mapping[str, str], keys: Mapping[str, str], *, prefix: str, reserved: frozenset[str], cwd: Path
) -> tuple[list[Entry], list[str]]:
    """Entries of the variables in `keys` (variable to option key), and the other variables with the prefix."""
    entries: list[Entry] = []
    unknown: list[str] = []
    for variable in sorted(v for v in environ if v.startswith(prefix) and v not in reserved):
        if variable in keys:
            entries.append(
                Entry(keys[variable], environ[variable], SettingOrigin("environment", cwd, variable=variable))
            )
        else:
            unknown.append(variable)
    return entries, unknown


def read_file(path: Path, *, shown: str) -> tuple[list[Entry], list[Problem]]:
    """Entries of a YAML file with flat dotted keys, nested maps, or both.

    Scalars are taken as the text that stands in the file, not as what YAML makes of it: the value
    of `class-archive: off` is the word off.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        return [], [_unreadable(e, shown)]
    if root is None or _is_null(root):
        return [], []
    if not isinstance(root, yaml.MappingNode):
        return [], [Problem("is not a map", "write one `key: value` per line", file=shown, line=_line(root))]
    entries: list[Entry] = []
    problems: list[Problem] = []
    for found in _walk(root, "", SettingOrigin("file", path.parent, file=shown), ()):
        if isinstance(found, Entry):
            entries.append(found)
        else:
            problems.append(found)
    return entries, problems


def _unreadable(error: Exception, shown: str) -> Problem:
    match error:
        case FileNotFoundError():
            return Problem("no such file", "create it, or give another one", file=shown)
        case OSError():
            return Problem(f"cannot be read: {error.strerror}", "make it a readable file", file=shown)
        case UnicodeDecodeError():
            return Problem("is not UTF-8 text", "save it as UTF-8", file=shown)
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark(line=line)):
            return Problem(f"is not valid YAML: {error.problem}", "fix this line", file=shown, line=line + 1)
        case _:
            return Problem(f"is not valid YAML: {' '.join(str(error).split())}", "fix the file", file=shown)


def _walk(
    mapping: yaml.MappingNode, prefix: str, origin: SettingOrigin, outer: tuple[yaml.Node, ...]
) -> Iterator[Entry | Problem]:
    """The leaves of a map, keys joined with dots. `outer` are the maps around it: an alias may point back at one."""
    first: dict[str, SettingOrigin] = {}
    for key_node, node in mapping.value:
        here = SettingOrigin(origin.source, origin.base, file=origin.file, line=_line(key_node))
        if not isinstance(key_node, yaml.ScalarNode):
            yield Problem("a key is not text", "write `key: value`", file=here.file, line=here.line)
            continue
        key = f"{prefix}{key_node.value}"
        if key in first:
            yield given_twice(key, first[key], here)
            continue
        first[key] = here
        if isinstance(node, yaml.MappingNode) and node.value:
            if node in (*outer, mapping):
                yield Problem("contains itself", "remove the alias", field=key, file=here.file, line=here.line)
            else:
                yield from _walk(node, f"{key}.", origin, (*outer, mapping))
        elif isinstance(node, yaml.SequenceNode):
            if all(isinstance(item, yaml.ScalarNode) for item in node.value):
                yield Entry(key, tuple(item.value for item in node.value), here)
            else:
                yield Problem(
                    "is a list with more than text in it", "write texts", field=key, file=here.file, line=here.line
                )
        elif isinstance(node, yaml.ScalarNode) and not _is_null(node):
            yield Entry(key, node.value, here)
        else:
            yield Entry(key, None, here)


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1
