"""Leader election by a lease row."""

from __future__ import annotations

import uuid
from functools import partial

from sqlalchemy import Connection

from firesteel.ha.lease import LeaseLostError, Sighting
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.sql.batch import Batch, Holder, Leadership
from firesteel.ha.sql.database import Database
from firesteel.ha.sql.store import Reader
from firesteel.ha.sql.tables import read_leadership
from firesteel.ha.sql.writer import GroupWriter
from firesteel.ha.witness import ProcessPlace


class SqlLease:
    """The row, as one contender reads and writes it. Writes are done in the order of the calls."""

    def __init__(
        self, contender: str, *, cluster_id: str, database: Database, reader: Reader, writer: GroupWriter
    ) -> None:
        self._cluster_id = cluster_id
        self._database = database
        self._reader = reader
        self._writer = writer
        self._holder = Holder(f"{contender}/{uuid.uuid4().hex}", "", 0, "")
        """The process is identified with the first look, in a thread."""

    async def look(self) -> Sighting[Leadership]:
        return await self._reader.read(self._look)

    def _look(self, connection: Connection) -> Sighting[Leadership]:
        if not self._holder.pid:
            self._holder = _holder_here(self._holder.name)
        row, over = self._database.look(connection, self._cluster_id)
        # A row that names us comes from a take-over of ours that we did not trust, or no longer do.
        free = over or row.holder in {"", self._holder.name} or holder_is_gone(row, self._holder.host)
        return Sighting(row, row.epoch, sign=(row.epoch, row.holder, row.renewals), free=free)

    async def take(self, seen: Sighting[Leadership]) -> Epoch | None:
        return await self._writer.submit(partial(Batch.take, holder=self._holder, seen=seen.found))

    async def renew(self, epoch: Epoch) -> None:
        if not await self._writer.submit(lambda batch: batch.renew(self._holder, epoch)):
            raise LeaseLostError("another contender took over")

    async def publish(self, epoch: Epoch, address: str) -> None:
        await self._writer.submit(lambda batch: batch.publish(self._holder, epoch, address))

    async def leader(self) -> LeaderInformation | None:
        row = await self._reader.read(lambda connection: read_leadership(connection, self._cluster_id))
        return LeaderInformation(row.epoch, row.address) if row.holder else None

    async def release(self) -> None:
        await self._writer.submit(lambda batch: batch.release(self._holder))


def _holder_here(name: str) -> Holder:
    here = ProcessPlace.here()
    return Holder(name, here.namespace, here.pid, here.started)


def holder_is_gone(row: Leadership, host: str) -> bool:
    """Whether the process that holds leadership ran on this host and has certainly ended. False in doubt."""
    return bool(row.holder) and ProcessPlace(row.host, row.pid, row.process_started).is_gone(host)
