"""Commands that run a script: what follows the script belongs to it, as with `python` and `spark-submit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

_SCRIPT_OPTIONS = ("-py", "--python")


class ScriptCommand(click.Command):
    """A command whose options come before a script. They may also follow a pipeline, which takes no arguments."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        own, rest = self._split(args)
        if (script := _named_script(own)) is not None:
            args = [*own, "--", str(script), *rest]
        elif rest and is_script(Path(rest[0])):
            args = [*own, "--", *rest]
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            message = f"{error.message} Put the arguments of a script after it."
            raise click.NoSuchOption(error.option_name, message, error.possibilities, error.ctx) from None

    def _split(self, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split a command line into the leading options with their values, and the rest.

        After `-py FILE`, an option that this command does not have is the first argument of the script.
        """
        options = {name: p for p in self.params if isinstance(p, click.Option) for name in p.opts}
        at = 0
        while at < len(args):
            word = args[at]
            if word == "--":
                return list(args[:at]), list(args[at + 1 :])
            if not word.startswith("-") or word == "-":
                break
            name, equals, _ = word.partition("=")
            option = options.get(name)
            if option is not None:
                at += 1 if equals or option.is_flag else 2
            elif word[:2] in options or _named_script(args[:at]) is None:
                at += 1  # `-Dkey=value`, `-p3`; or --help, or wrong, which is for click to say
            else:
                break
        return list(args[:at]), list(args[at:])


def _named_script(args: Sequence[str]) -> Path | None:
    """The file of `-py FILE` or `--python=FILE`, where it is a script."""
    for at, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name in _SCRIPT_OPTIONS:
            file = Path(value if equals else "".join(args[at + 1 : at + 2]))
            return file if is_script(file) else None
    return None


def is_script(file: Path) -> bool:
    """Whether it is a plain program, and not a file that builds a Job. A file that cannot be read is reported later."""
    import ast

    from firesteel.jobgraph.python_source import builds_job

    if file.suffix.lower() != ".py":
        return False
    try:
        return not builds_job(ast.parse(file.read_bytes()))
    except OSError:
        return False
    except (SyntaxError, ValueError, RecursionError):
        return True
