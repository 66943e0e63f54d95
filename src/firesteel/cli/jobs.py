"""`firesteel list` and `firesteel cancel`."""

from __future__ import annotations

import dataclasses

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import CheckedCommand, attached, complete_jobs, json_option
from firesteel.cli.connection import Connection
from firesteel.cli.going_on import going_on
from firesteel.cli.operations import take_savepoint
from firesteel.cli.tables import console, echo_json, job_table
from firesteel.client.job import JobClient
from firesteel.client.model import JobResult
from firesteel.status import JobStatus

SCHEDULED = (JobStatus.CREATED, JobStatus.INITIALIZING)


@click.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Also list jobs that have ended.")
@click.option("-r", "--running", is_flag=True, help="List only running jobs.")
@click.option("-s", "--scheduled", is_flag=True, help="List only jobs that wait for an engine.")
@json_option
@attached
def list_jobs(cluster: Connection, everything: bool, running: bool, scheduled: bool, as_json: bool) -> int:
    """List running and waiting jobs, newest last."""
    running, scheduled = running or not scheduled, scheduled or not running
    jobs = sorted(
        (j for j in cluster.client.jobs() if everything or _wanted(j.status, running=running, scheduled=scheduled)),
        key=lambda j: (j.started_at, j.job_id),
    )
    if as_json:
        echo_json([dataclasses.asdict(j) for j in jobs])
    elif jobs:
        out = console()
        out.print(job_table(jobs, out.width))
    else:
        kind = "jobs" if everything else "jobs are running or waiting" if running and scheduled else "such jobs"
        click.echo(f"No {kind}." if everything else f"No {kind}; `-a` also lists those that have ended.")
    return exit_codes.OK


def _wanted(status: JobStatus, *, running: bool, scheduled: bool) -> bool:
    if status.terminal:
        return False
    return scheduled if status in SCHEDULED else running


def _settle(context: click.Context) -> None:
    """Read `cancel -s JOB` as Flink does: the savepoint goes to its default directory."""
    given = context.params
    if given["savepoint"] is not None and given["keep"] is not None:
        raise click.UsageError("-s cannot be combined with --keep-checkpoint or --discard-checkpoint", context)
    if given["job"] is None:
        if not given["savepoint"]:
            raise click.UsageError("Missing argument 'JOB'.", context)
        given["job"], given["savepoint"] = given["savepoint"], ""


@click.command(cls=CheckedCommand, check=_settle)
@click.argument("job", metavar="JOB", required=False, shell_complete=complete_jobs)
@click.option(
    "-s",
    "--with-savepoint",
    "--withSavepoint",
    "savepoint",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Take a savepoint of a streaming job first, below DIR or in the cluster's savepoint directory.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    metavar="SECONDS",
    help="How long to wait for the job to end.",
)
@click.option("--no-wait", is_flag=True, help="Return once the cluster has recorded the request.")
@click.option(
    "--keep-checkpoint/--discard-checkpoint",
    "keep",
    default=None,
    help="Keep or remove the checkpoint of a stream, which `firesteel resume` needs. By default the cluster keeps it.",
)
@json_option
@attached
def cancel(
    cluster: Connection,
    job: str,
    savepoint: str | None,
    timeout: float,
    no_wait: bool,
    keep: bool | None,
    as_json: bool,
) -> int:
    """Cancel JOB and wait until it has ended. A job whose commit has begun ends as FINISHED.

    The checkpoint of a stream is kept, and `firesteel resume JOB` continues from it.
    """
    found = cluster.job(job)
    location: str | None = None
    if savepoint is not None:
        outcome = take_savepoint(cluster, found.job_id, savepoint or None, cancel=True, wait=not no_wait)
        location = outcome.result.get("location") if outcome.result else None
    else:
        found.cancel(keep_checkpoint=keep)
    result = None if no_wait else _wait(found, timeout)
    status = found.status() if result is None else result.status
    if as_json:
        checkpoint = None if result is None else result.checkpoint or None
        content = {"job_id": found.job_id, "status": status.value, "savepoint": location, "checkpoint": checkpoint}
        echo_json(content)
        return exit_codes.OK
    stored = f" Savepoint stored in {location}." if location else ""
    click.echo(f"Job {found.job_id} {'is being cancelled' if result is None else f'is {status.value}'}.{stored}")
    for line in [] if result is None else going_on(result, option=cluster.option):
        click.echo(f"  {line}")
    return exit_codes.OK


def _wait(job: JobClient, timeout: float) -> JobResult:
    try:
        return job.wait(timeout)
    except KeyboardInterrupt:
        hint = f"`firesteel status {job.job_id[:8]}` shows when it has ended"
        click.echo(f"\nJob {job.job_id} is still being cancelled; {hint}.", err=True)
        raise click.exceptions.Exit(exit_codes.CANCELED) from None
