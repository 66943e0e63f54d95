"""Leader election by a lease row."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from functools import partial

from sqlalchemy import Connection

from firesteel.concurrency import OwnedTasks
from firesteel.errors import FencingError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.ha.resignation import Resignation
from firesteel.ha.sql.batch import Batch, Holder, Leadership
from firesteel.ha.sql.changes import LeadershipChanges
from firesteel.ha.sql.database import Database
from firesteel.ha.sql.lease import LeaseWatch, holder_is_gone, this_host
from firesteel.ha.sql.store import Reader
from firesteel.ha.sql.tables import read_leadership
from firesteel.ha.sql.writer import GroupWriter
from firesteel.processes import ProcessIdentity

logger = logging.getLogger(__name__)

_IN_PASSING = (StoreUnavailableError, StoreFailingError)
"""A disk that is full or fails costs a leader its lease, not its life: it contends again, and leads when it is well."""


class SqlLeaderElectionDriver:
    """One contender.

    A leader trusts its lease for two thirds of it, counted from the moment before its last renewal; others wait for all of
    it, counted from the moment after they saw that renewal. So it has stopped before they begin, whatever their clocks
    show. Should it be too slow to notice, fencing still refuses what it does. A database that keeps the time of leases
    itself may say sooner that one is over.
    """

    def __init__(
        self,
        contender: str,
        *,
        cluster_id: str,
        lease_duration: float,
        database: Database,
        changes: LeadershipChanges,
        reader: Reader,
        writer: GroupWriter,
    ) -> None:
        self._contender = contender
        self._cluster_id = cluster_id
        self._lease = lease_duration
        self._trusted = lease_duration * 2 / 3
        self._database = database
        self._changes = changes
        self._asked = 0
        """The mark of the changes when `leader` was asked last."""
        self._reader = reader
        self._writer = writer
        self._holder = Holder(f"{contender}/{uuid.uuid4().hex}", "", 0, "")
        self._listener: LeaderListener | None = None
        self._leading: Epoch | None = None
        """What the listener was granted last and not yet revoked."""
        self._renewed = 0.0
        """When the last renewal that succeeded began."""
        self._resignation = Resignation()
        self._left = False
        self._tasks = OwnedTasks(f"election of {contender}", self._failed)

    async def start(self, listener: LeaderListener) -> None:
        if self._listener is not None:
            raise RuntimeError(f"contender '{self._contender}' has been started already")
        self._listener = listener
        self._holder = await asyncio.to_thread(_holder_here, self._holder.name)
        self._tasks.start(self._contend_and_lead(listener), "contend")

    def holds(self, epoch: Epoch) -> bool:
        return epoch == self._leading and time.monotonic() < self._renewed + self._trusted

    async def publish(self, epoch: Epoch, address: str) -> None:
        if epoch != self._leading:
            raise FencingError(f"the address of contender '{self._contender}' was refused: it does not lead as {epoch}")
        await self._writer.submit(lambda batch: batch.publish(self._holder, epoch, address))

    async def leader(self) -> LeaderInformation | None:
        self._asked = self._changes.mark
        row = await self._reader.read(lambda connection: read_leadership(connection, self._cluster_id))
        return LeaderInformation(row.epoch, row.address) if row.holder else None

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns once there may be another answer than `leader` last gave, at the latest after `timeout` seconds."""
        await self._changes.after(self._asked, timeout)

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        if epoch == self._leading:
            await self._resignation.ask(epoch, patience)

    async def close(self) -> None:
        await self._tasks.close()
        self._leading = None
        self._resignation.drop()
        if self._listener is None or self._left:
            return
        self._left = True
        # Whatever we believe: a take-over whose answer we did not wait for may have succeeded.
        await self._release()

    async def _release(self) -> None:
        try:
            await self._writer.submit(lambda batch: batch.release(self._holder))
        except StoreError as error:
            logger.warning(
                "contender '%s' could not give up leadership; its lease will run out: %s", self._contender, error
            )

    async def _contend_and_lead(self, listener: LeaderListener) -> None:
        while True:
            epoch = await self._contend()
            logger.info("contender '%s' leads as %d", self._contender, epoch)
            self._leading = epoch
            listener.on_grant(epoch)
            why = await self._lead(epoch)
            logger.warning("contender '%s' does not lead as %d any more: %s", self._contender, epoch, why)
            self._leading = None
            listener.on_revoke()
            if self._resignation.is_asked:
                await self._release()
                self._resignation.carried_out()

    def _failed(self, error: BaseException) -> None:
        """The loop above ended with an error that waiting will not mend."""
        assert self._listener is not None
        self._resignation.drop()
        if self._leading is not None:
            self._leading = None
            self._listener.on_revoke()
        self._listener.on_error(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def _contend(self) -> Epoch:
        """Wait for leadership."""
        watch = LeaseWatch(self._lease)
        told = False
        while True:
            mark = self._changes.mark
            try:
                row, gone = await self._reader.read(self._look)
                free = watch.may_take(row, time.monotonic(), holder_gone=gone)
                if free and not self._resignation.stands_back(row.epoch):
                    began = time.monotonic()
                    taken = await self._writer.submit(partial(Batch.take, holder=self._holder, seen=row))
                    # Paused for long while taking it? Then it may be lost again already; contend for the next one.
                    if taken is not None and time.monotonic() < began + self._trusted:
                        self._renewed = began
                        return taken
                told = False
            except _IN_PASSING as error:
                # Once: it looks again twice a second, and a store may be away for hours.
                level = logging.DEBUG if told else logging.WARNING
                logger.log(level, "contender '%s' tries again to look for the leader: %s", self._contender, error)
                told = True
            await self._changes.after(mark, min(self._lease / 5, 0.5))

    def _look(self, connection: Connection) -> tuple[Leadership, bool]:
        row, over = self._database.look(connection, self._cluster_id)
        # A row that names us is a take-over of ours that we did not trust, or lost faith in.
        return row, over or row.holder == self._holder.name or holder_is_gone(row, self._holder.host)

    async def _lead(self, epoch: Epoch) -> str:
        """Renew until leadership is lost; returns why it was."""
        due = self._renewed + self._lease / 3
        while True:
            until = self._renewed + self._trusted
            if await self._resignation.asked_before(min(due, until)):
                return "it was asked to give it up"
            began = time.monotonic()
            if began >= until:
                return f"its last renewal was {began - self._renewed:.2f} s ago, of a lease of {self._lease:g} s"
            try:
                async with asyncio.timeout(until - began):
                    renewed = await self._writer.submit(lambda batch: batch.renew(self._holder, epoch))
            except (TimeoutError, *_IN_PASSING) as error:
                logger.warning("contender '%s' could not renew its lease: %r", self._contender, error)
                due = time.monotonic() + self._lease / 20
                continue
            if not renewed:
                return "another contender took over"
            # Counted from its beginning: where a renewal takes long, the next one must not come late.
            self._renewed, due = began, began + self._lease / 3


def _holder_here(name: str) -> Holder:
    me = ProcessIdentity.of(os.getpid())
    return Holder(name, this_host() if me else "", me.pid if me else 0, me.started if me else "")
