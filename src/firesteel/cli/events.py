"""`firesteel events` prints what happened to jobs, one line per event."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.command_line import attached, complete_jobs, json_option
from firesteel.cli.connection import Connection
from firesteel.cli.progress import progress_words
from firesteel.cli.tables import STYLES, console, count, moment, plain
from firesteel.client.events import JobEvent
from firesteel.client.model import JobSummary
from firesteel.status import JobStatus
from firesteel.types import JobID

_LEFT_OUT = "left-out"
_FIRST = (JobStatus.INITIALIZING, JobStatus.RECONCILING, JobStatus.CREATED, JobStatus.RUNNING)


@click.command()
@click.argument("job", required=False, shell_complete=complete_jobs)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events until the job ends.")
@click.option("--story", is_flag=True, help="Print each state that JOB entered, why, and under which leader.")
@json_option
@attached
def events(cluster: Connection, job: str | None, follow: bool, story: bool, as_json: bool) -> int:
    """Print what happened to JOB so far, or the current state of every job; with -f also what happens from now on.

    With --json each line is an object.
    """
    if story and (job is None or follow):
        raise click.UsageError("--story needs a JOB and cannot be combined with --follow")
    found: Iterable[JobEvent]
    if story:
        found = story_events(cluster.job(str(job)).details())
    elif job is None:
        found = cluster.client.events() if follow else (state_of(j) for j in _by_change(cluster.client.jobs()))
        if follow and sys.stderr.isatty():
            click.echo("Listening to all jobs; press Ctrl-C to stop.", err=True)
    else:
        one = cluster.job(job)
        found = one.events() if follow else past_events(one.details())
    out = console()
    event = None
    for event in found:
        if as_json:
            click.echo(json.dumps(to_json(event)))
        else:
            _print(out, event)
    if event is None and not as_json:
        click.echo("No jobs.")
    return exit_codes.OK


def _by_change(jobs: Iterable[JobSummary]) -> list[JobSummary]:
    return sorted(jobs, key=lambda j: (j.changed_at, j.job_id))


def state_of(job: JobSummary) -> JobEvent:
    return JobEvent("state", job.job_id, job.changed_at, {"status": job.status.value, "name": job.name})


def past_events(details: Mapping[str, Any]) -> list[JobEvent]:
    """The past as an execution graph tells it: when each state was last entered, the failures, the progress."""
    job_id = JobID(str(details["job_id"]))
    status, ended = str(details["status"]), details.get("ended_at")
    times = {"INITIALIZING": details.get("submitted_at"), **(details.get("timestamps") or {})}
    if ended is not None:
        times[status] = ended
    found = [JobEvent("state", job_id, float(at), {"status": name}) for name, at in times.items() if at]
    for entry in details.get("exceptions") or ():
        failure = {**entry, "error_class": entry.get("root_cause") or ""}
        data = {"attempt": entry.get("attempt"), "failure": failure}
        found.append(JobEvent("failure", job_id, float(entry.get("at") or 0.0), data))
    progress = details.get("progress") or {}
    if progress.get("updated_at"):
        found.append(JobEvent("progress", job_id, float(progress["updated_at"]), {"progress": progress}))
    # Of two things of one moment the state comes last: a failure is why it changed.
    return sorted(found, key=lambda e: (e.at, e.kind == "state", _order(e)))


def story_events(details: Mapping[str, Any]) -> Iterator[JobEvent]:
    """The story of a job, as its leaders wrote it."""
    job_id, told = JobID(str(details["job_id"])), details.get("story") or {}
    if told.get("left_out"):
        yield JobEvent(_LEFT_OUT, job_id, float(details["submitted_at"]), {"count": told["left_out"]})
    for chapter in told.get("chapters") or ():
        yield JobEvent("state", job_id, float(chapter["at"]), {k: v for k, v in chapter.items() if k != "at"})


def _order(event: JobEvent) -> int:
    """A sort key for states that a job entered within the same moment: the order in which they follow each other."""
    status = event.status
    if status is None or status.terminal:
        return len(_FIRST) + 1
    return _FIRST.index(status) if status in _FIRST else len(_FIRST)


def to_json(event: JobEvent) -> dict[str, Any]:
    return {"kind": event.kind, **event.data, "job_id": event.job_id, "at": event.at}


def _print(out: Console, event: JobEvent) -> None:
    who = f"  {event.job_id[:8] if event.job_id else '-':8}  "
    out.print(Text.assemble((moment(event.at), "dim"), who, *_words(event)), soft_wrap=True)


def _words(event: JobEvent) -> Iterator[Text]:
    if event.kind == _LEFT_OUT:
        yield Text(f"the first {count(event.data['count'], 'state')} of the story are no longer kept", style="yellow")
        return
    if event.kind == "lost":
        lost = event.data.get("count")
        yield Text(f"{count(lost, 'event') if isinstance(lost, int) else 'some events'} did not arrive", style="yellow")
        return
    status = event.status
    yield Text(f"{status.value if status else event.kind:12}", style=STYLES[status] if status else "")
    details = []
    if name := event.data.get("name"):
        details.append(str(name))
    if attempt := event.data.get("attempt"):
        details.append(f"attempt {attempt}")
    if words := progress_words(event.data.get("progress") or {}):
        details.append(words)
    if event.failure is not None:
        details.append(str(event.failure))
    if epoch := event.data.get("epoch"):
        details.append(f"epoch {epoch}")
    if cause := event.data.get("cause"):
        details.append(str(cause))
    if details:
        yield plain(f"  {', '.join(details)}")
