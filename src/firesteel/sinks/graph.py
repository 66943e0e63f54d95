"""The exactly-once commits that the sinks of a graph need."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel.jobgraph.model import JobGraph, Mode, Overwrite, Sink
from firesteel.jobgraph.modes import is_staged, overwritten, save_mode
from firesteel.sinks.staged import StagedFileSink
from firesteel.types import JobID


def staged(sink: Sink, job_id: JobID, *, given_up: int = 0) -> StagedFileSink | None:
    """The two-step commit of a batch sink, for formats that are files under a path and promise exactly-once.

    `given_up`: the last attempt of the job that was given up without being seen to end.
    """
    if not is_staged(sink) or sink.path is None:
        return None
    return StagedFileSink(
        sink.path,
        job_id,
        sink.name,
        mode=save_mode(sink, Mode.BATCH),
        dynamic_partitions=overwritten(sink) is Overwrite.DYNAMIC,
        given_up=given_up,
    )


def clear(graph: JobGraph, job_id: JobID, *, finished: bool, given_up: int = 0) -> Iterator[tuple[str, Exception]]:
    """Remove staging and commit records of a job whose result is recorded; yields what could not be removed.

    A commit that was decided is final, even for a job that failed or was cancelled afterwards: it is finished first. Where
    an attempt was given up, a note stays that keeps it from beginning now.
    """
    if graph.mode is not Mode.BATCH:
        return
    for sink in graph.sinks:
        files = staged(sink, job_id, given_up=given_up)
        if files is None:
            continue
        try:
            if not finished:
                files.abandon()
            files.cleanup()
        except Exception as error:  # told to the caller; the other sinks are cleared all the same
            yield sink.name, error
