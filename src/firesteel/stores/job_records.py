"""JobRecordStore: the state of a job that its next JobMaster needs after a restart or failover of the control plane.

The JobMaster defines the record; for this store it is a JSON object in an envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.ha.protocols import Epoch, StateStore
from firesteel.types import JobID

from .codec import decode, decode_all, encode, take, take_job_id

_PREFIX = "jobs"


class JobRecordStore:
    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def put(self, job_id: JobID, data: Mapping[str, Any], *, epoch: Epoch) -> None:
        """Replace the job's record. Repeating it is harmless."""
        await self._store.put(_path(job_id), encode({"job_id": job_id, "data": dict(data)}), epoch=epoch)

    async def get(self, job_id: JobID) -> dict[str, Any] | None:
        """Raises UnreadableRecordError."""
        stored = await self._store.get(_path(job_id))
        return None if stored is None else _read(_path(job_id), stored.value)

    async def raw(self, job_id: JobID) -> bytes | None:
        """The stored bytes, readable or not."""
        stored = await self._store.get(_path(job_id))
        return None if stored is None else stored.value

    async def recover(self) -> tuple[dict[JobID, dict[str, Any]], dict[JobID, str]]:
        """The records by job, and the reasons why others are unreadable."""
        return await decode_all(await self._store.list(_PREFIX), _read)

    async def delete(self, job_id: JobID, *, epoch: Epoch) -> bool:
        """False when there was no record."""
        return await self._store.delete(_path(job_id), epoch=epoch)


def _path(job_id: JobID) -> str:
    return f"{_PREFIX}/{job_id}"


def _read(path: str, raw: bytes) -> dict[str, Any]:
    def build(data: Mapping[str, Any]) -> dict[str, Any]:
        take_job_id(data, path)
        record: dict[str, Any] = take(data, "data", dict)
        return record

    return decode(path, raw, build)
