"""ParkedStore: records that could not be read, kept byte for byte for a person to look at.

A record that is parked is out of the way: its job is reported, and the others go on.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.ha.protocols import Epoch, StateStore
from firesteel.types import JobID

from .codec import UnreadableRecordError, decode, encode, take, take_number

logger = logging.getLogger(__name__)

_PREFIX = "parked"


@dataclass(frozen=True, slots=True)
class ParkedJob:
    job_id: JobID
    path: str
    """Where the record stood: `graphs/<job id>`."""
    raw: bytes
    reason: str
    parked_at: float

    def to_json(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "path": self.path,
            "raw": base64.b64encode(self.raw).decode("ascii"),
            "reason": self.reason,
            "parked_at": self.parked_at,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ParkedJob:
        """Raises ValueError or KeyError when `data` is not a parked record."""
        return ParkedJob(
            job_id=JobID(take(data, "job_id", str)),  # as it was found: it need not be a proper id
            path=take(data, "path", str),
            raw=base64.b64decode(take(data, "raw", str), validate=True),
            reason=take(data, "reason", str),
            parked_at=take_number(data, "parked_at"),
        )


class ParkedStore:
    """By job, and within it by the kind of record (`parked/<job id>/graphs`), so that two bad records of a job both stay."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def put(self, parked: ParkedJob, *, epoch: Epoch) -> None:
        """Keep a record. Repeating it is harmless."""
        kind = parked.path.partition("/")[0]
        await self._store.put(f"{_PREFIX}/{parked.job_id}/{kind}", encode(parked.to_json()), epoch=epoch)

    async def list(self) -> Sequence[ParkedJob]:
        found = []
        for path, stored in (await self._store.list(_PREFIX)).items():
            try:
                found.append(decode(path, stored.value, ParkedJob.from_json))
            except UnreadableRecordError as error:
                logger.error("a parked record is left out: %s", error)
        return found

    async def delete(self, job_id: JobID, *, epoch: Epoch) -> bool:
        """Forget what is parked of a job; False when there was nothing."""
        paths = await self._store.paths(f"{_PREFIX}/{job_id}")
        for path in paths:
            await self._store.delete(path, epoch=epoch)
        return bool(paths)
