"""The `firesteel` command. Commands are modules of their own, imported when they are called: most need no PySpark."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from firesteel import __version__
from firesteel.cli import exit_codes
from firesteel.errors import EngineStartError, FiresteelError, InvalidInputError

COMMANDS = {
    "run": ("firesteel.cli.run", "run", "Run a pipeline (YAML, SQL, Python) or a PySpark script."),
    "info": ("firesteel.cli.info", "info", "Show a pipeline's job graph, schemas, Spark plan and every problem."),
    "list": ("firesteel.cli.jobs", "list_jobs", "List jobs of this data directory."),
    "cancel": ("firesteel.cli.jobs", "cancel", "Cancel a job."),
    "logs": ("firesteel.cli.jobs", "logs", "Print what a job's driver wrote."),
    "engine": ("firesteel.cli.engine", "engine", "Start, list, stop and train engines."),
    "cluster": ("firesteel.cli.cluster", "cluster", "Find and remove what was left behind."),
    "config": ("firesteel.cli.settings", "config", "Show the configuration in force and where each value is from."),
    "doctor": ("firesteel.cli.doctor", "doctor", "Tell what was found on this machine and what is missing."),
}


class _Lazy(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="firesteel")
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
        code = exit_codes.USAGE
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = exit_codes.CANCELED
    except InvalidInputError as error:
        count = len(error.problems)
        for problem in error.problems:
            click.echo(f"{click.style('error', fg='red')}: {problem}", err=True)
        click.echo(f"{count} problem{'s' if count != 1 else ''} found; nothing was run.", err=True)
        code = exit_codes.INVALID
    except EngineStartError as error:
        click.echo(f"{click.style('error', fg='red')}: {error}", err=True)
        code = exit_codes.ENGINE
    except FiresteelError as error:
        click.echo(f"{click.style('error', fg='red')}: {error}", err=True)
        code = exit_codes.FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
