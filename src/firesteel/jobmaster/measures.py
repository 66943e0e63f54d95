"""What is measured of a job, a vertex and the query of a stream. Pure: from what a leader knows, and what drivers tell.

All reports of job numbers read them here: the metrics registry, and Flink's REST contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from firesteel.attempts.committed import Committed
from firesteel.jobmaster.rows import Io
from firesteel.metrics.declarations import (
    BATCH_SECONDS,
    BATCHES,
    BUSY,
    BYTES_IN,
    BYTES_OUT,
    INPUT_RATE,
    JOB_DOWNTIME,
    JOB_RESTARTS,
    JOB_UPTIME,
    LAST_BATCH_AGE,
    RECORDS_IN,
    RECORDS_OUT,
    STATE_ROWS,
    WATERMARK_LAG,
)
from firesteel.metrics.metric import Metric
from firesteel.status import JobStatus

OF_JOB = (JOB_RESTARTS, JOB_UPTIME, JOB_DOWNTIME)
OF_VERTEX = (RECORDS_IN, RECORDS_OUT, BYTES_IN, BYTES_OUT)
OF_STREAM = (INPUT_RATE, BATCH_SECONDS, BATCHES, BUSY, STATE_ROWS, WATERMARK_LAG, LAST_BATCH_AGE)

BUSY_WINDOW_SECONDS = 60.0


def job_measures(status: JobStatus, restarts: int, in_state: float) -> dict[Metric, float]:
    """Of a job that has been in its state for so many seconds."""
    return {
        JOB_RESTARTS: restarts,
        JOB_UPTIME: in_state if status is JobStatus.RUNNING else 0,
        JOB_DOWNTIME: in_state if status is JobStatus.RESTARTING else 0,
    }


def vertex_measures(io: Io) -> dict[Metric, float]:
    """What is not known is left out."""
    known = {
        RECORDS_IN: io.read_records,
        RECORDS_OUT: io.write_records,
        BYTES_IN: io.read_bytes,
        BYTES_OUT: io.write_bytes,
    }
    return {metric: value for metric, value in known.items() if value is not None}


def stream_measures(told: Mapping[str, Any], log: Committed, now: float) -> dict[Metric, float]:
    """Of the query of a sink: what its driver told last, and the batches that it has committed. What is not known is left
    out."""
    found: dict[Metric, float] = {}
    if log.last >= 0:
        found[BATCHES] = log.count
    if (rate := told.get("rows_per_second")) is not None:
        found[INPUT_RATE] = rate
    if (duration := told.get("duration_ms")) is not None:
        found[BATCH_SECONDS] = duration / 1000
    if (rows := told.get("state_rows")) is not None:
        found[STATE_ROWS] = rows
    if (watermark := watermark_seconds(told.get("watermark"))) is not None:
        found[WATERMARK_LAG] = max(0.0, now - watermark)
    if (share := busy_share(log, now)) is not None:
        found[BUSY] = share
    if log.recent:
        found[LAST_BATCH_AGE] = max(0.0, now - log.recent[-1].at)
    return found


def busy_share(log: Committed, now: float) -> float | None:
    """The share of the last minute in which the query was at a batch, from 0 to 1; None before the first batch.

    The window is shorter where what is remembered does not reach back so far.
    """
    if not log.recent:
        return None
    first = log.recent[0]
    begin = max(now - BUSY_WINDOW_SECONDS, first.at - first.duration_ms / 1000)
    busy = sum(max(0.0, min(b.at, now) - max(b.at - b.duration_ms / 1000, begin)) for b in log.recent)
    return min(1.0, busy / (now - begin)) if now > begin else 0.0


def watermark_seconds(text: Any) -> float | None:
    """Since 1970; None where there is none. Spark tells 1970 itself until the first event has come."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at else None
