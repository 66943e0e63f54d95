"""Checkpoints of a stream: each batch that a sink has committed is one, and savepoints are the ones that somebody asked for.

Spark keeps no statistics of them. What is known is the last batch of each sink, how many there were before, and the savepoints
whose operations are still remembered; a checkpoint's number is the number of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from firesteel.rest.flink.states import NOT_YET, ms, ms_or
from firesteel.rest.flink.view import JobView
from firesteel.rest.security.masking import mask_text
from firesteel.stores.operations import Operation, OperationKind, OperationStatus

SAVEPOINTS_FROM = 2**32
"""Savepoints have numbers too, above those that batches have. They come from the trigger id, so every leader has the same."""

MOST_IN_HISTORY = 10


class Counts(TypedDict):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    id: int
    status: str
    """IN_PROGRESS, COMPLETED or FAILED."""
    triggered: int
    acknowledged: int
    """NOT_YET unless it is complete."""
    duration: int
    path: str = ""
    failed_at: int = NOT_YET
    failure: str = ""
    kind: str = "CHECKPOINT"

    @property
    def savepoint(self) -> bool:
        return self.kind != "CHECKPOINT"


@dataclass(frozen=True, slots=True)
class Restored:
    at: int
    path: str


@dataclass(frozen=True, slots=True)
class CheckpointHistory:
    batches: tuple[Checkpoint, ...]
    """The last committed batch of the sink that is furthest; empty before the first."""
    savepoints: tuple[Checkpoint, ...]
    """Newest first."""
    committed: int
    """Batches, of the sink that is furthest."""
    restarts: int
    restored: Restored | None = None
    """The savepoint that the job went on from, when that was the last thing that it went on from."""

    def last_batch(self) -> Checkpoint | None:
        return self.batches[0] if self.batches else None

    def all(self) -> list[Checkpoint]:
        """Newest first."""
        return sorted((*self.batches, *self.savepoints), key=lambda c: (c.triggered, c.id), reverse=True)

    def find(self, number: int) -> Checkpoint | None:
        return next((c for c in self.all() if c.id == number), None)

    def latest(self, status: str, *, savepoint: bool | None = None) -> Checkpoint | None:
        return next(
            (c for c in self.all() if c.status == status and (savepoint is None or c.savepoint is savepoint)), None
        )

    def counts(self) -> Counts:
        of_status = {s: sum(c.status == s for c in self.savepoints) for s in ("IN_PROGRESS", "COMPLETED", "FAILED")}
        completed = self.committed + of_status["COMPLETED"]
        return {
            # Every attempt but the first goes on from the last committed batch, and the first from the savepoint.
            "restored": (self.restarts if self.committed else 0) + (self.restored is not None),
            "total": completed + of_status["IN_PROGRESS"] + of_status["FAILED"],
            "in_progress": of_status["IN_PROGRESS"],
            "completed": completed,
            "failed": of_status["FAILED"],
        }


def has_checkpoints(job: JobView) -> bool:
    """Only streams have, and of a script nobody knows what queries it starts."""
    kinds = {v.data["kind"] for v in job.vertices}
    return job.streaming and bool(kinds) and "script" not in kinds


def checkpoint_history(job: JobView, operations: Sequence[Operation], directory: str) -> CheckpointHistory:
    """`directory` is where the job's checkpoints are."""
    sinks: Mapping[str, Mapping[str, Any]] = job.progress.get("sinks") or {}
    told = [s for s in sinks.values() if s.get("batch") is not None]
    furthest = max(told, key=lambda s: s["batch"], default=None)
    batches: tuple[Checkpoint, ...] = ()
    if furthest is not None:
        acknowledged = ms(job.progress.get("updated_at") or job.at)
        duration = int(furthest.get("duration_ms") or 0)
        batch = Checkpoint(
            furthest["batch"], "COMPLETED", acknowledged - duration, acknowledged, duration, mask_text(directory)
        )
        batches = (batch,)
    savepoints = (_savepoint(o, job) for o in operations if _is_savepoint(o))
    return CheckpointHistory(
        batches,
        tuple(sorted(savepoints, key=lambda c: c.triggered, reverse=True)),
        0 if furthest is None else furthest["batch"] + 1,
        job.data["restarts"],
        _restored(job),
    )


def _restored(job: JobView) -> Restored | None:
    restore: Mapping[str, Any] | None = (job.graph.get("settings") or {}).get("restore")
    begun = job.timestamps["RUNNING"]
    if restore is None or not begun or job.data["restarts"]:
        return None
    return Restored(begun, mask_text(restore["path"]))


def _is_savepoint(operation: Operation) -> bool:
    """A stop need not take one; if it does, it knows from the beginning where."""
    return operation.kind is OperationKind.SAVEPOINT or (
        operation.kind is OperationKind.STOP and bool(operation.location or operation.result.get("location"))
    )


def _savepoint(operation: Operation, job: JobView) -> Checkpoint:
    started, ended = ms(operation.started_at), ms_or(operation.ended_at)
    completed = operation.status is OperationStatus.COMPLETED
    return Checkpoint(
        savepoint_number(operation.trigger_id),
        operation.status.value,
        started,
        ended if completed else NOT_YET,
        (job.now if ended == NOT_YET else ended) - started,
        mask_text(str(operation.result.get("location") or "")),
        failed_at=ended if operation.status is OperationStatus.FAILED else NOT_YET,
        failure=mask_text(operation.error),
        kind="SYNC_SAVEPOINT" if operation.kind is OperationKind.STOP else "SAVEPOINT",
    )


def savepoint_number(trigger_id: str) -> int:
    digits = "".join(c for c in trigger_id.lower() if c in "0123456789abcdef")[:8]
    return SAVEPOINTS_FROM + int(digits or "0", 16)
