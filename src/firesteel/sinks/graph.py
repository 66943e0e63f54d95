"""The commits that a graph's sinks need."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel.jobgraph.formats import BatchCommit, lookup
from firesteel.jobgraph.model import Delivery, JobGraph, Mode, SaveMode, Sink
from firesteel.sinks.staged import StagedFileSink
from firesteel.types import JobID


def staged(sink: Sink, job_id: JobID) -> StagedFileSink | None:
    """The two-step commit of a batch sink, for formats that are files under a path and promise exactly-once."""
    if sink.delivery is Delivery.AT_LEAST_ONCE:
        return None
    if sink.path is None or sink.format is None or lookup(sink.format).commit is not BatchCommit.STAGED_FILES:
        return None
    return StagedFileSink(
        sink.path,
        job_id,
        sink.name,
        overwrite=sink.mode is SaveMode.OVERWRITE,
        dynamic_partitions=sink.options.get("partitionOverwriteMode", "").lower() == "dynamic",
    )


def clear(graph: JobGraph, job_id: JobID, *, finished: bool) -> Iterator[tuple[str, Exception]]:
    """Remove staging and commit records of a job whose result is recorded; yields what could not be removed.

    A commit that was decided is final, also for a job that failed or was cancelled afterwards: it is finished first.
    """
    if graph.mode is not Mode.BATCH:
        return
    for sink in graph.sinks:
        files = staged(sink, job_id)
        if files is None:
            continue
        try:
            if not finished:
                files.abandon()
            files.cleanup()
        except Exception as error:  # told to the caller; the other sinks are cleared all the same
            yield sink.name, error
