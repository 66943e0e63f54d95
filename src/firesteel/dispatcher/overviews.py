"""Jobs as rows of a list."""

from __future__ import annotations

from firesteel.dispatcher.gateway import JobOverview
from firesteel.dispatcher.managed_job import ManagedJob
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import JobID


class EndedJobs:
    """Rows of ended jobs, each made once: there may be tens of thousands, and a result never changes."""

    def __init__(self, results: JobResultStore) -> None:
        self._results = results
        self._rows: dict[JobID, tuple[JobResult, JobOverview]] = {}

    def rows(self) -> list[JobOverview]:
        results = self._results.all()
        if len(self._rows) > 2 * len(results):
            self._rows.clear()  # most of them were forgotten
        return [self._row(r) for r in results]

    def _row(self, result: JobResult) -> JobOverview:
        made = self._rows.get(result.job_id)
        if made is None or made[0] is not result:  # an id that was forgotten may be used again
            made = self._rows[result.job_id] = (result, _ended(result))
        return made[1]


def live_row(job: ManagedJob) -> JobOverview:
    state = job.shown
    submission, graph = job.submission, job.submission.graph
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
    )


def unread_row(job_id: JobID, now: float) -> JobOverview:
    """Of a job that cannot be read, and has no result yet."""
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
    )
