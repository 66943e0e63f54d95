"""JobGraphStore: the jobs that were accepted and have not ended. A stored job survives every crash (I1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pydantic import ValidationError

from firesteel.ha.protocols import NEW, Epoch, StateStore
from firesteel.jobgraph.model import JobGraph
from firesteel.records import from_json
from firesteel.types import JobID

from .codec import decode, decode_all, encode, take_job_id

_PREFIX = "graphs"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it was accepted."""

    job_id: JobID
    graph: JobGraph
    submitted_at: float
    digest: str
    """See `jobgraph.admission.digest_of`."""
    priority: int = 0
    initial_client_heartbeat_timeout: float | None = None
    """If set, the job is cancelled when its client has been silent for so long."""
    owner: str = ""
    """The principal that owns the job, which decides who may see and end it. It is not part of the digest."""
    restricted: bool = False
    """True if the submitter is not an admin: queries and functions of the job are restricted (S39)."""
    resumes: str = ""
    """The id of the ended job that this job resumes; empty if it resumes none."""

    def to_bytes(self) -> bytes:
        """The stored record, with the graph as it was written for its digest."""
        record = encode({name: getattr(self, name) for name in _HEADER})
        return b'%b,"graph":%b}' % (record.removesuffix(b"}"), self.graph.canonical)

    @staticmethod
    def from_bytes(path: str, raw: bytes) -> Submission:
        """Read what `to_bytes` wrote. Raises UnreadableRecordError."""

        def build(data: Mapping[str, Any]) -> Submission:
            take_job_id(data, path)
            return from_json(data, Submission, other=_graph)

        return decode(path, raw, build)


_HEADER = tuple(f.name for f in fields(Submission) if f.name != "graph")
"""Fields that are written to JSON as they are."""


def _graph(_kind: type[JobGraph], data: object) -> JobGraph:
    try:
        return JobGraph.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in ("graph", *first["loc"]))
        raise ValueError(f"{where}: {first['msg']} ({error.error_count()} problems)") from None


class JobGraphStore:
    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def put(self, submission: Submission, *, epoch: Epoch) -> None:
        """Store an accepted job. Raises VersionConflictError when the id is taken; compare the digests then.

        After a StoreUnavailableError the job may be stored or not: `get` tells.
        """
        raw = await asyncio.to_thread(submission.to_bytes)
        await self._store.put(_path(submission.job_id), raw, epoch=epoch, expected=NEW)

    async def get(self, job_id: JobID) -> Submission | None:
        """Raises UnreadableRecordError."""
        stored = await self._store.get(_path(job_id))
        return None if stored is None else await asyncio.to_thread(Submission.from_bytes, _path(job_id), stored.value)

    async def raw(self, job_id: JobID) -> bytes | None:
        """The stored bytes, readable or not."""
        stored = await self._store.get(_path(job_id))
        return None if stored is None else stored.value

    async def job_ids(self) -> list[JobID]:
        return [JobID(path.rpartition("/")[2]) for path in await self._store.paths(_PREFIX)]

    async def recover(self) -> tuple[list[Submission], dict[JobID, str]]:
        """All jobs in the order in which they were accepted, and the reasons why others are unreadable."""
        good, bad = await decode_all(await self._store.list(_PREFIX), Submission.from_bytes)
        return sorted(good.values(), key=lambda s: (s.submitted_at, s.job_id)), bad

    async def delete(self, job_id: JobID, *, epoch: Epoch) -> bool:
        """False when there was no such job."""
        return await self._store.delete(_path(job_id), epoch=epoch)


def _path(job_id: JobID) -> str:
    return f"{_PREFIX}/{job_id}"
