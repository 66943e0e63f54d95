"""Short rows of jobs, for lists of many thousands."""

from __future__ import annotations

from typing_extensions import TypedDict

from firesteel.dispatcher.gateway import JobOverview
from firesteel.rest.states import ms


class JobRow(TypedDict):
    id: str
    name: str
    mode: str
    kind: str
    """The mode, or `script` or `interactive`."""
    status: str
    owner: str
    submitted: int
    """Milliseconds since 1970, like the other times."""
    changed: int
    """When the job entered its current state."""
    ended: int | None
    duration: int
    """Milliseconds until the end, or until now."""
    attempt: int
    restarts: int


def render_job_row(job: JobOverview, now: float) -> JobRow:
    return {
        "id": job.job_id,
        "name": job.name,
        "mode": job.mode,
        "kind": job.kind,
        "status": job.status.value,
        "owner": job.owner,
        "submitted": ms(job.submitted_at),
        "changed": ms(job.changed_at),
        "ended": None if job.ended_at is None else ms(job.ended_at),
        "duration": ms((now if job.ended_at is None else job.ended_at) - job.submitted_at),
        "attempt": job.attempt,
        "restarts": job.restarts,
    }
