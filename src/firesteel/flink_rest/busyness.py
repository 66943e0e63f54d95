"""How busy a vertex is: as busy as the busiest query that it is a part of.

Structured Streaming starts a batch when the last one is done, so there is no back pressure; a slow query is always busy.
"""

from __future__ import annotations

from firesteel.attempts.committed import Committed
from firesteel.flink_rest.view import VertexView
from firesteel.jobmaster.measures import busy_share
from firesteel.status import JobStatus


def busy_share_of(vertex: VertexView) -> float | None:
    """From 0 to 1; None if no query is known or the job does not run."""
    job = vertex.job
    if job.status is not JobStatus.RUNNING:
        return None
    logs = [Committed.from_json(job.checkpoints[name]) for name in vertex.sinks() if name in job.checkpoints]
    return max((s for s in (busy_share(log, job.at) for log in logs) if s is not None), default=None)
