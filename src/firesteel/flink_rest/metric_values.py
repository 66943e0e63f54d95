"""Metrics of a job, a vertex and its subtask, under the contract's names. Pure; `metrics` has the routes.

The numbers come from `jobmaster.measures`, like those of the metrics registry; this module groups them by vertex and adds
those that only the contract has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.attempts.committed import Committed
from firesteel.dispatcher.gateway import JobOverview
from firesteel.flink_rest.busyness import busy_share_of
from firesteel.flink_rest.checkpoint_stats import CheckpointHistory
from firesteel.flink_rest.view import JobView, VertexView
from firesteel.jobmaster.measures import job_measures, stream_measures, vertex_measures, watermark_seconds
from firesteel.metrics.declarations import BUSY, INPUT_RATE, STATE_ROWS
from firesteel.metrics.metric import OF_JOBS, Group, Metric
from firesteel.metrics.registry import Labels, MetricRegistry
from firesteel.rest.states import ms
from firesteel.status import JobStatus

WATERMARK = "currentInputWatermark"


def named(measures: Mapping[Metric, float]) -> dict[str, float]:
    """Values by the contract's names and in its units, without those that it has no name for."""
    return {metric.flink: metric.flink_value(value) for metric, value in measures.items() if metric.flink}


def node_values(registry: MetricRegistry) -> dict[str, object]:
    """The node's own metrics and those of the cluster, by group: `dispatcher.submissions.accepted`."""
    values: dict[str, object] = {}
    for reading in registry.readings():
        metric = reading.metric
        if metric.group in OF_JOBS or metric.group is Group.ENGINE:
            continue  # these have their own resources
        for labels, value in reading.values.items():
            values[_path(metric, labels)] = value
        for labels, rate in reading.rates.items():
            values[_path(metric, labels, "rate")] = round(rate, 3)
        for labels, histogram in reading.histograms.items():
            values[_path(metric, labels, "count")] = histogram.count
            for share in (0.5, 0.95, 0.99):
                values[_path(metric, labels, f"p{share * 100:.0f}")] = round(histogram.quantile(share), 6)
    return values


def _path(metric: Metric, labels: Labels, *more: str) -> str:
    return ".".join((metric.group.value, metric.name, *labels, *more))


def overview_metrics(job: JobOverview, now: float) -> dict[str, float]:
    """Metrics of a job that has not ended, as far as a list of jobs has them."""
    return named(job_measures(job.status, job.restarts, now - job.changed_at))


def job_metrics(job: JobView, checkpoints: CheckpointHistory | None) -> dict[str, object]:
    stamps = job.timestamps
    since = job.now - (stamps[job.status.value] or job.now)
    running = job.status is JobStatus.RUNNING
    values: dict[str, object] = {
        **named(job_measures(job.status, job.data["restarts"], since / 1000)),
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
    """Metrics under Flink's names; unknown ones are left out."""
    values = named(vertex_measures(vertex.io)) | _rates(vertex) | _times(vertex)
    if STATE_ROWS in (own := _query(vertex.job, vertex.name)):
        values[STATE_ROWS.flink] = own[STATE_ROWS]
    if (watermark := watermark_of(vertex)) is not None:
        values[WATERMARK] = watermark
    return values


def _query(job: JobView, sink: str) -> dict[Metric, float]:
    """Metrics of a sink's query; none for any other vertex."""
    told = _sinks(job).get(sink) or {}
    return stream_measures(
        told, Committed.from_json(job.checkpoints[sink]) if sink in job.checkpoints else Committed(), job.at
    )


def _sinks(job: JobView) -> Mapping[str, Mapping[str, Any]]:
    sinks: Mapping[str, Mapping[str, Any]] = job.progress.get("sinks") or {}
    return sinks


def _rates(vertex: VertexView) -> dict[str, float]:
    """Rows per second while batches are processed: as Spark reports for a query, otherwise on average."""
    io, values = vertex.io, dict[str, float]()
    if io.busy_ms:
        rows = {INPUT_RATE.flink: io.read_records, "numRecordsOutPerSecond": io.write_records}
        values = {name: round(count * 1000 / io.busy_ms, 3) for name, count in rows.items() if count is not None}
    if vertex.data["kind"] in ("source", "sink"):
        queries = [_query(vertex.job, name) for name in vertex.sinks()]
        if told := [query[INPUT_RATE] for query in queries if INPUT_RATE in query]:
            values[INPUT_RATE.flink] = max(told)
    return values


def _times(vertex: VertexView) -> dict[str, float]:
    share = busy_share_of(vertex)
    if share is None:
        return {}
    busy = round(share * 1000, 3)
    return {
        BUSY.flink: busy,
        "idleTimeMsPerSecond": round(1000 - busy, 3),
        "backPressuredTimeMsPerSecond": 0.0,
        "accumulateBusyTimeMs": float(vertex.io.busy_ms or 0),
    }


def watermark_of(vertex: VertexView) -> int | None:
    """The lowest watermark, in ms, of the queries that the vertex is a part of; None if there is none."""
    found = (watermark_seconds((_sinks(vertex.job).get(name) or {}).get("watermark")) for name in vertex.sinks())
    return min((ms(w) for w in found if w is not None), default=None)
