"""`firesteel list`, `cancel`, `logs`: jobs of this data directory, also those of other terminals."""

from __future__ import annotations

import datetime as dt
import json
import signal
import time

import click
from rich.console import Console
from rich.table import Table

from firesteel.cli import exit_codes
from firesteel.cli.options import Given, configured
from firesteel.embedded.jobs import JobRecord, JobsDirectory
from firesteel.embedded.orphans import end_orphan
from firesteel.files import tail
from firesteel.status import JobStatus


@click.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs that have ended.")
@click.option("--json", "as_json", is_flag=True)
@configured
def list_jobs(given: Given, everything: bool, as_json: bool) -> int:
    """List jobs, newest last."""
    records = [r for r in JobsDirectory(given.configuration.data.dir).all() if everything or not r.status.terminal]
    if as_json:
        click.echo(json.dumps([r.to_json() for r in records], indent=1))
        return exit_codes.OK
    if not records:
        Console().print("No jobs." if everything else "No running jobs; `-a` shows those that have ended.")
        return exit_codes.OK
    table = Table(box=None)
    for column in ("job", "name", "status", "started", "took", "attempt"):
        table.add_column(column, no_wrap=column == "job")
    for r in records:
        began = dt.datetime.fromtimestamp(r.created_at, tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(
            r.job_id, r.name, r.status, began, f"{(r.ended_at or time.time()) - r.created_at:.0f} s", str(r.attempt)
        )
    Console().print(table)
    return exit_codes.OK


@click.command()
@click.argument("job")
@click.option("--timeout", default=30.0, help="Seconds to wait for the job's end.")
@configured
def cancel(given: Given, job: str, timeout: float) -> int:
    """Cancel JOB (an id or its first digits), and wait until it has ended."""
    directory = JobsDirectory(given.configuration.data.dir).find(job)
    record = directory.load()
    if record.status.terminal:
        raise click.ClickException(f"job {record.job_id} is {record.status}; only running jobs can be cancelled")
    if record.status is JobStatus.SUSPENDED:
        end_orphan(directory, given.configuration)
    elif record.supervisor is not None:
        record.supervisor.signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while not (record := directory.load()).status.terminal:
        if time.monotonic() > deadline:
            raise click.ClickException(f"job {record.job_id} is still {record.status} after {timeout:g} s")
        time.sleep(0.05)
    _say(record)
    return exit_codes.OK


def _say(record: JobRecord) -> None:
    click.echo(f"Job {record.job_id} is {record.status}.")


@click.command()
@click.argument("job")
@click.option("-n", "--lines", default=200, help="Last lines to print.")
@click.option("--attempt", type=int, help="Which attempt; the last one when not given.")
@click.option("--stderr", "which", flag_value="stderr", help="Only standard error.")
@click.option("--stdout", "which", flag_value="stdout", help="Only standard output.")
@configured
def logs(given: Given, job: str, lines: int, attempt: int | None, which: str | None) -> int:
    """Print what the driver of JOB wrote."""
    directory = JobsDirectory(given.configuration.data.dir).find(job)
    files = directory.attempt(attempt or max(directory.load().attempt, 1))
    for name in ("stdout", "stderr"):
        text = tail(getattr(files, name), lines, limit=1 << 22)
        if text and which in (None, name):
            click.echo(text, err=name == "stderr")
    return exit_codes.OK
