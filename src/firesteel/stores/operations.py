"""OperationStore: requested checkpoints, savepoints, stops and disposals, with their outcomes.

A client triggers an operation under an id of its choice and asks for the outcome later, even from another leader (I19).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import JsonValue

from firesteel.errors import InvalidInputError, JobStateError, OperationNotFoundError, Problem, VersionConflictError
from firesteel.ha.protocols import NEW, Epoch, StateStore, Stored
from firesteel.records import from_json, to_json
from firesteel.types import JobID

from .codec import UnreadableRecordError, decode, encode, take_job_id

logger = logging.getLogger(__name__)

_PREFIX = "operations"
_TRIGGER_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")

NO_JOB = JobID("0" * 32)
"""The key of operations that belong to no job: disposals of savepoints."""


class OperationKind(StrEnum):
    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    STOP = "STOP"
    DISPOSAL = "DISPOSAL"


class OperationStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Operation:
    job_id: JobID
    trigger_id: str
    """Chosen by the client; unique within the job."""
    kind: OperationKind
    started_at: float
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the request. The same trigger id with other parameters is refused."""
    location: str = ""
    """Where the savepoint is or will be. It is determined once: the next leader may have another configuration."""
    status: OperationStatus = OperationStatus.IN_PROGRESS
    ended_at: float | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def __post_init__(self) -> None:
        if (self.ended_at is None) != (self.status is OperationStatus.IN_PROGRESS):
            raise ValueError(f"an operation cannot be {self.status.value} with the end time {self.ended_at}")

    @property
    def savepoint(self) -> str:
        """Where the savepoint of this operation is; empty if it took none, or the savepoint was disposed of."""
        taken = self.kind in (OperationKind.SAVEPOINT, OperationKind.STOP) and self.status is OperationStatus.COMPLETED
        return str(self.result.get("location") or "") if taken and not self.result.get("disposed") else ""


