"""The rows of job lists."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from firesteel.dispatcher.gateway import JobOverview
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import JobID


class EndedJobs:
    """Rows of ended jobs, each made once: there may be tens of thousands, and a result never changes."""

    def __init__(self, results: JobResultStore) -> None:
        self._results = results
        self._rows: dict[JobID, tuple[JobResult, JobOverview]] = {}

    def rows(self, *, but: Collection[JobID]) -> list[JobOverview]:
        """The rows of all jobs that have a result, except those in `but`, which are shown otherwise."""
        results = self._results.all()
        if len(self._rows) > 2 * len(results):
            self._rows.clear()  # most of them were forgotten
        return [self._row(r) for r in results if r.job_id not in but]

    def _row(self, result: JobResult) -> JobOverview:
        made = self._rows.get(result.job_id)
        if made is None or made[0] is not result:  # an id that was forgotten may be used again
            made = self._rows[result.job_id] = (result, _ended(result))
        return made[1]


def live_row(runner: JobManagerRunner) -> JobOverview:
    state = runner.shown
    submission, graph = runner.submission, runner.submission.graph
    return JobOverview(
        submission.job_id,
        graph.name,
        state.status,
        submission.submitted_at,
        None,
        state.attempt,
        state.restarts,
        state.timestamps.get(state.status.value, submission.submitted_at),
        submission.owner,
        graph.mode.value,
        len(graph.vertices),
        graph.job_kind,
    )


def unread_row(job_id: JobID, runner: JobManagerRunner | None, now: float) -> JobOverview:
    """The row of a job that cannot be read and has no result yet."""
    if runner is not None:
        return replace(live_row(runner), status=JobStatus.RECONCILING)
    return JobOverview(job_id, job_id, JobStatus.RECONCILING, now, None, 0, 0, now)


def _ended(r: JobResult) -> JobOverview:
    return JobOverview(
        r.job_id,
        r.name,
        r.status,
        r.submitted_at,
        r.ended_at,
        r.attempts,
        r.restarts,
        r.ended_at,
        r.owner,
        r.mode,
        r.vertices,
        r.kind or r.mode,
    )
