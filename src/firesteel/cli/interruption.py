"""Ctrl-C on an attached stream: it stops after its current batch, or as its user chooses. The job is never lost."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import click

from firesteel.cli import exit_codes
from firesteel.cli.connection import Connection
from firesteel.cli.display import Display
from firesteel.cli.signals import Interrupted, uninterrupted
from firesteel.client.job import JobClient
from firesteel.client.model import JobResult
from firesteel.client.operations import STOP
from firesteel.errors import JobNotFoundError, JobStateError, SavepointError
from firesteel.types import new_job_id


class InterruptionChoice(Enum):
    """What can be done, by the letter that asks for it."""

    STOP = "s"
    SAVEPOINT = "p"
    CANCEL = "c"
    DETACH = "d"


QUESTION = """
  s  stop after the current batch, and keep the checkpoint (default)
  p  stop with a savepoint
  c  cancel at once, and keep the checkpoint
  d  detach: the job keeps running
What should happen to the job? [s] """


def end_stream(
    cluster: Connection,
    job: JobClient,
    display: Display,
    *,
    cancel: Callable[[], JobResult],
    asking: bool,
    supervised: bool,
) -> JobResult:
    """End a stream in the way that its user chooses. Another Ctrl-C leaves: at the question the job keeps running, and
    later it goes on ending.

    Args:
        cancel: cancels the job for good and waits for its end.
        asking: the user pressed Ctrl-C; otherwise the command was told to end, and there is no user to ask.
        supervised: the cluster cancels the job when this command is gone (-sae).
    """
    try:
        wish = wish_of(display.ask(QUESTION)) if asking else InterruptionChoice.STOP
    except Interrupted:
        wish = InterruptionChoice.DETACH
    match wish:
        case InterruptionChoice.DETACH:
            raise _detached(cluster, job, display, supervised=supervised)
        case InterruptionChoice.CANCEL:
            return cancel()
        case _:
            return _stop(cluster, job, display, cancel, savepoint=wish is InterruptionChoice.SAVEPOINT)


def wish_of(answer: str | None) -> InterruptionChoice:
    """The choice that the user typed; the stream is stopped for no answer or any other one."""
    letter = (answer or "").strip().lower()[:1]
    return next((w for w in InterruptionChoice if w.value == letter), InterruptionChoice.STOP)


def _stop(
    cluster: Connection, job: JobClient, display: Display, cancel: Callable[[], JobResult], *, savepoint: bool
) -> JobResult:
    short, trigger_id = job.job_id[:8], new_job_id()
    try:
        with uninterrupted():
            wish = {"savepoint": savepoint, "drain": False}
            cluster.client.trigger(STOP, wish, job_id=job.job_id, trigger_id=trigger_id)
    except (JobNotFoundError, JobStateError):
        return cancel()  # it does not run yet, or not just now: there is no batch to wait for
    display.note("stopping after the current batch; press Ctrl-C again to leave without waiting for it")
    try:
        cluster.client.outcome(STOP, trigger_id, job_id=job.job_id)
    except Interrupted:
        status = f"firesteel status{cluster.option} {short}"
        display.note(f"job {short} is still stopping; `{status}` shows when it has stopped, and how to resume it")
        raise click.exceptions.Exit(exit_codes.CANCELED) from None
    except SavepointError as error:
        if not job.status().terminal:
            display.note(f"the job could not be stopped: {error}")
            if savepoint:
                raise _detached(cluster, job, display, code=exit_codes.FAILED) from None
            return cancel()
        display.note(str(error))
    return job.wait()


def _detached(
    cluster: Connection, job: JobClient, display: Display, *, supervised: bool = False, code: int = exit_codes.CANCELED
) -> click.exceptions.Exit:
    short, option = job.job_id[:8], cluster.option
    if supervised:
        note = f"job {short} was submitted with -sae, so the cluster will cancel it soon; its checkpoint is kept"
    else:
        follow, stop = f"firesteel events -f{option} {short}", f"firesteel stop{option} {short}"
        note = f"job {short} keeps running: `{follow}` follows it, `{stop}` stops it"
    display.note(note)
    return click.exceptions.Exit(code)
