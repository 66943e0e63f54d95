"""JobResultStore: how jobs ended. A result is final (I5): it is written once, before any clean-up, and never changes.

A result is dirty until everything that the job left behind is cleaned up (I12); a new leader continues with the dirty ones.
Clean results are kept, up to a count, to remember which ids have been used.
"""

from __future__ import annotations

import heapq
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from firesteel.errors import JobNotFoundError, JobStateError, VersionConflictError
from firesteel.failure import Failure
from firesteel.ha.protocols import NEW, Epoch, StateStore
from firesteel.records import from_json, to_json
from firesteel.status import JobStatus
from firesteel.types import JobID

from .codec import decode, decode_all, encode, take, take_job_id

logger = logging.getLogger(__name__)

_PREFIX = "results"
_MESSAGE_IN_MEMORY = 400
_FORGET_AT_ONCE = 20
"""The number of old results that one clean-up removes at most, so that lowering the retention delays no clean-up much."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended, for good."""

    job_id: JobID
    name: str
    status: JobStatus
    """FINISHED, FAILED or CANCELED."""
    failure: Failure | None
    submitted_at: float
    started_at: float | None
    """None if the job ended before its first attempt."""
    ended_at: float
    attempts: int
    restarts: int
    digest: str
    """The digest of the submission, so that a retry of it can be answered after the graph is gone."""
    stopped: bool = False
    note: str = ""
    owner: str = ""
    mode: str = "batch"
    vertices: int = 0
    """The number of vertices, for job lists, which do not read the details."""
    checkpoint: str = ""
    """Where the checkpoint of a stream is kept for another job to resume from; empty if it is not kept."""
    resumes: str = ""
    """The id of the job that this one resumed."""
    files: tuple[str, ...] = ()
    """Keys of the uploads that a job which resumes this one needs."""
    kind: str = ""
    """What users call the job: its mode, or `script` or `interactive`; empty in records of earlier versions."""
    given_up: int = 0
    """The last attempt whose end nobody has seen; 0 when there is none. The clean-up locks it out."""

    def __post_init__(self) -> None:
        if not self.status.terminal:
            raise ValueError(f"job {self.job_id} cannot end as {self.status.value}")


