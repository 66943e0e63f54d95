"""`firesteel shell`: Python with a Spark session on an engine of the cluster."""

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
    "--name", default="shell", show_default=True, help="Name of the session; one that runs is taken up again."
)
@click.option(
    "--idle-timeout", default="1 h", show_default=True, help="The session ends when nothing ran in it so long."
)
@click.option("--new", "anew", is_flag=True, help="Make a new session, also when one of this name runs.")
@click.option("--keep", is_flag=True, help="Leave the session running at the end of the shell.")
@click.option(
    "-e", "--execute", "program", metavar="CODE", help="Run this Python code and leave, instead of asking for more."
)
@connected
def shell(cluster: Connection, name: str, idle_timeout: str, anew: bool, keep: bool, program: str | None) -> int:
    """A Python prompt with `spark`, a session on an engine of the cluster.

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
            again = "taken up again" if opened.found else "new"
            _interact(
                _namespace(spark), f"Spark {spark.version} on Firesteel; session '{name}' ({again}), job {job[:8]}."
            )
    finally:
        if not keep:
            with contextlib.suppress(Exception):
                spark.stop()
    if keep:
        again = f"`firesteel shell --name {name}` takes it up"
        click.echo(f"Session '{name}' stays; {again}, `firesteel cancel {job[:8]}` ends it.")
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
