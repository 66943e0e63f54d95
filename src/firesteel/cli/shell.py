"""`firesteel shell` opens a Python prompt with a Spark session on an engine of the cluster."""

from __future__ import annotations

import code
import contextlib
import sys
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from firesteel.cli import exit_codes
from firesteel.cli.connection import Connection, connected
from firesteel.client.sessions import open_session, session_graph
from firesteel.status import JobStatus


@click.command()
@click.option(
    "--name", default="shell", show_default=True, help="Name of the session; a running session of this name is joined."
)
@click.option(
    "--idle-timeout",
    default="1 h",
    show_default=True,
    help="The session ends when nothing has run in it for this long.",
)
@click.option("--new", "anew", is_flag=True, help="Make a new session even if one of this name is running.")
@click.option("--keep", is_flag=True, help="Leave the session running when the shell ends.")
@click.option(
    "-e", "--execute", "program", metavar="CODE", help="Run this Python code and exit, instead of opening a prompt."
)
@connected
def shell(cluster: Connection, name: str, idle_timeout: str, anew: bool, keep: bool, program: str | None) -> int:
    """Open a Python prompt with `spark`, a session on an engine of the cluster.

    The session is a job: `firesteel list` shows it, `firesteel cancel` ends it.
    """
    settings = {k: v for k, v in cluster.given.overrides.items() if k.startswith("spark.")}
    try:
        graph = session_graph(name, idle_timeout, settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise click.UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    opened = open_session(cluster.client, graph, anew=anew, waiting=_tell)
    from firesteel.notebook import connect_to

    spark = connect_to(opened.remote, relative_to=Path.cwd() if cluster.local else None)
    job = opened.job.job_id
    try:
        if program is not None:
            exec(compile(program, "<command>", "exec"), _namespace(spark))  # noqa: S102 - the user's own words
        else:
            again = "joined" if opened.found else "new"
            _interact(
                _namespace(spark), f"Spark {spark.version} on Firesteel; session '{name}' ({again}), job {job[:8]}."
            )
    finally:
        if not keep:
            with contextlib.suppress(Exception):
                spark.stop()
    if keep:
        again = f"`firesteel shell --name {name}` joins it"
        click.echo(f"Session '{name}' keeps running; {again}, `firesteel cancel {job[:8]}` ends it.")
    return exit_codes.OK


def _namespace(spark: Any) -> dict[str, Any]:
    return {"__name__": "__main__", "spark": spark, "sql": spark.sql}


def _interact(namespace: dict[str, Any], banner: str) -> None:
    try:
        from IPython.terminal.embed import InteractiveShellEmbed
    except ImportError:
        with contextlib.suppress(ImportError):
            import readline
            import rlcompleter

            readline.set_completer(rlcompleter.Completer(namespace).complete)
            readline.parse_and_bind("tab: complete")
        code.interact(banner, local=namespace, exitmsg="")
        return
    InteractiveShellEmbed(banner1=banner, user_ns=namespace)()


def _tell(status: JobStatus) -> None:
    if status is JobStatus.CREATED and sys.stderr.isatty():
        click.echo("Waiting for an engine …", err=True)