class OperationStore:
    """Operations by job and trigger id; answers come from memory once `load` has run."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._operations: dict[JobID, dict[str, Operation]] = {}

    async def load(self) -> None:
        """Fill the memory from the store. Unreadable operations are logged, and deleted with the job's other operations."""
        self._operations = {}
        stored = await self._store.list(_PREFIX)
        for operation in await asyncio.to_thread(_read_all, stored):
            self._remember(operation)

    def get(self, job_id: JobID, trigger_id: str) -> Operation | None:
        return self._operations.get(job_id, {}).get(trigger_id)

    def of_job(self, job_id: JobID) -> list[Operation]:
        """Oldest first."""
        return sorted(self._operations.get(job_id, {}).values(), key=lambda o: o.started_at)

    def latest_savepoint(self, job_id: JobID) -> Operation | None:
        """The operation, a savepoint or a stop, that took the job's latest existing savepoint."""
        taken = [o for o in self._operations.get(job_id, {}).values() if o.savepoint]
        return max(taken, key=lambda o: o.ended_at or 0.0, default=None)

    def unfinished(self) -> list[Operation]:
        return [o for of_job in self._operations.values() for o in of_job.values() if o.ended_at is None]

    async def begin(self, operation: Operation, *, epoch: Epoch) -> Operation:
        """Record a requested operation before it is carried out.

        Returns `operation` itself if it is new and has to be carried out. If the same was requested under this id before,
        returns that operation, which is in progress or has ended.

        Raises:
            InvalidInputError: the trigger id is malformed.
            JobStateError: the id was used for another operation.
        """
        if not _TRIGGER_ID.fullmatch(operation.trigger_id):
            problem = Problem(
                f"'{operation.trigger_id}' is not a valid trigger id",
                "use at most 128 letters, digits, dots, dashes and underscores, not beginning with a dot",
                field="triggerId",
            )
            raise InvalidInputError([problem])
        known = self.known(operation)
        if known is None:
            known = _checked(await self._put_new(operation, epoch), operation)
        return known

    def known(self, operation: Operation) -> Operation | None:
        """The recorded operation of the same request, if there is one.

        Raises:
            JobStateError: the id was used for another operation.
        """
        there = self.get(operation.job_id, operation.trigger_id)
        return None if there is None else _checked(there, operation)

    async def _put_new(self, operation: Operation, epoch: Epoch) -> Operation:
        path = _path(operation.job_id, operation.trigger_id)
        try:
            await self._store.put(path, encode(to_json(operation)), epoch=epoch, expected=NEW)
        except VersionConflictError:
            stored = await self._store.get(path)
            # Checked after the last await: a concurrent call may have begun the same operation meanwhile.
            known = self.get(operation.job_id, operation.trigger_id)
            if known is not None:
                return known
            if stored is None:
                raise
            there = _read(path, stored.value)
            # Equal to the last digit of its time: it is our own write, whose answer was lost, and not carried out yet.
            operation = operation if there == operation else there
        self._remember(operation)
        return operation

    async def complete(
        self, job_id: JobID, trigger_id: str, *, result: Mapping[str, JsonValue], ended_at: float, epoch: Epoch
    ) -> Operation:
        """Record success. See `fail`."""
        return await self._end(
            job_id, trigger_id, OperationStatus.COMPLETED, epoch, result=dict(result), ended_at=ended_at
        )

    async def fail(self, job_id: JobID, trigger_id: str, *, error: str, ended_at: float, epoch: Epoch) -> Operation:
        """Record failure. Repeating it is harmless: the first outcome stays and is returned.

        Raises:
            OperationNotFoundError: no such operation was begun.
            JobStateError: it has ended the other way.
        """
        return await self._end(job_id, trigger_id, OperationStatus.FAILED, epoch, error=error, ended_at=ended_at)

    async def _end(
        self, job_id: JobID, trigger_id: str, status: OperationStatus, epoch: Epoch, **outcome: Any
    ) -> Operation:
        known = self.get(job_id, trigger_id)
        if known is None:
            raise OperationNotFoundError(f"job {job_id} has no operation {trigger_id} — trigger it first")
        if known.ended_at is not None:
            if known.status is not status:
                raise JobStateError(
                    f"operation {trigger_id} of job {job_id} is {known.status.value} and cannot become {status.value}"
                )
            return known
        ended = replace(known, status=status, **outcome)
        await self._store.put(_path(job_id, trigger_id), encode(to_json(ended)), epoch=epoch)
        self._remember(ended)
        return ended

    async def disposed(self, location: str, *, epoch: Epoch) -> None:
        """Record that the savepoint at `location` is deleted. May be repeated."""
        gone = [o for of_job in self._operations.values() for o in of_job.values() if o.savepoint == location]
        for operation in gone:
            known = replace(operation, result={**operation.result, "disposed": True})
            await self._store.put(_path(known.job_id, known.trigger_id), encode(to_json(known)), epoch=epoch)
            self._remember(known)

    async def expire(
        self, older_than: float, *, epoch: Epoch, remembered: Callable[[JobID], bool] = lambda _: False
    ) -> int:
        """Delete the operations that ended before the time `older_than`, and return their number.

        The operation that took the latest savepoint of a `remembered` job is kept.
        """
        old = [
            o
            for job_id, of_job in self._operations.items()
            for o in of_job.values()
            if o.ended_at is not None
            and o.ended_at < older_than
            and not (o.savepoint and o is self.latest_savepoint(job_id) and remembered(job_id))
        ]
        for operation in old:
            await self._store.delete(_path(operation.job_id, operation.trigger_id), epoch=epoch)
            self._forget(operation.job_id, operation.trigger_id)
        return len(old)

    async def delete_job(self, job_id: JobID, *, epoch: Epoch) -> None:
        """Delete all operations of a job, including unreadable ones."""
        for path in await self._store.paths(f"{_PREFIX}/{job_id}"):
            await self._store.delete(path, epoch=epoch)
            self._forget(job_id, path.rpartition("/")[2])

    def _remember(self, operation: Operation) -> None:
        self._operations.setdefault(operation.job_id, {})[operation.trigger_id] = operation

    def _forget(self, job_id: JobID, trigger_id: str) -> None:
        of_job = self._operations.get(job_id, {})
        of_job.pop(trigger_id, None)
        if not of_job:
            self._operations.pop(job_id, None)


def _checked(there: Operation, wish: Operation) -> Operation:
    if there.kind is not wish.kind:
        raise JobStateError(
            f"trigger id {wish.trigger_id} of job {wish.job_id} was used for a {there.kind.value}; "
            f"it cannot be a {wish.kind.value} too — use a new trigger id"
        )
    if there.asked and there.asked != wish.asked:  # records of earlier versions have no parameters
        raise JobStateError(
            f"trigger id {wish.trigger_id} of job {wish.job_id} was used for a {there.kind.value} with "
            f"{_words(there.asked)}; it cannot be one with {_words(wish.asked)} too — use a new trigger id"
        )
    return there


def _words(asked: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in asked.items()) or "no parameters"


def _path(job_id: JobID, trigger_id: str) -> str:
    return f"{_PREFIX}/{job_id}/{trigger_id}"


def _read(path: str, raw: bytes) -> Operation:
    def build(data: Mapping[str, Any]) -> Operation:
        take_job_id(data, path)
        operation = from_json(data, Operation)
        if path != _path(operation.job_id, operation.trigger_id):
            raise ValueError(f"it is the record of operation {operation.trigger_id}")
        return operation

    return decode(path, raw, build)


def _read_all(stored: Mapping[str, Stored]) -> list[Operation]:
    operations = []
    for path, value in stored.items():
        try:
            operations.append(_read(path, value.value))
        except UnreadableRecordError as error:
            logger.error("skipping an unreadable operation: %s", error)
    return operations