class JobResultStore:
    """Results by job, all of them in memory once `load` has run.

    There may be tens of thousands, so only the start of a clean result's failure message is kept in memory; `read` returns
    all of it. Dirty results are kept whole. The memory is for quick answers; decisions are made by `read`.
    """

    def __init__(self, store: StateStore, retention: int) -> None:
        self._store = store
        self._retention = retention
        self._results: dict[JobID, JobResult] = {}
        self._dirty: dict[JobID, int | None] = {}
        """Dirty results, with their version in the store if this process wrote them."""
        self._clean_by_age: list[tuple[float, JobID]] = []
        """A heap of the clean results."""

    async def load(self) -> dict[JobID, str]:
        """Fill the memory from the store. Returns the reasons why results are unreadable; those jobs must not run."""
        good, bad = await decode_all(await self._store.list(_PREFIX), _read_for_memory)
        self._results = {result.job_id: result for result, _ in good.values()}
        self._dirty = {result.job_id: None for result, dirty in good.values() if dirty}
        self._clean_by_age = [(r.ended_at, r.job_id) for r, dirty in good.values() if not dirty]
        heapq.heapify(self._clean_by_age)
        for job_id, why in bad.items():
            logger.error("the result of job %s cannot be read, so the job will not run: %s", job_id, why)
        return bad

    def get(self, job_id: JobID) -> JobResult | None:
        return self._results.get(job_id)

    def is_dirty(self, job_id: JobID) -> bool:
        return job_id in self._dirty

    def dirty(self) -> list[JobResult]:
        return [self._results[job_id] for job_id in self._dirty]

    def all(self) -> list[JobResult]:
        return list(self._results.values())

    async def read(self, job_id: JobID) -> JobResult | None:
        """The result in the store. It is read before an attempt starts (I5).

        Raises UnreadableRecordError: the job has ended, but its result cannot be read.
        """
        stored = await self._store.get(_path(job_id))
        return None if stored is None else _read(_path(job_id), stored.value)[0]

    async def raw(self, job_id: JobID) -> bytes | None:
        """The stored bytes, readable or not."""
        stored = await self._store.get(_path(job_id))
        return None if stored is None else stored.value

    async def put_dirty(self, result: JobResult, *, epoch: Epoch) -> None:
        """Make `result` the job's result. Repeating this is harmless, even after the result was marked clean.

        Raises:
            JobStateError: the job has another result.
        """
        path = _path(result.job_id)
        try:
            version = await self._store.put(path, _encode(result, dirty=True), epoch=epoch, expected=NEW)
        except VersionConflictError:
            stored = await self._store.get(path)
            if stored is None:
                raise
            there, dirty = _read(path, stored.value)
            if there != result:
                raise JobStateError(
                    f"job {result.job_id} has ended as {there.status.value} and its result is final; it cannot become "
                    f"{result.status.value} — submit the job under a new id to run it again"
                ) from None
            self._remember(there, dirty=dirty)
        else:
            self._remember(result, dirty=True)
            self._dirty[result.job_id] = version

    async def replace_unreadable(self, result: JobResult, *, epoch: Epoch) -> None:
        """Replace an unreadable result by a dirty one. The caller has kept the bytes of the old one elsewhere."""
        await self._store.put(_path(result.job_id), _encode(result, dirty=True), epoch=epoch)
        self._remember(result, dirty=True)

    async def mark_clean(self, job_id: JobID, *, epoch: Epoch) -> None:
        """Record that the clean-up after the job is complete. May be repeated. Removes the oldest results beyond the retention.

        Raises:
            JobNotFoundError: the job has no result.
        """
        if not await self._mark_as_written(job_id, epoch):
            await self._mark_as_stored(job_id, epoch)
        await self._forget_oldest(epoch)

    async def _mark_as_written(self, job_id: JobID, epoch: Epoch) -> bool:
        """Mark a result that this process wrote, without reading it. False when the store has another version."""
        version = self._dirty.get(job_id)
        if version is None:
            return False
        result = self._results[job_id]
        try:
            await self._store.put(_path(job_id), _encode(result, dirty=False), epoch=epoch, expected=version)
        except VersionConflictError:
            return False
        self._remember(result, dirty=False)
        return True

    async def _mark_as_stored(self, job_id: JobID, epoch: Epoch) -> None:
        path = _path(job_id)
        stored = await self._store.get(path)
        if stored is None:
            raise JobNotFoundError(f"job {job_id} has no result to mark as clean — put its dirty result first")
        result, dirty = _read(path, stored.value)
        if dirty:
            await self._store.put(path, _encode(result, dirty=False), epoch=epoch, expected=stored.version)
        self._remember(result, dirty=False)

    def _remember(self, result: JobResult, *, dirty: bool) -> None:
        job_id = result.job_id
        known_clean = job_id in self._results and job_id not in self._dirty
        if dirty:
            self._results[job_id] = result
            self._dirty[job_id] = None
        elif not known_clean:
            self._results[job_id] = _lighter(result)
            self._dirty.pop(job_id, None)
            heapq.heappush(self._clean_by_age, (result.ended_at, job_id))

    async def _forget_oldest(self, epoch: Epoch) -> None:
        for _ in range(_FORGET_AT_ONCE):
            if len(self._clean_by_age) <= self._retention:
                return
            oldest = heapq.heappop(self._clean_by_age)
            try:
                await self._store.delete(_path(oldest[1]), epoch=epoch)
            except BaseException:  # raised again; it is still stored, and the next clean-up tries again
                heapq.heappush(self._clean_by_age, oldest)
                raise
            self._results.pop(oldest[1], None)


def _path(job_id: JobID) -> str:
    return f"{_PREFIX}/{job_id}"


def _encode(result: JobResult, *, dirty: bool) -> bytes:
    return encode({"dirty": dirty, **to_json(result)})


def _read(path: str, raw: bytes) -> tuple[JobResult, bool]:
    def build(data: Mapping[str, Any]) -> tuple[JobResult, bool]:
        take_job_id(data, path)
        return from_json(data, JobResult), take(data, "dirty", bool)

    return decode(path, raw, build)


def _read_for_memory(path: str, raw: bytes) -> tuple[JobResult, bool]:
    result, dirty = _read(path, raw)
    return (result if dirty else _lighter(result)), dirty


def _lighter(result: JobResult) -> JobResult:
    """The result as it is kept in memory once it is clean."""
    failure = result.failure
    if failure is not None:
        message = failure.message
        if len(message) > _MESSAGE_IN_MEMORY:
            message = f"{message[:_MESSAGE_IN_MEMORY]} ..."
        vertex = None if failure.vertex is None else sys.intern(failure.vertex)
        error_class = sys.intern(failure.error_class)
        failure = replace(failure, message=message, vertex=vertex, error_class=error_class, traceback="")
    # Interned: the name of a job that runs every minute is held in memory once.
    return replace(
        result,
        name=sys.intern(result.name),
        failure=failure,
        owner=sys.intern(result.owner),
        mode=sys.intern(result.mode),
        kind=sys.intern(result.kind),
    )
