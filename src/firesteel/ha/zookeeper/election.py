"""Leader election by a latch: ephemeral sequential nodes, of which the first one leads.

Each contender only watches the one before it, so that the end of a leader wakes one of them and not all. To lead, the first
one increments the epoch, in a transaction with a check that its own node still exists.

The ensemble considers a leader dead when its session has expired. A contender on the same host knows earlier that its
process has ended. It then deletes the node of the dead leader, and the next in the queue leads at once. Writes of the dead
leader that are still on their way are refused, since each write checks the epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import platform
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    CheckVersion,
    Create,
    Delete,
    GetChildren,
    GetData,
    SetData,
    Sync,
    Transaction,
)

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.contender import IN_PASSING, Collecting, Contender
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.ha.rules import NEVER
from firesteel.ha.witness import Neighbours, ProcessPlace
from firesteel.ha.zookeeper.errors import translated
from firesteel.ha.zookeeper.layout import EpochHolder, Layout, Published, in_order
from firesteel.ha.zookeeper.session import Session
from firesteel.ha.zookeeper.writer import first_error

logger = logging.getLogger(__name__)

_EPHEMERAL_SEQUENTIAL = 3
_ANY = -1
_AGAIN = Backoff(0.05, 2.0)
_LEAVE_SECONDS = 3.0
_STAND_BACK_SECONDS = 0.1
"""Seconds between two checks whether another contender has come after we resigned."""
COLLECT_FIRST_SECONDS = 60.0
"""Seconds until the first collection: a new leader has other things to do."""
COLLECT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class _Latch:
    name: str
    path: str
    generation: int
    """The generation of the session that the node belongs to."""


@dataclass(frozen=True, slots=True)
class LatchTerm:
    epoch: Epoch
    latch: _Latch


class ZooKeeperLeaderElectionDriver(Contender[LatchTerm]):
    """One contender.

    A leader trusts its leadership until its session might have expired (`Session.trusted_until`), which is before the
    ensemble ends the session and with it the latch. If the connection comes back before that, nothing changes. Otherwise
    leadership is lost at that moment even if the session continues, and the contender goes to the end of the queue.
    """

    def __init__(
        self,
        contender: str,
        *,
        session: Session,
        layout: Layout,
        acl: list[Any],
        collect: Callable[[Epoch], Awaitable[int]],
    ) -> None:
        collecting = Collecting(collect, first=COLLECT_FIRST_SECONDS, every=COLLECT_SECONDS)
        super().__init__(contender, LeadershipChanges(), collecting=collecting)
        self._session = session
        self._layout = layout
        self._acl = acl
        self._name = f"latch-{uuid.uuid4().hex}-"
        """The prefix of the names of this contender's nodes, by which a node is found whose creation got no answer."""
        self._latches = LeadershipChanges()
        """Wakes on changes of our own node, the one before it, the connection, and processes of this host before us."""
        self._here: ProcessPlace | None = None
        # Always the same objects, so that kazoo keeps each once for a node, however often it is watched.
        self._latch_watcher = session.on_loop(self._latches.tell)
        self._leader_watcher = session.on_loop(self._changes.tell)

    async def start(self, listener: LeaderListener) -> None:
        await super().start(listener)
        self._session.add_listener(self._latches.tell)

    @property
    def leads(self) -> bool:
        """Whether it is certain that this contender leads, with any epoch."""
        return self._leading is not None and self._trusts(self._leading)

    async def _publish(self, term: LatchTerm, address: str) -> None:
        answers = await self._session.request(
            Transaction(
                [
                    CheckVersion(self._layout.epoch, term.epoch),
                    CheckVersion(term.latch.path, _ANY),
                    SetData(self._layout.leader, Published(term.epoch, address).encode(), _ANY),
                ]
            )
        )
        match first_error(answers):
            case None:
                return
            case (0 | 1, BadVersionError() | NoNodeError()):
                raise FencingError(
                    f"the address of contender '{self._contender}' was refused: it no longer leads as epoch {term.epoch}"
                )
            case (_, error):
                raise self._broken(error)

    async def _leader(self) -> LeaderInformation | None:
        layout = self._layout
        # Only for callers that wait: a single query leaves no watch behind.
        watcher = self._leader_watcher if self._changes.started else None
        try:
            _, epoch, leader, latches = await self._session.read_all(
                Sync(layout.cluster),
                GetData(layout.epoch, watcher),
                GetData(layout.leader, watcher),
                GetChildren(layout.election, None),
            )
        except NoNodeError as error:
            raise self._broken(error) from error
        if EpochHolder.decode(epoch[0]).latch not in latches:
            return None
        published = Published.decode(leader[0])
        newest = Epoch(epoch[1].version)
        return LeaderInformation(newest, published.address if published.epoch == newest else "")

    async def others_wait(self) -> bool:
        try:
            names = await self._session.read(Sync(self._layout.cluster), GetChildren(self._layout.election, None))
        except NoNodeError as error:
            raise self._broken(error) from error
        return any(not name.startswith(self._name) for name in names)

    async def _depart(self) -> None:
        self._session.remove_listener(self._latches.tell)
        if self._session.closed:
            return  # and all its nodes are gone
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._leave()
        except (TimeoutError, StoreError) as error:
            logger.warning("contender '%s' could not leave the election and keeps trying: %r", self._contender, error)
            self._session.in_background(self._leave_at_last(), f"leaving of {self._contender}")

    async def _leave_at_last(self) -> None:
        """Delete the node eventually: otherwise it would stay first in the queue with the session, and nobody would lead."""
        generation = self._session.generation
        for delay in _AGAIN.delays():
            await asyncio.sleep(delay)
            if generation != self._session.generation:
                return
            with contextlib.suppress(StoreUnavailableError):
                await self._leave()
                return

    async def _give_up(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._leave()
        except (TimeoutError, *IN_PASSING) as error:
            # It tries to leave once more before it contends again, so others wait no longer than that.
            logger.warning("contender '%s' could not leave the queue yet: %r", self._contender, error)

    # -- the queue ----------------------------------------------------------------------------------------------------

    def _trusts(self, term: LatchTerm) -> bool:
        return term.latch.generation == self._session.generation and time.monotonic() < self._session.trusted_until

    async def _contend(self) -> LatchTerm:
        delays = _AGAIN.delays()
        while True:
            try:
                while self._resignation.stands_back(NEVER) and not await self._others_came():  # noqa: ASYNC110 - of others
                    await asyncio.sleep(_STAND_BACK_SECONDS)
                latch = await self._enter()
                epoch = await self._wait_for_turn(latch)
                # After a long pause it may be lost already; contend for the next one.
                if epoch is not None and self._trusts(term := LatchTerm(epoch, latch)):
                    return term
                delays = _AGAIN.delays()
            except IN_PASSING as error:
                logger.warning("contender '%s' cannot contend and keeps trying: %s", self._contender, error)
                await asyncio.sleep(next(delays))

    async def _others_came(self) -> bool:
        """Whether another contender waits, who is before us then, or has led since we resigned."""
        try:
            _, (_, stat) = await self._session.read_all(Sync(self._layout.cluster), GetData(self._layout.epoch, None))
        except NoNodeError as error:
            raise self._broken(error) from error
        return not self._resignation.stands_back(Epoch(stat.version)) or await self.others_wait()

    async def _enter(self) -> _Latch:
        """Join the end of the queue."""
        await self._leave()
        if self._here is None:
            self._here = await asyncio.to_thread(ProcessPlace.here)
        about = {"contender": self._contender, "host": platform.node(), **asdict(self._here)}
        generation = self._session.generation
        node = Create(
            f"{self._layout.election}/{self._name}", json.dumps(about).encode(), self._acl, _EPHEMERAL_SEQUENTIAL
        )
        try:
            path: str = await self._session.request(node)
        except NoNodeError as error:
            raise self._broken(error) from error
        return _Latch(path.rpartition("/")[2], path, generation)

    async def _leave(self) -> None:
        """Delete the nodes of this contender, including ones that it does not know of."""
        try:
            names = await self._session.read(Sync(self._layout.cluster), GetChildren(self._layout.election, None))
        except NoNodeError as error:
            raise self._broken(error) from error
        for name in names:
            if name.startswith(self._name):
                with contextlib.suppress(NoNodeError):
                    await self._session.request(Delete(f"{self._layout.election}/{name}", _ANY))

    async def _wait_for_turn(self, latch: _Latch) -> Epoch | None:
        """Wait until the latch is first, and return the new epoch; None when the latch is gone."""
        async with Neighbours(self._latches.tell) as neighbours:
            while True:
                mark = self._latches.mark
                queue = in_order(await self._session.read(GetChildren(self._layout.election, None)))
                if latch.name not in queue:
                    return None
                place = queue.index(latch.name)
                if place == 0:
                    if (epoch := await self._take(latch)) is not None:
                        return epoch
                elif not await self._bury(queue[:place], neighbours) and await self._watch(
                    f"{self._layout.election}/{queue[place - 1]}"
                ):
                    await self._latches.after(mark)

    async def _bury(self, names: Sequence[str], neighbours: Neighbours) -> bool:
        """Delete the nodes among `names` whose processes ran on this host and have ended; True if there were any.

        The other processes of this host are watched from now on.
        """
        assert self._here is not None
        buried = False
        for name in names:
            node = f"{self._layout.election}/{name}"
            try:
                if name not in neighbours:
                    data, _ = await self._session.read(GetData(node, None))
                    neighbours.meet(name, _place_in(data), self._here.namespace)
                if (gone := neighbours.gone(name)) is not None:
                    await self._session.request(Delete(node, _ANY))
                    logger.info("process %d, which was ahead of contender '%s', has ended", gone.pid, self._contender)
                    buried = True
            except NoNodeError:
                buried = True  # it has just left, or another process of this host was faster
        return buried

    async def _watch(self, node: str) -> bool:
        """Watch a node for changes and deletion; False when it is already gone."""
        try:
            await self._session.read(GetData(node, self._latch_watcher))
        except NoNodeError:  # unlike `exists`, this leaves no watch behind
            return False
        return True

    async def _take(self, latch: _Latch) -> Epoch | None:
        """Increment the epoch; None when another contender did, or the latch is gone."""
        try:
            _, stat = await self._session.read(Sync(self._layout.cluster), GetData(self._layout.epoch, None))
        except NoNodeError as gone:
            raise self._broken(gone) from gone
        answers = await self._session.request(
            Transaction(
                [
                    CheckVersion(latch.path, _ANY),
                    SetData(self._layout.epoch, EpochHolder(latch.name, self._contender).encode(), stat.version),
                ]
            )
        )
        match first_error(answers):
            case None:
                return Epoch(answers[1].version)
            case (_, BadVersionError() | NoNodeError()):
                return None
            case (_, error):
                raise self._broken(error)

    async def _keep(self, term: LatchTerm) -> str:
        latch = term.latch
        while True:
            if latch.generation != self._session.generation:
                return "its session expired"
            left = self._session.trusted_until - time.monotonic()
            if left <= 0:
                return f"it heard nothing from {self._session.where} for two thirds of its session timeout"
            mark = self._latches.mark
            try:
                async with asyncio.timeout(left):
                    # Without a connection there is no watch; we wake up when it is back or breaks.
                    if self._session.connected and not await self._watch(latch.path):
                        return "its node in the election is gone"
                    await self._latches.after(mark)
            except TimeoutError:
                pass
            except StoreUnavailableError as error:
                logger.warning("contender '%s' is not certain that it still leads: %s", self._contender, error)
                await asyncio.sleep(min(left, 0.05))

    def _broken(self, error: BaseException) -> StoreError:
        if isinstance(error, NoNodeError):
            return StoreBrokenError(
                f"{self._session.where}: znodes of {self._layout.cluster} were deleted; stop all nodes of the cluster, "
                "restore the znodes or delete all of them, and start again"
            )
        return translated(error, self._session.where)


def _place_in(data: bytes) -> ProcessPlace | None:
    """The process that made a node, if the node says so; nodes of earlier versions do not."""
    try:
        about = json.loads(data)
        return ProcessPlace(str(about["namespace"]), int(about["pid"]), str(about["started"]))
    except (ValueError, TypeError, KeyError):
        return None
