"""JobResultStore: how jobs ended. A result is final (I5): it is written once, before any clean-up, and never changes.

A result is dirty until everything that the job left behind is cleaned up (I12); recovery goes on with the dirty ones. Clean
results stay as the memory of which ids are spent, up to a count.
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
"""How many old results one clean-up removes at most, so that a retention that was lowered does not hold up the first one."""


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
    """None when it ended before any attempt."""
    ended_at: float
    attempts: int
    restarts: int
    digest: str
    """Of the submission, so that a retry of it can be answered after the graph is gone."""
    stopped: bool = False
    note: str = ""
    owner: str = ""
    mode: str = "batch"
    vertices: int = 0
    """How many; for lists, which do not read the details."""
    checkpoint: str = ""
    """Where the checkpoint of a stream is kept, for another job to go on from; empty when it is not."""
    resumes: str = ""
    """The id of the job that this one went on with."""
    files: tuple[str, ...] = ()
    """Keys of the uploads that a job which goes on with this one needs."""

    def __post_init__(self) -> None:
        if not self.status.terminal:
            raise ValueError(f"{self.status.value} is not how job {self.job_id} can end")


class JobResultStore:
    """Results by job, all of them in memory once `load` has run.

    Of a clean result's failure the memory keeps the beginning of the message only, as there may be tens of thousands;
    `read` has it whole. Dirty results are whole. What `read` says decides; the memory is for answering quickly.
    """

    def __init__(self, store: StateStore, retention: int) -> None:
        self._store = store
        self._retention = retention
        self._results: dict[JobID, JobResult] = {}
        self._dirty: dict[JobID, int | None] = {}
        """With the version of each in the store, where it was written here."""
        self._clean_by_age: list[tuple[float, JobID]] = []
        """A heap of the clean ones."""

    async def load(self) -> dict[JobID, str]:
        """Fill the memory from the store. Returns why unreadable ones are; their jobs must not run: `read` raises for them."""
        good, bad = await decode_all(await self._store.list(_PREFIX), _read_for_memory)
        self._results = {result.job_id: result for result, _ in good.values()}
        self._dirty = {result.job_id: None for result, dirty in good.values() if dirty}
        self._clean_by_age = [(r.ended_at, r.job_id) for r, dirty in good.values() if not dirty]
        heapq.heapify(self._clean_by_age)
        for job_id, why in bad.items():
            logger.error("the result of job %s cannot be read, the job will not run: %s", job_id, why)
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
        """The result as it stands in the store. Asked before anything runs (I5).

        Raises UnreadableRecordError: the job has ended, and nobody knows how.
        """
        stored = await self._store.get(_path(job_id))
        return None if stored is None else _read(_path(job_id), stored.value)[0]

    async def raw(self, job_id: JobID) -> bytes | None:
        """The bytes as they stand in the store, readable or not."""
        stored = await self._store.get(_path(job_id))
        return None if stored is None else stored.value

    async def put_dirty(self, result: JobResult, *, epoch: Epoch) -> None:
        """Make `result` the job's result. Repeating it is harmless, also after it was marked clean.

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
        """Put a dirty result in the place of one that nobody can read, whose bytes the caller has kept elsewhere."""
        await self._store.put(_path(result.job_id), _encode(result, dirty=True), epoch=epoch)
        self._remember(result, dirty=True)

    async def mark_clean(self, job_id: JobID, *, epoch: Epoch) -> None:
        """Nothing of the job is left to be cleaned up. Repeating it is harmless. Forgets the oldest beyond the retention.

        Raises:
            JobNotFoundError: the job has no result.
        """
        if not await self._mark_as_written(job_id, epoch):
            await self._mark_as_stored(job_id, epoch)
        await self._forget_oldest(epoch)

    async def _mark_as_written(self, job_id: JobID, epoch: Epoch) -> bool:
        """Without reading what was written here a moment ago. False when it is not there as it was written."""
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
            raise JobNotFoundError(
                f"job {job_id} has no result that could be marked clean — put its dirty result first"
            )
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
            except BaseException:  # raised again; it is still there, and the next one tries
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
    """The result as it is kept in memory when nothing is to be done about it any more."""
    failure = result.failure
    if failure is not None:
        message = failure.message
        if len(message) > _MESSAGE_IN_MEMORY:
            message = f"{message[:_MESSAGE_IN_MEMORY]} ..."
        vertex = None if failure.vertex is None else sys.intern(failure.vertex)
        error_class = sys.intern(failure.error_class)
        failure = replace(failure, message=message, vertex=vertex, error_class=error_class, traceback="")
    # Interned, as a job that runs every minute has one name; the memory holds it once.
    return replace(
        result,
        name=sys.intern(result.name),
        failure=failure,
        owner=sys.intern(result.owner),
        mode=sys.intern(result.mode),
    )
