"""Leader election by a Lease."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from firesteel.concurrency import RETRIES, OwnedTasks, retry
from firesteel.errors import FencingError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.kubernetes.follower import LeaseFollower
from firesteel.ha.kubernetes.lease import LeaseObserver, LeaseRecord, published, renewed
from firesteel.ha.kubernetes.leases import Leases
from firesteel.ha.kubernetes.shard import ClaimRefusedError
from firesteel.ha.kubernetes.store import KubernetesStateStore
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.ha.resignation import Resignation
from firesteel.ha.rules import NEVER

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often, at the least, a contender looks at the Lease; changes are told sooner by the watch."""
COLLECT_SECONDS = 600.0
_IN_PASSING = (StoreUnavailableError, StoreFailingError)


class KubernetesLeaderElectionDriver:
    """One contender.

    A leader trusts its lease for two thirds of it, counted from the moment before its last renewal; others wait for all of
    it, counted from the moment after they saw that renewal. So it has stopped before they begin, whatever their clocks
    show. Should it be too slow to notice, fencing still refuses what it does.

    Who has the Lease does not lead yet: it claims the shards of the state first, and is granted leadership when no earlier
    leader can write any more. The lease is renewed meanwhile.
    """

    def __init__(
        self,
        contender: str,
        *,
        leases: Leases,
        follower: LeaseFollower,
        state: KubernetesStateStore,
        lease_duration: float,
    ) -> None:
        self._contender = contender
        self._leases = leases
        self._follower = follower
        self._state = state
        self._lease = lease_duration
        self._trusted = lease_duration * 2 / 3
        self._identity = f"{contender}/{uuid.uuid4().hex}"
        self._listener: LeaderListener | None = None
        self._leading: Epoch | None = None
        """What the listener was granted last and not yet revoked."""
        self._held: LeaseRecord | None = None
        """The Lease since we have it, as it was after our last change."""
        self._changing = asyncio.Lock()
        """Renewals and addresses take turns."""
        self._renewed = 0.0
        """When the last renewal that succeeded began."""
        self._newest = NEVER
        """The newest epoch that we have been told of; the next one of ours is above it."""
        self._given_up = NEVER
        """The last epoch of ours, which we do not act as any more."""
        self._changed = asyncio.Event()
        """Something about leadership may have changed: look."""
        self._lost: asyncio.Future[str] | None = None
        """Why the epoch that we have is over, once the watch or the store has said so."""
        self._taking: asyncio.Future[LeaseRecord | None] | None = None
        self._asked = 0
        """What the follower had seen when we last asked who leads."""
        self._resignation = Resignation()
        self._left = False
        self._tasks = OwnedTasks(f"election of {contender}", self._failed)

    async def start(self, listener: LeaderListener) -> None:
        if self._listener is not None:
            raise RuntimeError(f"contender '{self._contender}' has been started already")
        self._listener = listener
        self._tasks.start(self._contend_and_lead(listener), "contend")
        self._follower.subscribe(self._seen)

    def holds(self, epoch: Epoch) -> bool:
        return epoch == self._leading and time.monotonic() < self._renewed + self._trusted

    async def publish(self, epoch: Epoch, address: str) -> None:
        if epoch != self._leading or not await self._change(epoch, partial(published, address=address)):
            raise FencingError(f"the address of contender '{self._contender}' was refused: it does not lead as {epoch}")

    async def leader(self) -> LeaderInformation | None:
        self._asked = self._follower.changes
        found = await self._leases.read()
        return LeaderInformation(found.epoch, found.address) if found is not None and found.holder else None

    async def wait_for_change(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns once there may be another answer than `leader` last gave, at the latest after `timeout` seconds."""
        await self._follower.wait_for_change(self._asked, timeout)

    def fenced(self, epoch: Epoch) -> None:
        """A write of this epoch was refused, so it is worth nothing any more, whatever the Lease says."""
        if self._held is not None and self._held.epoch == epoch:
            self._lose("the state is of another leader")

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        if epoch == self._leading:
            await self._resignation.ask(epoch, patience)

    async def close(self) -> None:
        self._follower.unsubscribe(self._seen)
        await self._tasks.close()
        self._resignation.drop()
        self._leading = None
        if self._listener is None or self._left:
            return
        self._left = True
        # Whatever we believe: a take-over whose answer we did not wait for may have succeeded, or be about to.
        if self._taking is not None:
            await asyncio.wait([self._taking])
        await self._release()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self._lease):
                await self._leases.release(self._identity)
        except (StoreError, TimeoutError) as error:
            logger.warning(
                "contender '%s' could not give up leadership; its lease will run out: %r", self._contender, error
            )

    # Told by others.

    def _seen(self, record: LeaseRecord, gone: bool) -> None:
        self._newest = max(self._newest, record.epoch)
        if self._held is not None:
            mine = self._held.epoch
            if record.epoch > mine:
                self._lose("another contender took over")
            elif gone and record.epoch == mine:
                self._lose("its Lease was deleted")
        else:
            self._changed.set()

    def _lose(self, why: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(why)

    def _failed(self, error: BaseException) -> None:
        """One of the loops ended with an error that waiting will not mend."""
        assert self._listener is not None
        self._resignation.drop()
        if self._leading is not None:
            self._leading = None
            self._listener.on_revoke()
        self._listener.on_error(error if isinstance(error, Exception) else RuntimeError(str(error)))

    # Contending.

    async def _contend_and_lead(self, listener: LeaderListener) -> None:
        while True:
            self._held = held = await self._contend()
            try:
                why = await self._lead(listener)
            finally:
                self._held = self._lost = None
            logger.warning("contender '%s' does not lead as %d any more: %s", self._contender, held.epoch, why)
            if self._leading is not None:
                self._leading = None
                listener.on_revoke()
            self._given_up = held.epoch
            if self._resignation.is_asked:
                await self._release()
                self._resignation.carried_out()

    async def _contend(self) -> LeaseRecord:
        """Wait for the Lease."""
        observer = LeaseObserver(self._lease)
        while True:
            self._changed.clear()
            pause = min(self._lease / 5, LOOK_SECONDS)
            try:
                found = await self._leases.read()
                now = time.monotonic()
                free = observer.may_take(found, now, vacant=await self._is_vacant(found))
                if free and not self._resignation.stands_back(found.epoch if found else self._newest):
                    if (held := await self._take(found)) is not None:
                        return held
                    continue  # somebody else was quicker
            except _IN_PASSING as error:
                logger.warning("contender '%s' tries again to look for the leader: %s", self._contender, error)
                pause = min(pause, LOOK_SECONDS / 4)
            await _wait(self._changed, pause)

    async def _is_vacant(self, found: LeaseRecord | None) -> bool:
        if found is not None:
            # A Lease that names us is a take-over of ours that we did not trust, or lost faith in.
            return found.holder == self._identity
        # No Lease: either nobody has led yet, or somebody deleted it, and who led may not know. Unless that was us.
        newest = await self._state.newest_epoch()
        return newest in {NEVER, self._given_up}

    async def _take(self, found: LeaseRecord | None) -> LeaseRecord | None:
        # The Lease may have been deleted, and with it its epoch; the state knows it too.
        newest = max(self._newest, found.epoch if found else NEVER, await self._state.newest_epoch())
        epoch = Epoch(newest + 1)
        began = time.monotonic()
        # Not to be cancelled: `close` has to know whether there is something to give up.
        self._taking = asyncio.ensure_future(
            self._leases.take(found, holder=self._identity, epoch=epoch, lease=self._lease)
        )
        held = await asyncio.shield(self._taking)
        # Paused for long while taking it? Then it may be lost again already; contend for the next one.
        if held is None or time.monotonic() >= began + self._trusted:
            return None
        self._renewed = began
        return held

    # Leading.

    async def _lead(self, listener: LeaderListener) -> str:
        """Everything that a leader does, until it leads no more; returns why."""
        assert self._held is not None
        epoch = self._held.epoch
        self._lost = asyncio.get_running_loop().create_future()
        doing: list[asyncio.Future[str]] = [
            self._lost,
            asyncio.ensure_future(self._renew(epoch)),
            asyncio.ensure_future(self._claim_and_serve(epoch, listener)),
            asyncio.ensure_future(self._resignation.asked()),
        ]
        try:
            done, _ = await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)
            return next(one for one in doing if one in done).result()
        finally:
            for one in doing:
                one.cancel()
            await asyncio.wait(doing)

    async def _renew(self, epoch: Epoch) -> str:
        pause = self._lease / 3
        while True:
            until = self._renewed + self._trusted
            await asyncio.sleep(min(pause, until - time.monotonic()))
            began = time.monotonic()
            if began >= until:
                return f"its last renewal was {began - self._renewed:.2f} s ago, of a lease of {self._lease:g} s"
            try:
                async with asyncio.timeout(until - began):
                    still_held = await self._change(epoch, renewed)
            except (TimeoutError, *_IN_PASSING) as error:
                logger.warning("contender '%s' could not renew its lease: %r", self._contender, error)
                pause = self._lease / 20
                continue
            if not still_held:
                return "another contender took over, or its Lease was deleted"
            self._renewed, pause = began, self._lease / 3

    async def _claim_and_serve(self, epoch: Epoch, listener: LeaderListener) -> str:
        try:
            await retry(
                lambda: self._state.claim(epoch, self._identity),
                RETRIES,
                on=_IN_PASSING,
                what=f"claiming the state for leader {epoch}",
            )
        except ClaimRefusedError as error:
            self._newest = max(self._newest, error.newest)
            return str(error)
        assert self._lost is not None
        if self._lost.done():
            return self._lost.result()
        if time.monotonic() >= self._renewed + self._trusted:
            return "claiming the state took longer than its lease"
        logger.info("contender '%s' leads as %d", self._contender, epoch)
        self._leading = epoch
        listener.on_grant(epoch)
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            try:
                await self._state.collect(epoch)
            except StoreError as error:
                logger.warning("files of large values could not be collected: %s", error)

    async def _change(self, epoch: Epoch, change: Callable[[LeaseRecord], dict[str, Any]]) -> bool:
        """Whether it was done; if not, we do not have the Lease any more."""
        async with self._changing:
            held = self._held
            if held is None or held.epoch != epoch:
                return False
            now = await self._leases.change(held, change)
            if now is None:
                self._lose("another contender took over, or its Lease was deleted")
                return False
            if self._held is held:
                self._held = now
            return True


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event, but no longer."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
