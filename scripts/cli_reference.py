"""Print docs/reference/cli.md, from the commands themselves: `python scripts/cli_reference.py > docs/reference/cli.md`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator

import click

from firesteel.cli import exit_codes
from firesteel.cli.main import COMMANDS, cli

HEAD = """\
<!-- Generated from the commands. Do not edit; run: python scripts/cli_reference.py > docs/reference/cli.md -->

# The command line

    firesteel COMMAND [OPTIONS] [ARGUMENTS]

`firesteel --version` prints the version. `firesteel -h` and `firesteel COMMAND -h` print help.

## Options of every command

`firesteel engine` is a group: its sub-commands take these, the group itself does not.

| option | meaning |
|---|---|
"""

AFTER_COMMON = """
`-D` sets an option of the [configuration](configuration.md) when the key has a dot in it (`-Dengine.memory=2g`,
`-Dspark.sql.shuffle.partitions=8`), and a variable of the pipeline when it has none (`-Dout=/tmp/out`). It may be given
several times, as `-Dkey=value` or `-D key=value`.

JOB is the id of a job or its first digits, as long as only one job begins with them. `engine stop` stops every engine whose id
begins with one of the IDS.

## Exit codes

| code | meaning |
|---|---|
"""

AFTER_CODES = """
What to know in scripts around `firesteel run`:

- Once a job is accepted, whatever goes wrong is a failed job and the code is 1, or 4 when no engine could be started. That
  includes a column that only Spark's analyser finds missing; `firesteel info PIPELINE` reports it with code 3.
- A cancel that comes after the outputs were decided does not count: the job ends as FINISHED and the code is 0.
- With `-d` the code says whether the job was accepted, not how it ends. `firesteel list -a --json` tells that.
"""

COMMON = ("definitions", "config_file", "help")


def page() -> str:
    return "".join(_lines())


def _lines() -> Iterator[str]:
    context = click.Context(cli, info_name="firesteel")
    yield HEAD
    sample = cli.get_command(context, "run")
    assert sample is not None
    for parameter in sample.params:
        if parameter.name in COMMON:
            yield _option_row(parameter)
    yield "| `-h`, `--help` | Show help and exit. |\n"
    yield AFTER_COMMON
    for code, meaning in _exit_codes():
        yield f"| {code} | {meaning} |\n"
    yield AFTER_CODES
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield f"\n## firesteel {name}\n\n{_text(command)}\n"
            for below in command.list_commands(context):
                sub = command.get_command(context, below)
                assert sub is not None
                yield from _command(f"{name} {below}", sub, level="###")
        else:
            yield from _command(name, command, level="##")


def _command(name: str, command: click.Command, *, level: str) -> Iterator[str]:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON]
    usage = " ".join(["firesteel", name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    yield f"\n{level} firesteel {name}\n\n    {usage}\n\n{_text(command)}\n"
    if options:
        yield "\n| option | meaning |\n|---|---|\n"
        for option in options:
            yield _option_row(option)


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    shown = f"{name}..." if argument.nargs == -1 else name
    return shown if argument.required else f"[{shown}]"


def _option_row(option: click.Parameter) -> str:
    assert isinstance(option, click.Option)
    spellings = ", ".join(f"`{s}`" for s in option.opts)
    value = "" if option.is_flag else f" {_value(option)}"
    meaning = option.help or ("As JSON." if option.name == "as_json" else "")
    default = option.default
    if isinstance(default, int | float) and not option.is_flag and default:
        meaning += f" Default: {default:g}."
    return f"| {spellings}{value} | {meaning} |\n"


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{c}`" for c in option.type.choices)
    if isinstance(option.type, click.Path):
        return "FILE"
    return {"integer": "N", "integer range": "N", "float": "SECONDS", "text": "TEXT"}[option.type.name]


def _text(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").strip()


def _exit_codes() -> Iterator[tuple[int, str]]:
    """Each constant of the module with the string below it."""
    body = ast.parse(inspect.getsource(exit_codes)).body
    for here, below in zip(body, [*body[1:], None], strict=True):
        match here, below:
            case (
                ast.Assign(value=ast.Constant(value=int(code))),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield code, text
            case ast.Assign(value=ast.Constant(value=int(code))), _:
                yield code, "Done: the command did what was asked, the job is FINISHED."


if __name__ == "__main__":
    sys.stdout.write(page())
