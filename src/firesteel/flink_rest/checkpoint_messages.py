"""Checkpoints in the form of the contract. Pure; `checkpoints` has the routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from firesteel.durations import seconds
from firesteel.flink_rest.checkpoint_stats import Checkpoint, CheckpointHistory, Restored
from firesteel.flink_rest.view import SUBTASK, JobView, VertexView
from firesteel.jobgraph.model import AVAILABLE_NOW
from firesteel.rest.answers import Json
from firesteel.rest.states import NAN, NEVER, ms
from firesteel.spark_connect.settings import CHANGELOG, DEFAULT_CHANGELOG, DEFAULT_STATE_STORE, STATE_STORE
from firesteel.status import CheckpointRetention

_ROCKSDB = "RocksDB"
_NO_TIMEOUT = -1
"""A batch has no timeout, and dashboards show a negative duration as none."""


def render_checkpoints(job: JobView, history: CheckpointHistory, most: int) -> Json:
    shown = history.all()[:most]
    completed = [c for c in shown if c.status == "COMPLETED"]
    nothing = stats(0 for _ in completed)
    sizes = stats(c.size for c in completed)
    return {
        "counts": history.counts(),
        "summary": {
            "checkpointed_size": sizes,
            "state_size": sizes,
            "end_to_end_duration": stats(c.duration for c in completed),
            "alignment_buffered": nothing,
            "processed_data": nothing,
            "persisted_data": nothing,
        },
        "latest": {
            "completed": _latest(job, history.latest("COMPLETED", savepoint=False)),
            "savepoint": _latest(job, history.latest("COMPLETED", savepoint=True)),
            "failed": _latest(job, history.latest("FAILED")),
            "restored": _restored(history.restored),
        },
        "history": [render_checkpoint(job, c) for c in shown],
    }


def _restored(restored: Restored | None) -> Json | None:
    if restored is None:
        return None
    return {
        "id": restored.id,
        "restore_timestamp": restored.at,
        "is_savepoint": restored.savepoint,
        "external_path": restored.path,
    }


def _latest(job: JobView, checkpoint: Checkpoint | None) -> Json | None:
    return None if checkpoint is None else render_checkpoint(job, checkpoint)


def render_checkpoint(job: JobView, checkpoint: Checkpoint, *, tasks: bool = False) -> Json:
    done = checkpoint.status == "COMPLETED"
    message: Json = {
        "className": checkpoint.status.lower(),
        "id": checkpoint.id,
        "status": checkpoint.status,
        "is_savepoint": checkpoint.savepoint,
        "savepointFormat": "NATIVE" if checkpoint.savepoint else None,
        "trigger_timestamp": checkpoint.triggered,
        "latest_ack_timestamp": checkpoint.acknowledged,
        "checkpointed_size": checkpoint.size,
        "state_size": checkpoint.size,
        "end_to_end_duration": checkpoint.duration,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": len(job.vertices),
        "num_acknowledged_subtasks": len(job.vertices) if done else 0,
        "checkpoint_type": checkpoint.kind,
        "tasks": {v.id: render_task(checkpoint, v) for v in job.vertices} if tasks else {},
    }
    if done:
        message["external_path"] = checkpoint.path
        message["discarded"] = False
    if checkpoint.status == "FAILED":
        message["failure_timestamp"] = checkpoint.failed_at
        message["failure_message"] = checkpoint.failure
    return message


def render_task(checkpoint: Checkpoint, vertex: VertexView) -> Json:
    """All vertices of a query share its batch; the size of a savepoint is shown at the sink."""
    done = checkpoint.status == "COMPLETED"
    size = checkpoint.sizes.get(vertex.name, 0)
    return {
        "id": checkpoint.id,
        "status": checkpoint.status,
        "latest_ack_timestamp": checkpoint.acknowledged,
        "checkpointed_size": size,
        "state_size": size,
        "end_to_end_duration": checkpoint.duration if done else -1,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": 1,
        "num_acknowledged_subtasks": int(done),
    }


def render_subtasks(checkpoint: Checkpoint, vertex: VertexView) -> Json:
    """The subtasks of a vertex, which has one."""
    task = render_task(checkpoint, vertex)
    if checkpoint.status != "COMPLETED":
        pending: Json = {"className": "pending", "index": SUBTASK, "status": "pending_or_failed"}
        return {**task, "summary": _subtask_summary(None), "subtasks": [pending]}
    done: Json = {
        "className": "completed",
        "index": SUBTASK,
        "ack_timestamp": checkpoint.acknowledged,
        "end_to_end_duration": checkpoint.duration,
        "checkpointed_size": task["checkpointed_size"],
        "state_size": task["state_size"],
        "checkpoint": {"sync": checkpoint.duration, "async": 0},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
        "start_delay": 0,
        "unaligned_checkpoint": False,
        "aborted": False,
        "status": "completed",
    }
    return {**task, "summary": _subtask_summary(task), "subtasks": [done]}


def _subtask_summary(task: Json | None) -> Json:
    """The summary over the one subtask, once it is done."""
    nothing = stats([0] if task else [])
    size = stats([task["checkpointed_size"]] if task else [])
    lasted = stats([task["end_to_end_duration"]] if task else [])
    return {
        "checkpointed_size": size,
        "state_size": size,
        "end_to_end_duration": lasted,
        "checkpoint_duration": {"sync": lasted, "async": nothing},
        "alignment": {"buffered": nothing, "processed": nothing, "persisted": nothing, "duration": nothing},
        "start_delay": nothing,
    }


def stats(values: Iterable[int]) -> Json:
    ordered = sorted(values)
    if not ordered:
        return {"min": 0, "max": 0, "avg": 0, "p50": NAN, "p90": NAN, "p95": NAN, "p99": NAN, "p999": NAN}

    def at(share: float) -> float:
        return float(ordered[round((len(ordered) - 1) * share)])

    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
        "p50": at(0.5),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
    }


def render_checkpoint_config(job: JobView, spark: Mapping[str, str], retention: CheckpointRetention) -> Json:
    """`spark` and `retention` are the cluster's settings; the job's own take precedence."""
    settings: Mapping[str, Any] = job.graph.get("settings") or {}
    sinks = [v for v in job.graph.get("vertices", ()) if v["kind"] == "sink"]
    exact = all(s.get("delivery", "exactly-once") == "exactly-once" for s in sinks)
    retention = CheckpointRetention(settings.get("checkpoint_retention") or retention)
    store, changelog = state_store(job, {**spark, **(settings.get("spark") or {})})
    return {
        "mode": "exactly_once" if exact else "at_least_once",
        "interval": min((_interval(s, settings) for s in sinks), default=NEVER),
        "timeout": _NO_TIMEOUT,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {
            "enabled": retention is not CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": retention is not CheckpointRetention.RETAIN_ON_CANCELLATION,
        },
        "state_backend": store,
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 0,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": changelog,
        # Spark writes a snapshot after a number of changes, not after a time.
        "changelog_periodic_materialization_interval": NEVER,
        "changelog_storage": "FileSystemCheckpointStorage" if changelog else "none",
    }


def state_store(job: JobView, spark: Mapping[str, str]) -> tuple[str, bool]:
    """The state store, and whether it writes changes instead of snapshots: as the session reported, or as configured."""
    told: Mapping[str, Any] = job.progress.get("state_store") or {}
    provider = str(told.get("provider") or spark.get(STATE_STORE, DEFAULT_STATE_STORE))
    changelog = str(spark.get(CHANGELOG, DEFAULT_CHANGELOG)).lower() == "true"
    return provider.rpartition(".")[2], bool(told.get("changelog", changelog)) and _ROCKSDB in provider


def _interval(sink: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """The interval between batches; 0 means as soon as the last one is done."""
    trigger = sink.get("trigger") or settings.get("checkpoint_interval")
    if trigger == AVAILABLE_NOW:
        return NEVER
    return ms(seconds(trigger)) if trigger else 0
