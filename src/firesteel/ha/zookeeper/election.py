"""Leader election by a latch: ephemeral sequential nodes, of which the first one leads.

Each contender watches the one before it only, so that a leader which goes wakes one of them and not all. To lead, the first
one adds one to the epoch, in a transaction with a check that its own node is there still.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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

from firesteel.concurrency import Backoff, OwnedTasks
from firesteel.errors import FencingError, StoreBrokenError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.ha.resignation import Resignation
from firesteel.ha.rules import NEVER
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
"""Between two looks whether somebody has come in whose favour we stood back."""
COLLECT_FIRST_SECONDS = 60.0
"""Not at once: a new leader has other things to do."""
COLLECT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class _Latch:
    name: str
    path: str
    generation: int
    """Of the session that it lives and dies with."""


@dataclass(frozen=True, slots=True)
class _Leadership:
    epoch: Epoch
    latch: _Latch


class ZooKeeperLeaderElectionDriver:
    """One contender.

    A leader trusts its leadership until its session might be over (`Session.trusted_until`), which is before the ensemble
    ends it and with it the latch. A connection that comes back before that changes nothing; one that does not costs
    leadership at that moment, though the session may go on: then the contender goes to the end of the queue.
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
        self._contender = contender
        self._collect = collect
        self._session = session
        self._layout = layout
        self._acl = acl
        self._name = f"latch-{uuid.uuid4().hex}-"
        """How the names of all nodes of this contender begin, so that one whose making got no answer is found."""
        self._listener: LeaderListener | None = None
        self._leading: _Leadership | None = None
        """What the listener was granted last and not yet revoked."""
        self._wake = asyncio.Event()
        self._watcher = session.on_loop(self._wake.set)
        """Always the same one, which kazoo then keeps once for each node, however often it is watched."""
        self._resignation = Resignation()
        self._left = False
        self._changed = asyncio.Event()
        self._change_watcher: Callable[[Any], None] | None = None
        """Only for those who wait: who asks once leaves no watch behind."""
        self._tasks = OwnedTasks(f"election of {contender}", self._failed)

    async def start(self, listener: LeaderListener) -> None:
        if self._listener is not None:
            raise RuntimeError(f"contender '{self._contender}' has been started already")
        self._listener = listener
        self._session.add_listener(self._wake.set)
        self._tasks.start(self._contend_and_lead(listener), "contend")

    def holds(self, epoch: Epoch) -> bool:
        leading = self._leading
        return leading is not None and leading.epoch == epoch and self._in_time(leading.latch)

    @property
    def leads(self) -> bool:
        """Whether it is certain that this contender leads, by whichever epoch."""
        return self._leading is not None and self._in_time(self._leading.latch)

    async def publish(self, epoch: Epoch, address: str) -> None:
        doing = f"the address of contender '{self._contender}'"
        leading = self._leading
        if leading is None or leading.epoch != epoch:
            raise FencingError(f"{doing} was refused: it does not lead as {epoch}")
        answers = await self._session.request(
            Transaction(
                [
                    CheckVersion(self._layout.epoch, epoch),
                    CheckVersion(leading.latch.path, _ANY),
                    SetData(self._layout.leader, Published(epoch, address).encode(), _ANY),
                ]
            )
        )
        match first_error(answers):
            case None:
                return
            case (0 | 1, BadVersionError() | NoNodeError()):
                raise FencingError(f"{doing} was refused: it does not lead as {epoch} any more")
            case (_, error):
                raise self._broken(error)

    async def leader(self) -> LeaderInformation | None:
        layout, watcher = self._layout, self._change_watcher
        self._changed.clear()
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

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns once there may be another answer than `leader` last gave, at the latest after `timeout` seconds."""
        self._change_watcher = self._change_watcher or self._session.on_loop(self._changed.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        if self._leading is not None and self._leading.epoch == epoch:
            self._wake.set()
            await self._resignation.ask(epoch, patience)

    async def others_wait(self) -> bool:
        try:
            names = await self._session.read(Sync(self._layout.cluster), GetChildren(self._layout.election, None))
        except NoNodeError as error:
            raise self._broken(error) from error
        return any(not name.startswith(self._name) for name in names)

    async def close(self) -> None:
        self._leading = None
        await self._tasks.close()
        self._resignation.drop()
        self._session.remove_listener(self._wake.set)
        if self._listener is None or self._left:
            return
        self._left = True
        if self._session.closed:
            return  # and all its nodes are gone
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._leave()
        except (TimeoutError, StoreError) as error:
            logger.warning(
                "contender '%s' could not leave the election, and goes on trying: %r", self._contender, error
            )
            self._session.in_background(self._leave_at_last(), f"leaving of {self._contender}")

    async def _leave_at_last(self) -> None:
        """Else its node would be the first in the queue for as long as the session lives, and nobody would lead."""
        generation = self._session.generation
        for delay in _AGAIN.delays():
            await asyncio.sleep(delay)
            if generation != self._session.generation:
                return
            with contextlib.suppress(StoreUnavailableError):
                await self._leave()
                return

    # -- the life of a contender ------------------------------------------------------------------------------------

    async def _contend_and_lead(self, listener: LeaderListener) -> None:
        while True:
            leading = await self._contend()
            logger.info("contender '%s' leads as %d", self._contender, leading.epoch)
            self._leading = leading
            listener.on_grant(leading.epoch)
            collecting = self._tasks.start(self._keep_collecting(leading.epoch), "collect")
            why = await self._lead(leading.latch)
            collecting.cancel()
            logger.warning("contender '%s' does not lead as %d any more: %s", self._contender, leading.epoch, why)
            self._leading = None
            listener.on_revoke()
            if self._resignation.is_asked:
                await self._give_way()

    async def _give_way(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._leave()
        except (TimeoutError, StoreUnavailableError, StoreFailingError) as error:
            # It leaves again before it contends again, and nobody is kept waiting for longer than that.
            logger.warning("contender '%s' could not leave the queue yet: %r", self._contender, error)
        self._resignation.carried_out()

    def _failed(self, error: BaseException) -> None:
        """The loop above ended with an error that waiting will not mend."""
        assert self._listener is not None
        self._resignation.drop()
        if self._leading is not None:
            self._leading = None
            self._listener.on_revoke()
        self._listener.on_error(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def _keep_collecting(self, epoch: Epoch) -> None:
        """What crashes and refused writes left in the storage directory goes, now and then."""
        await asyncio.sleep(COLLECT_FIRST_SECONDS)
        while True:
            try:
                await self._collect(epoch)
            except StoreError as error:
                logger.warning("files that nothing points to were not collected: %s", error)
            await asyncio.sleep(COLLECT_SECONDS)

    def _in_time(self, latch: _Latch) -> bool:
        return latch.generation == self._session.generation and time.monotonic() < self._session.trusted_until

    async def _contend(self) -> _Leadership:
        """Wait for leadership."""
        delays = _AGAIN.delays()
        while True:
            try:
                while self._resignation.stands_back(NEVER) and not await self._others_came():  # noqa: ASYNC110 - of others
                    await asyncio.sleep(_STAND_BACK_SECONDS)
                latch = await self._enter()
                epoch = await self._wait_for_turn(latch)
                # Paused for long meanwhile? Then it may be lost again already; contend for the next one.
                if epoch is not None and self._in_time(latch):
                    return _Leadership(epoch, latch)
                delays = _AGAIN.delays()
            except (StoreUnavailableError, StoreFailingError) as error:
                logger.warning("contender '%s' tries again to contend: %s", self._contender, error)
                await asyncio.sleep(next(delays))

    async def _others_came(self) -> bool:
        """Whether somebody waits, who comes before us then, or has led since we gave way."""
        try:
            _, (_, stat) = await self._session.read_all(Sync(self._layout.cluster), GetData(self._layout.epoch, None))
        except NoNodeError as error:
            raise self._broken(error) from error
        return not self._resignation.stands_back(Epoch(stat.version)) or await self.others_wait()

    async def _enter(self) -> _Latch:
        """To the end of the queue."""
        await self._leave()
        about = {"contender": self._contender, "host": platform.node(), "pid": os.getpid()}
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
        """Delete the nodes of this contender, also such as it knows nothing of."""
        try:
            names = await self._session.read(Sync(self._layout.cluster), GetChildren(self._layout.election, None))
        except NoNodeError as error:
            raise self._broken(error) from error
        for name in names:
            if name.startswith(self._name):
                with contextlib.suppress(NoNodeError):
                    await self._session.request(Delete(f"{self._layout.election}/{name}", _ANY))

    async def _wait_for_turn(self, latch: _Latch) -> Epoch | None:
        """The new epoch, once the latch is the first; None when it is gone."""
        while True:
            self._wake.clear()
            queue = in_order(await self._session.read(GetChildren(self._layout.election, None)))
            if latch.name not in queue:
                return None
            place = queue.index(latch.name)
            if place == 0:
                if (epoch := await self._take(latch)) is not None:
                    return epoch
            elif await self._watch(f"{self._layout.election}/{queue[place - 1]}"):
                await self._wake.wait()

    async def _watch(self, node: str) -> bool:
        """Be woken when a node changes or goes; False when it is gone already."""
        try:
            await self._session.read(GetData(node, self._watcher))
        except NoNodeError:  # other than for a node that is asked whether it exists, this leaves no watch behind
            return False
        return True

    async def _take(self, latch: _Latch) -> Epoch | None:
        """One more epoch; None when somebody else took it, or the latch is gone."""
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

    async def _lead(self, latch: _Latch) -> str:
        """Until leadership is lost, or in doubt; returns why."""
        while True:
            if latch.generation != self._session.generation:
                return "its session expired"
            if self._resignation.is_asked:
                return "it was asked to give it up"
            left = self._session.trusted_until - time.monotonic()
            if left <= 0:
                return f"it heard nothing of {self._session.where} for two thirds of its session timeout"
            self._wake.clear()
            try:
                async with asyncio.timeout(left):
                    # Without a connection there is no watch; when it is back, or breaks, we are woken.
                    if self._session.connected and not await self._watch(latch.path):
                        return "its node in the election is gone"
                    await self._wake.wait()
            except TimeoutError:
                pass
            except StoreUnavailableError as error:
                logger.warning("contender '%s' is in doubt whether it leads: %s", self._contender, error)
                await asyncio.sleep(min(left, 0.05))

    def _broken(self, error: BaseException) -> StoreError:
        if isinstance(error, NoNodeError):
            return StoreBrokenError(
                f"{self._session.where}: nodes of {self._layout.cluster} were deleted; stop every node of the cluster, "
                "restore them or delete all of it, and start again"
            )
        return translated(error, self._session.where)
