"""An attached run submits a job, shows what happens to it, and never leaves the user in doubt about it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

import click

from firesteel.cli import exit_codes
from firesteel.cli.connection import Connection
from firesteel.cli.display import Display, make_display
from firesteel.cli.going_on import going_on
from firesteel.cli.interruption import end_stream
from firesteel.cli.signals import Interrupted, interruptible, uninterrupted
from firesteel.client.errors import ClusterError
from firesteel.client.job import JobClient
from firesteel.client.model import JobResult
from firesteel.errors import FiresteelError, JobNotFoundError, JobStateError
from firesteel.failure import FailureKind
from firesteel.jobgraph.model import JobGraph, Mode
from firesteel.status import JobStatus

HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""With -sae: how long the cluster waits for a sign of life before it cancels the job."""


def watch(
    cluster: Connection,
    graph: JobGraph,
    job_id: str,
    *,
    submit: Callable[[float | None], object],
    show: int,
    as_json: bool,
    shutdown_on_exit: bool = False,
    repeated: bool = False,
    go_on: str = "",
) -> int:
    """Follow a job to its end, which a signal may bring about, and return the exit code.

    Args:
        submit: submits the job; may be called again. Its argument is the seconds of silence after which the cluster
            cancels the job.
        repeated: the id was chosen by the user, so the job may exist already.
        go_on: the command that continues a stream that has ended, where it is not `firesteel resume`.
    """
    job = cluster.client.job(job_id)
    before = _ended_before(job) if repeated else None
    streaming = graph.mode is Mode.STREAMING and graph.script is None
    interrupted = False
    with (
        interruptible(),
        make_display(graph, job_id, as_json=as_json, option=cluster.option, starting=cluster.starting) as display,
    ):

        def accept() -> None:
            submit(SILENCE_SECONDS if shutdown_on_exit else None)

        with _alive(job) if shutdown_on_exit else contextlib.nullcontext():
            try:
                accept()
                display.accepted()
                if before is not None:
                    display.note(
                        f"job {job_id} has already ended ({before.value}); nothing was run, and this is its earlier "
                        "result; to run it again, omit --job-id or give another one"
                    )
                result = _shown(job, display)
            except Interrupted as interrupt:
                interrupted = True
                if streaming:
                    result = end_stream(
                        cluster,
                        job,
                        display,
                        cancel=lambda: _cancelled(job, accept, display),
                        asking=interrupt.by_hand,
                        supervised=shutdown_on_exit,
                    )
                else:
                    result = _cancelled(job, accept, display)
    if show and result.status is JobStatus.FINISHED:
        display.show_outputs(graph, show)
    rows = rows_of(job) if result.status is JobStatus.FINISHED else {}  # which the driver reports after the end
    display.summary(result, rows, going_on(result, go_on, option=cluster.option))
    return exit_codes.CANCELED if interrupted and result.stopped else code_of(result)


def _shown(job: JobClient, display: Display) -> JobResult:
    """Show what happens to the job up to its end, which the final event describes."""
    result = None
    for event in job.events(logs=True):
        display.event(event)
        result = event.result
    return result or job.wait()


def _ended_before(job: JobClient) -> JobStatus | None:
    """How a job of this id has ended, if it has."""
    try:
        status = job.status()
    except JobNotFoundError:
        return None
    return status if status.terminal else None


def _cancelled(job: JobClient, submit: Callable[[], None], display: Display) -> JobResult:
    """Cancel the job for good, before anything else. Another Ctrl-C then leaves without waiting for its end."""
    try:
        with uninterrupted():
            _cancel_surely(job, submit)
        display.note("cancelling; press Ctrl-C again to leave without waiting for the end")
        return job.wait()
    except Interrupted:
        display.note(
            f"job {job.job_id} is being cancelled; `firesteel status {job.job_id[:8]}` shows when it has ended"
        )
        raise click.exceptions.Exit(exit_codes.CANCELED) from None


def _cancel_surely(job: JobClient, submit: Callable[[], None]) -> None:
    """A submission that was cut off may still arrive. It is repeated, which changes nothing if it has, and then cancelled."""
    try:
        job.cancel()
    except JobNotFoundError:
        submit()
        with contextlib.suppress(JobStateError):
            job.cancel()
    except JobStateError:
        pass  # it ended a moment ago, by itself


@contextlib.contextmanager
def _alive(job: JobClient) -> Iterator[None]:
    """Send the cluster heartbeats from a thread."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(FiresteelError):
                job.heartbeat()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rows_of(job: JobClient) -> Mapping[str, int]:
    """Rows per vertex, as far as they are known a moment after the end."""
    with contextlib.suppress(ClusterError, JobNotFoundError):
        rows = job.details().get("rows")
        return rows if isinstance(rows, dict) else {}
    return {}


def code_of(result: JobResult) -> int:
    """The exit code that tells how the job ended; a script's own code is passed on."""
    if result.status is JobStatus.FAILED and result.failure is not None:
        if result.failure.kind is FailureKind.ENGINE_START:
            return exit_codes.ENGINE
        return result.failure.exit_code or exit_codes.FAILED
    return {
        JobStatus.FINISHED: exit_codes.OK,
        JobStatus.CANCELED: exit_codes.CANCELED,
    }.get(result.status, exit_codes.FAILED)
