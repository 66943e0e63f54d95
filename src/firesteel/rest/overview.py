"""`/jobs/overview`: a row for every job that the caller may see.

A job that has ended never changes (I5), so its row is rendered once and kept as bytes, and an answer joins these rows. So ten
thousand ended jobs cost no more than a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from typing_extensions import TypedDict

from firesteel.dispatcher.gateway import JobOverview
from firesteel.rest.answers import encode
from firesteel.rest.states import EXECUTION_STATES, execution_state, ms, ms_or
from firesteel.types import JobID

OverviewRow = TypedDict(
    "OverviewRow",
    {
        "jid": str,
        "name": str,
        "jobType": str,
        "schedulerType": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "state": str,
        "last-modification": int,
        "tasks": dict[str, int],
        "pending-operators": int,
    },
)


_NO_TASKS = {state.lower(): 0 for state in EXECUTION_STATES}
MOST_LINES = 20_000
"""The number of rows that are kept, some 400 bytes each. Further rows are rendered each time."""


def render_row(job: JobOverview, now: float) -> OverviewRow:
    ended = job.ended_at
    state = execution_state(job.status).lower()
    return {
        "jid": job.job_id,
        "name": job.name,
        "jobType": job_type(job.mode),
        "schedulerType": "Default",
        "start-time": ms(job.submitted_at),
        "end-time": ms_or(ended),
        "duration": ms((now if ended is None else ended) - job.submitted_at),
        "state": job.status.value,
        "last-modification": ms(job.changed_at),
        "tasks": {**_NO_TASKS, state: job.vertices, "total": job.vertices},
        "pending-operators": 0,
    }


def job_type(mode: str) -> str:
    return mode.upper()


class OverviewLines:
    """The rows of ended jobs, by job, for as long as the node serves."""

    def __init__(
        self, most: int = MOST_LINES, render: Callable[[JobOverview, float], Mapping[str, object]] = render_row
    ) -> None:
        self._most = most
        self._render = render
        self._ended: dict[JobID, tuple[float, bytes]] = {}
        """Rows with the end of the job, as a forgotten id may be used again."""

    def __len__(self) -> int:
        return len(self._ended)

    def answer(self, jobs: Sequence[JobOverview], sees: Callable[[str], bool], now: float) -> bytes:
        """The body for a caller; `jobs` are all jobs, including those that the caller may not see."""
        visible = {owner: sees(owner) for owner in {job.owner for job in jobs}}
        kept = self._ended
        before, known = len(kept), 0
        lines: list[bytes] = []
        for job in jobs:  # runs ten thousand times, so it makes no calls for cached rows
            line = kept.get(job.job_id)
            if line is not None:
                known += 1
                if line[0] == job.ended_at:
                    if visible[job.owner]:
                        lines.append(line[1])
                    continue
            if visible[job.owner]:
                lines.append(self._line(job, now))
        if known < before:
            self._forget_all_but(jobs)
        return b'{"jobs":[' + b",".join(lines) + b"]}"

    def _line(self, job: JobOverview, now: float) -> bytes:
        line = encode(self._render(job, now))
        if job.ended_at is not None and (job.job_id in self._ended or len(self._ended) < self._most):
            self._ended[job.job_id] = (job.ended_at, line)
        return line

    def _forget_all_but(self, jobs: Iterable[JobOverview]) -> None:
        """Drop the rows of jobs that are not known any more."""
        there = {job.job_id for job in jobs if job.ended_at is not None}
        self._ended = {job_id: line for job_id, line in self._ended.items() if job_id in there}
