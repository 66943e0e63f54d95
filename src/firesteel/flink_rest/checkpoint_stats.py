"""Checkpoints of a stream: each batch that a sink has committed is one, and savepoints are those that were requested.

Spark keeps no statistics of them. Known are the last batches of the most advanced sink, the number of earlier ones, and the
savepoints whose operations are still remembered. A checkpoint's number is the number of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from firesteel.attempts.committed import Committed, CommittedBatch, Origin
from firesteel.flink_rest.view import JobView
from firesteel.masking import mask_text
from firesteel.rest.answers import Json
from firesteel.rest.states import NOT_YET, ms, ms_or
from firesteel.stores.operations import Operation, OperationKind, OperationStatus

SAVEPOINTS_FROM = 2**32
"""Savepoints have numbers above those of batches. They are derived from the trigger id, so all leaders agree on them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    id: int
    status: str
    """IN_PROGRESS, COMPLETED or FAILED."""
    triggered: int
    acknowledged: int
    """NOT_YET while it is not complete."""
    duration: int
    path: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes by sink, for a savepoint. Spark does not report them for a batch."""
    failed_at: int = NOT_YET
    failure: str = ""
    kind: str = "CHECKPOINT"

    @property
    def savepoint(self) -> bool:
        return self.kind != "CHECKPOINT"

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


@dataclass(frozen=True, slots=True)
class Restored:
    id: int
    at: int
    path: str
    savepoint: bool


@dataclass(frozen=True, slots=True)
class CheckpointHistory:
    batches: tuple[Checkpoint, ...]
    """The last batches that the most advanced sink has committed, newest first; empty before the first."""
    savepoints: tuple[Checkpoint, ...]
    """Newest first."""
    committed: int
    """The number of batches of the most advanced sink, over all attempts of the job."""
    restores: int = 0
    """The number of attempts that started from a checkpoint or savepoint."""
    restored: Restored | None = None
    """What the last of them started from."""

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

    def counts(self) -> Json:
        of_status = {s: sum(c.status == s for c in self.savepoints) for s in ("IN_PROGRESS", "COMPLETED", "FAILED")}
        completed = self.committed + of_status["COMPLETED"]
        return {
            "restored": self.restores,
            "total": completed + of_status["IN_PROGRESS"] + of_status["FAILED"],
            "in_progress": of_status["IN_PROGRESS"],
            "completed": completed,
            "failed": of_status["FAILED"],
        }


def has_checkpoints(job: JobView) -> bool:
    """Whether a job has checkpoints: only streams have them, and the queries of a script are unknown."""
    kinds = {v.data["kind"] for v in job.vertices}
    return job.streaming and bool(kinds) and "script" not in kinds


def checkpoint_history(job: JobView, operations: Sequence[Operation], directory: str) -> CheckpointHistory:
    """`directory` is the directory of the job's checkpoints."""
    logs = [Committed.from_json(log) for log in job.checkpoints.values()]
    furthest = max(logs, key=lambda log: (log.last, log.restores), default=Committed())
    path = mask_text(directory)
    savepoints = (_savepoint(o, job) for o in operations if _is_savepoint(o))
    return CheckpointHistory(
        tuple(_batch(b, path) for b in reversed(furthest.recent)),
        tuple(sorted(savepoints, key=lambda c: c.triggered, reverse=True)),
        furthest.count,
        furthest.restores,
        None if furthest.restored is None else _restored(furthest.restored, path),
    )


def _batch(batch: CommittedBatch, path: str) -> Checkpoint:
    acknowledged = ms(batch.at)
    return Checkpoint(
        batch.number, "COMPLETED", acknowledged - batch.duration_ms, acknowledged, batch.duration_ms, path
    )


def _restored(origin: Origin, directory: str) -> Restored:
    """What the attempt started from. A savepoint has the number from its own job, if that is known; a batch has its own."""
    number = savepoint_number(origin.trigger) if origin.trigger else origin.batch
    path = mask_text(origin.savepoint) if origin.savepoint else directory
    return Restored(number, ms(origin.at), path, bool(origin.savepoint))


def _is_savepoint(operation: Operation) -> bool:
    """Whether the operation takes a savepoint. A stop may take none; if it does, its location is known from the start."""
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
        _sizes(operation),
        failed_at=ended if operation.status is OperationStatus.FAILED else NOT_YET,
        failure=mask_text(operation.error),
        kind="SYNC_SAVEPOINT" if operation.kind is OperationKind.STOP else "SAVEPOINT",
    )


def _sizes(operation: Operation) -> dict[str, int]:
    sizes = operation.result.get("sizes")
    return {name: size for name, size in sizes.items() if isinstance(size, int)} if isinstance(sizes, dict) else {}


def savepoint_number(trigger_id: str) -> int:
    digits = "".join(c for c in trigger_id.lower() if c in "0123456789abcdef")[:8]
    return SAVEPOINTS_FROM + int(digits or "0", 16)
