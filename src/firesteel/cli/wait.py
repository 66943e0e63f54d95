"""`firesteel wait` waits until jobs have ended, and exits with their code."""

from __future__ import annotations

import time

import click

from firesteel.cli import exit_codes
from firesteel.cli.attached import code_of
from firesteel.cli.command_line import attached, complete_jobs, json_option
from firesteel.cli.connection import Connection
from firesteel.cli.tables import echo_json, printable
from firesteel.client.errors import JobTimeoutError
from firesteel.client.model import JobResult


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to wait for all of them; forever by default. Jobs continue afterwards.",
)
@json_option
@attached
def wait(cluster: Connection, jobs: tuple[str, ...], timeout: float | None, as_json: bool) -> int:
    """Wait until every JOB has ended. The exit code is that of the first one given that has not FINISHED."""
    deadline = None if timeout is None else time.monotonic() + timeout
    results: list[JobResult] = []
    try:
        for job in dict.fromkeys(cluster.job(text).job_id for text in jobs):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            results.append(cluster.client.job(job).wait(left))
            if not as_json:
                _tell(results[-1])
    except JobTimeoutError as error:
        click.echo(f"{click.style('error', fg='red')}: {error}", err=True)
        return exit_codes.TIMEOUT
    finally:
        if as_json:
            echo_json([_json(r) for r in results])
    return next((code for code in map(code_of, results) if code), exit_codes.OK)


def _tell(result: JobResult) -> None:
    name = f" '{printable(result.name)}'" if result.name else ""
    click.echo(f"Job {result.job_id}{name} is {result.status.value}.")
    if result.failure is not None and code_of(result) != exit_codes.OK:
        click.echo(f"  {printable(str(result.failure))}")


def _json(result: JobResult) -> dict[str, object]:
    return {
        "job_id": result.job_id,
        "name": result.name,
        "status": result.status.value,
        "exit_code": code_of(result),
        "ended_at": result.ended_at,
        "failure": result.failure.to_json() if result.failure else None,
    }
