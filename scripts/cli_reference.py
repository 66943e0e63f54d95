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

`firesteel -v` prints the version. `firesteel -h` and `firesteel COMMAND -h` print help.

## Options of every command

`firesteel engine` and `firesteel cluster` are groups: their sub-commands take these, the groups themselves do not.
`firesteel completion` takes only the last one.

| option | meaning |
|---|---|
"""

AFTER_COMMON = """
`-D` sets an option of the [configuration](configuration.md) when the key has a dot in it (`-Dengine.memory=2g`,
`-Dspark.sql.shuffle.partitions=8`), and a variable of the pipeline when it has none (`-Dout=/tmp/out`). It may be given
several times, as `-Dkey=value` or `-D key=value`.

## Which cluster

Commands about jobs talk to a cluster: the one that `-m` names, or else the one of `client.addresses`, or else that of this
machine. The last one is woken up if it sleeps; it knows all jobs of its data directory. It ends by itself when it has not been
needed for `local-cluster.idle-timeout`, unless it was started with `firesteel cluster start`. `firesteel cluster status` and
`firesteel cluster stop` never wake one up.

| option | meaning |
|---|---|
"""

AFTER_ADDRESS = """
Set `client.token` to a token for a cluster that is not your own, preferably in the configuration file or in the variable
`FIRESTEEL_CLIENT_TOKEN`, where other users of the machine do not see it.

JOB is the id of a job, its first digits if only one id begins with them, or its name. If several jobs have this name, it is
the newest, and a line on standard error says which; a name with which the id of another job begins is refused. `engine stop`
stops every engine whose id begins with one of the IDS. With `--json`, or `--output json` where there are tables, a command
prints JSON on standard output, and nothing else there. In a pipe nothing is wrapped or cut; `--output wide` does the same
on a terminal.

Ctrl-C during `stop`, `savepoint`, `checkpoint` or `cancel` ends the waiting, not the operation. The command says how to ask
for it later; the cluster remembers its outcome for `dispatcher.operation-retention`.

## Exit codes

| code | meaning |
|---|---|
"""

AFTER_CODES = """
A pipe whose reader goes away, as in `firesteel list -a | head`, is not an error: the code is 0.

Keep in mind for scripts around `firesteel run`:

- A script that ends with a code of its own, by `sys.exit(n)`, ends the command with that code, 1 to 255.
  [Scripts](../concepts/scripts.md#its-exit-code) says how to tell it from the codes above.
- Once a job is accepted, anything else that goes wrong is a failed job and the code is 1, or 4 when no engine could be started.
  That includes a column that only Spark's analyser finds missing; `firesteel info PIPELINE` reports it with code 3.
- A cancel that comes after the commit has begun has no effect: the job ends as FINISHED and the code is 0.
- With `-d` the code says whether the job was accepted, not how it ends. `firesteel wait JOB` waits for that and ends with the
  code that `run` would have had; `firesteel status --exit-code JOB` does not wait, and gives 0 for a job that still runs.
- A job runs once under its id: `run --job-id ID` of one that has ended shows how it ended, and says that nothing was run.
"""

COMMON = ("definitions", "config_file", "help")
ADDRESS = "address"


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
    yield from (_option_row(p) for p in sample.params if p.name == ADDRESS)
    yield AFTER_ADDRESS
    for code, meaning in _exit_codes():
        yield f"| {code} | {meaning} |\n"
    yield AFTER_CODES
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield from _any(name, command, level="##")


def _any(name: str, command: click.Command, *, level: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield from _command(name, command, level=level)
        return
    context = click.Context(command, info_name=name)
    yield f"\n{level} firesteel {name}\n\n{_text(command)}\n"
    for below in command.list_commands(context):
        sub = command.get_command(context, below)
        assert sub is not None
        yield from _any(f"{name} {below}", sub, level=f"{level}#")


def _command(name: str, command: click.Command, *, level: str) -> Iterator[str]:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in (*COMMON, ADDRESS)]
    usage = " ".join(["firesteel", name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    yield f"\n{level} firesteel {name}\n\n    {usage}\n\n{_text(command)}\n"
    if options:
        yield "\n| option | meaning |\n|---|---|\n"
        for option in options:
            yield _option_row(option)


def _argument(argument: click.Argument) -> str:
    if argument.metavar:
        return argument.metavar
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
