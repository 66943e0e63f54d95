"""ParkedStore: records that could not be read, kept byte for byte for an operator to examine.

Parking a record gets it out of the way: its job is reported as failed, and other jobs continue.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.ha.protocols import Epoch, StateStore
from firesteel.records import from_json, to_json
from firesteel.types import JobID

from .codec import UnreadableRecordError, decode, encode

logger = logging.getLogger(__name__)

_PREFIX = "parked"


@dataclass(frozen=True, slots=True)
class ParkedJob:
    job_id: JobID
    """The id as it was found; it may be malformed."""
    path: str
    """The path of the record: `graphs/<job id>`."""
    raw: bytes
    reason: str
    parked_at: float


class ParkedStore:
    """Records by job and kind (`parked/<job id>/graphs`), so that two bad records of a job are both kept."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def put(self, parked: ParkedJob, *, epoch: Epoch) -> None:
        """Keep a record. Repeating it is harmless."""
        kind = parked.path.partition("/")[0]
        await self._store.put(f"{_PREFIX}/{parked.job_id}/{kind}", encode(to_json(parked)), epoch=epoch)

    async def list(self) -> Sequence[ParkedJob]:
        found = []
        for path, stored in (await self._store.list(_PREFIX)).items():
            try:
                found.append(decode(path, stored.value, lambda data: from_json(data, ParkedJob)))
            except UnreadableRecordError as error:
                logger.error("skipping an unreadable parked record: %s", error)
        return found

    async def delete(self, job_id: JobID, *, epoch: Epoch) -> bool:
        """Delete the parked records of a job; False when there were none."""
        paths = await self._store.paths(f"{_PREFIX}/{job_id}")
        for path in paths:
            await self._store.delete(path, epoch=epoch)
        return bool(paths)
