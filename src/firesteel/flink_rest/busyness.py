"""How busy the queries of a stream are: the share of the last minute in which they were at a batch.

Structured Streaming takes a batch when the last one is done, so nothing presses back; what is too slow is busy all the time.
"""

from __future__ import annotations

from firesteel.attempts.committed import Committed
from firesteel.flink_rest.view import VertexView
from firesteel.status import JobStatus

WINDOW_SECONDS = 60.0


def busy_share(log: Committed, now: float) -> float | None:
    """From 0 to 1; None before the first batch.

    The window is shorter where what is remembered does not reach back so far.
    """
    if not log.recent:
        return None
    first = log.recent[0]
    begin = max(now - WINDOW_SECONDS, first.at - first.duration_ms / 1000)
    busy = sum(max(0.0, min(b.at, now) - max(b.at - b.duration_ms / 1000, begin)) for b in log.recent)
    return min(1.0, busy / (now - begin)) if now > begin else 0.0


def busy_share_of(vertex: VertexView) -> float | None:
    """Of the busiest query that a vertex is a part of; None where none is known, and of what does not run."""
    job = vertex.job
    if job.status is not JobStatus.RUNNING:
        return None
    logs = [Committed.from_json(job.checkpoints[name]) for name in vertex.sinks() if name in job.checkpoints]
    return max((s for s in (busy_share(log, job.at) for log in logs) if s is not None), default=None)
