"""What is measured of a job, a vertex and its subtask. Pure; `metrics` has the routes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from firesteel.dispatcher.gateway import JobOverview
from firesteel.flink_rest.busyness import busy_share_of
from firesteel.flink_rest.checkpoint_stats import CheckpointHistory
from firesteel.flink_rest.view import JobView, VertexView
from firesteel.rest.states import ms
from firesteel.status import JobStatus

WATERMARK = "currentInputWatermark"
_NO_WATERMARK = 0
"""Spark's way to say that no event has come yet."""


def overview_metrics(job: JobOverview, now: float) -> dict[str, float]:
    """Of a job that has not ended, as far as a list of jobs tells."""
    in_state = ms(now - job.changed_at)
    running = job.status is JobStatus.RUNNING
    return {
        "numRestarts": job.restarts,
        "uptime": in_state if running else 0,
        "downtime": in_state if job.status is JobStatus.RESTARTING else 0,
    }


def job_metrics(job: JobView, checkpoints: CheckpointHistory | None) -> dict[str, object]:
    stamps = job.timestamps
    since = job.now - (stamps[job.status.value] or job.now)
    running = job.status is JobStatus.RUNNING
    values: dict[str, object] = {
        "numRestarts": job.data["restarts"],
        "uptime": since if running else 0,
        "downtime": since if job.status is JobStatus.RESTARTING else 0,
        "runningTime": since if running else 0,
        "createdTime": since if job.status is JobStatus.CREATED else 0,
        "cancellingTime": since if job.status is JobStatus.CANCELLING else 0,
        "failingTime": since if job.status is JobStatus.FAILING else 0,
        "restartingTime": since if job.status is JobStatus.RESTARTING else 0,
        "numRescales": 0,
    }
    if checkpoints is not None:
        counts = checkpoints.counts()
        values |= {
            "totalNumberOfCheckpoints": counts["total"],
            "numberOfInProgressCheckpoints": counts["in_progress"],
            "numberOfCompletedCheckpoints": counts["completed"],
            "numberOfFailedCheckpoints": counts["failed"],
        }
        if (last := checkpoints.last_batch()) is not None:
            values |= {
                "lastCompletedCheckpointId": last.id,
                "lastCheckpointDuration": last.duration,
                "lastCheckpointCompletedTimestamp": last.acknowledged,
                "lastCheckpointExternalPath": last.path,
            }
    return values


def subtask_metrics(vertex: VertexView) -> dict[str, float]:
    """Names are Flink's; what is not known has none."""
    io = vertex.io
    counted = {
        "numRecordsIn": io.read_records,
        "numRecordsOut": io.write_records,
        "numBytesIn": io.read_bytes,
        "numBytesOut": io.write_bytes,
    }
    values: dict[str, float] = {name: value for name, value in counted.items() if value is not None}
    values |= _rates(vertex) | _times(vertex)
    told: Mapping[str, Any] = (vertex.job.progress.get("sinks") or {}).get(vertex.name) or {}
    if told.get("state_rows") is not None:
        values["stateRows"] = told["state_rows"]
    if (watermark := watermark_of(vertex)) is not None:
        values[WATERMARK] = watermark
    return values


def _rates(vertex: VertexView) -> dict[str, float]:
    """Rows per second while batches are worked on: as Spark tells it of a query, else on average."""
    io, values = vertex.io, dict[str, float]()
    if io.busy_ms:
        rows = {"numRecordsInPerSecond": io.read_records, "numRecordsOutPerSecond": io.write_records}
        values = {name: round(count * 1000 / io.busy_ms, 3) for name, count in rows.items() if count is not None}
    sinks: Mapping[str, Mapping[str, Any]] = vertex.job.progress.get("sinks") or {}
    if vertex.data["kind"] in ("source", "sink"):
        told = [
            sinks[n]["rows_per_second"] for n in vertex.sinks() if sinks.get(n, {}).get("rows_per_second") is not None
        ]
        if told:
            values["numRecordsInPerSecond"] = max(told)
    return values


def _times(vertex: VertexView) -> dict[str, float]:
    share = busy_share_of(vertex)
    if share is None:
        return {}
    busy = round(share * 1000, 3)
    return {
        "busyTimeMsPerSecond": busy,
        "idleTimeMsPerSecond": round(1000 - busy, 3),
        "backPressuredTimeMsPerSecond": 0.0,
        "accumulateBusyTimeMs": float(vertex.io.busy_ms or 0),
    }


def watermark_of(vertex: VertexView) -> int | None:
    """In ms: the lowest of the queries that the vertex is a part of. None where there is none."""
    sinks: Mapping[str, Mapping[str, Any]] = vertex.job.progress.get("sinks") or {}
    found = [_watermark(sinks[name].get("watermark")) for name in vertex.sinks() if name in sinks]
    return min((w for w in found if w is not None), default=None)


def _watermark(text: str | None) -> int | None:
    if not text:
        return None
    try:
        at = ms(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None
    return None if at == _NO_WATERMARK else at
