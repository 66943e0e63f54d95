"""The `firesteel` command. Each subcommand is a module that is imported when it is called: most need no PySpark."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

import click

from firesteel import __version__
from firesteel.cli import exit_codes
from firesteel.cli.lazy import LazyGroup
from firesteel.errors import (
    EngineStartError,
    FiresteelError,
    ForbiddenError,
    InvalidInputError,
    InvalidRequestError,
    UnauthenticatedError,
)

COMMANDS = {
    "run": ("firesteel.cli.run", "run", "Run a pipeline (YAML, SQL, Python) or a PySpark script."),
    "run-application": (
        "firesteel.cli.run_application",
        "run_application",
        "Run a job in a cluster of its own, which ends with it.",
    ),
    "shell": ("firesteel.cli.shell", "shell", "Open a Python prompt with a Spark session on the cluster."),
    "info": ("firesteel.cli.info", "info", "Show a pipeline's job graph, schemas, Spark plan and every problem."),
    "list": ("firesteel.cli.jobs", "list_jobs", "List running and waiting jobs, or with -a all of them."),
    "status": ("firesteel.cli.status", "status", "Show the state of a job."),
    "wait": ("firesteel.cli.wait", "wait", "Wait until jobs have ended, and exit with their code."),
    "logs": ("firesteel.cli.logs", "logs", "Print or follow what a job writes."),
    "events": ("firesteel.cli.events", "events", "Print or follow what happens to jobs."),
    "history": ("firesteel.cli.status", "history", "List jobs that have ended."),
    "cancel": ("firesteel.cli.jobs", "cancel", "Cancel a job."),
    "resume": ("firesteel.cli.resume", "resume", "Resume a stream from where it ended."),
    "stop": ("firesteel.cli.operations", "stop", "Stop a streaming job with a savepoint."),
    "savepoint": ("firesteel.cli.operations", "savepoint", "Take a savepoint of a streaming job, or delete one."),
    "checkpoint": (
        "firesteel.cli.operations",
        "checkpoint",
        "Wait until everything that a stream has read is committed.",
    ),
    "cluster": ("firesteel.cli.cluster", "cluster", "Start, stop and inspect the cluster of this machine."),
    "dashboard": ("firesteel.cli.dashboard", "dashboard", "Print a link that opens the dashboard in a browser."),
    "history-server": (
        "firesteel.cli.history_server",
        "history_server",
        "Serve archived jobs of one or many clusters.",
    ),
    "notify": ("firesteel.cli.notify", "notify", "Try the targets of notifications."),
    "node": ("firesteel.cli.node", "node", "Start one more node of a cluster."),
    "engine": ("firesteel.cli.engine", "engine", "Start, list, stop and train engines."),
    "worker": ("firesteel.cli.worker", "worker", "Manage workers: the hosts that jobs run on."),
    "config": ("firesteel.cli.settings", "config", "Show the effective configuration and where each value comes from."),
    "doctor": ("firesteel.cli.doctor", "doctor", "Report what was found on this machine and what is missing."),
    "completion": ("firesteel.cli.completion", "completion", "Print the completion script for a shell."),
}

CODES: Mapping[type[FiresteelError], int] = {
    InvalidInputError: exit_codes.INVALID,
    EngineStartError: exit_codes.ENGINE,
    UnauthenticatedError: exit_codes.DENIED,
    ForbiddenError: exit_codes.DENIED,
    FiresteelError: exit_codes.FAILED,
}
"""Lookup follows the class's ancestors."""


class _Closed(Exception):  # noqa: N818 - not an error: the reader of our output has seen enough
    """Click would end the process with 1 for a BrokenPipeError."""


class NoActionError(click.UsageError):
    """What is answered, in Flink's words, when the first word is missing or names no action."""

    exit_code = exit_codes.FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True)


class CliFrontend(LazyGroup):
    """The action first; then its options, the command lines that say which cluster is meant, and the configuration.

    `custom_command_lines` finds the target, `deployment` the factory for it.
    """

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args and not context.resilient_parsing:
            click.echo(context.get_help())
            raise NoActionError("Please specify an action.", context)
        return super().parse_args(context, args)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._table:
            valid = ", ".join(f'"{name}"' for name in self._table)
            near = difflib.get_close_matches(args[0], self._table, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            lines = [
                f'"{args[0]}" is not a valid action.{hint}',
                "",
                f"Valid actions are {valid}.",
                "",
                "Specify the version option (-v or --version) to print the version.",
                "Specify the help option (-h or --help) to get help on the command.",
            ]
            raise NoActionError("\n".join(lines), context)
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise _Closed from None


@click.group(cls=CliFrontend, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-v", "--version", prog_name="firesteel", message="Version: %(version)s")
def cli() -> None:
    """Firesteel: a job control plane for Apache Spark."""


def main(argv: Sequence[str] | None = None) -> None:
    """Map every error to a readable line and a documented exit code."""
    try:
        code = cli.main(args=list(argv) if argv is not None else None, prog_name="firesteel", standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = exit_codes.FAILED if isinstance(error, NoActionError) else exit_codes.USAGE
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = exit_codes.CANCELED
    except (_Closed, BrokenPipeError):
        # Python must not complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = exit_codes.OK
    except FiresteelError as error:
        _complain(error)
        code = code_of(error)
    except OSError as error:
        _say(str(error) or type(error).__name__)  # a TimeoutError has no text, and "error: " alone is no help
        code = exit_codes.FAILED
    sys.exit(code if isinstance(code, int) else exit_codes.OK)


def code_of(error: FiresteelError) -> int:
    from firesteel.client.errors import ClusterUnreachableError  # here, as not every command needs a client

    if isinstance(error, ClusterUnreachableError):
        return exit_codes.UNREACHABLE
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def _complain(error: FiresteelError) -> None:
    if isinstance(error, UnauthenticatedError):
        wrong = "the token is unknown to the cluster, has expired or was revoked"
        fix = "set FIRESTEEL_CLIENT_TOKEN, or client.token in the configuration file"
        _say(f"{wrong if error.token_given else 'no token was given'}; {fix}\n  the cluster says: {error}")
        return
    if not isinstance(error, InvalidInputError):
        _say(str(error))
        return
    for problem in error.problems:
        _say(str(problem))
    count = len(error.problems)
    what = "done" if isinstance(error, InvalidRequestError) else "run"
    click.echo(f"{count} problem{'s' if count != 1 else ''} found; nothing was {what}.", err=True)


def _say(text: str) -> None:
    click.echo(f"{click.style('error', fg='red')}: {text}", err=True)
