"""Leader election by a lease, wherever that is written down: a row, a Lease of Kubernetes, a file.

A leader trusts its lease for two thirds of it, counted from the moment before its last renewal; others wait for all of it,
counted from the moment after they saw that renewal. So it has stopped before they begin, whatever their clocks show. Should it
be too slow to notice, fencing still refuses what it does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from firesteel.concurrency import RETRIES, retry
from firesteel.errors import StoreError
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.contender import IN_PASSING, Collecting, Contender
from firesteel.ha.protocols import Epoch, LeaderInformation

F = TypeVar("F")
logger = logging.getLogger(__name__)

TRUSTED = 2 / 3
"""Of the lease, by its holder."""
LOOK_SECONDS = 0.5
"""How often, at the least, a contender looks while the store is away; and while it is there, if nothing tells it of changes."""


class LeaseLostError(Exception):
    """The lease is another's, or will be; the text says why."""


@dataclass(frozen=True, slots=True)
class Sighting(Generic[F]):
    """A lease as it was seen just now."""

    found: F
    """As the backend has it; a take-over is of just this one."""
    epoch: Epoch
    """The newest that is known to have been granted."""
    sign: Hashable
    """Another one with each sign of life of its holder. It is compared with itself only: no two clocks are."""
    free: bool
    """It was given up, or it is known by other means than time that nobody acts as its holder any more."""
    seconds: float = 0.0
    """How long its holder wants to be waited for, if that is longer than the own lease."""


class LeaseBackend(Protocol[F]):
    """What writes the lease of one contender down. Only what is said of each method has to be seen to.

    Every method may raise StoreUnavailableError or StoreFailingError, and is tried again; any other error ends the election.
    """

    async def look(self) -> Sighting[F]:
        """Called only while the contender does not lead."""
        ...

    async def take(self, seen: Sighting[F]) -> Epoch | None:
        """A new epoch, above all that were granted before; None when the lease is not any more as it was seen."""
        ...

    async def renew(self, epoch: Epoch) -> None:
        """Raises LeaseLostError."""
        ...

    async def publish(self, epoch: Epoch, address: str) -> None:
        """Raises FencingError when `epoch` does not lead any more."""
        ...

    async def leader(self) -> LeaderInformation | None:
        """Who has the lease, and the address that was published."""
        ...

    async def release(self) -> None:
        """Give up whatever this contender has, also by a take-over that was not waited for. Raises StoreError, TimeoutError."""
        ...


class LeaseObserver:
    """Watches a lease with this contender's own clock.

    A holder that lives changes it; one whose lease stood still for all of its time, seen from here, has stopped acting by
    itself before that. A lease that is gone tells nothing: who held it may not have noticed yet, and is waited for as well.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._sign: Hashable = None
        self._since: float | None = None

    def may_take(self, seen: Sighting[F], now: float) -> bool:
        """Whether leadership is free, given the lease as it was seen just now."""
        if seen.free:
            return True
        if self._since is None or seen.sign != self._sign:
            self._sign, self._since = seen.sign, now
        return now - self._since >= max(self._lease, seen.seconds)


@dataclass(slots=True)
class LeaseTerm:
    epoch: Epoch
    renewed: float
    """When the last renewal that succeeded began."""


class LeaseElectionDriver(Contender[LeaseTerm], Generic[F]):
    """One contender. A store that keeps the time of leases itself may say sooner than others can that one is over.

    Args:
        look_every: How often, at the least, it looks at the lease, in seconds; changes may be told sooner.
        claim: Makes sure that no earlier leader can write any more, where that is not done by taking the lease. It is given
            the new epoch, and leadership is granted when it has returned. Raises LeaseLostError.
    """

    def __init__(
        self,
        contender: str,
        backend: LeaseBackend[F],
        *,
        lease_duration: float,
        changes: LeadershipChanges,
        look_every: float = LOOK_SECONDS,
        claim: Callable[[Epoch], Awaitable[None]] | None = None,
        collecting: Collecting | None = None,
    ) -> None:
        prepare = partial(self._claimed, claim) if claim is not None else None
        super().__init__(contender, changes, prepare=prepare, collecting=collecting)
        self._backend = backend
        self._lease = lease_duration
        self._look_every = min(lease_duration / 5, look_every)

    def _trusts(self, term: LeaseTerm) -> bool:
        return time.monotonic() < self._trusted_until(term)

    def _trusted_until(self, term: LeaseTerm) -> float:
        return term.renewed + self._lease * TRUSTED

    async def _contend(self) -> LeaseTerm:
        observer = LeaseObserver(self._lease)
        told = False
        while True:
            mark = self._changes.mark
            pause = self._look_every
            try:
                seen = await self._backend.look()
                told = False
                if observer.may_take(seen, time.monotonic()) and not self._resignation.stands_back(seen.epoch):
                    began = time.monotonic()
                    epoch = await self._backend.take(seen)
                    # Paused for long while taking it? Then it may be lost again already; contend for the next one.
                    if epoch is not None and self._trusts(term := LeaseTerm(epoch, began)):
                        return term
                    continue  # somebody was quicker
            except IN_PASSING as error:
                # Once: it looks again twice a second, and a store may be away for hours.
                level = logging.DEBUG if told else logging.WARNING
                logger.log(level, "contender '%s' tries again to look for the leader: %s", self._contender, error)
                told = True
                pause = min(pause, LOOK_SECONDS)
            await self._changes.after(mark, pause)

    async def _claimed(self, claim: Callable[[Epoch], Awaitable[None]], term: LeaseTerm) -> str | None:
        """Why it could not be, if so."""
        try:
            await retry(
                lambda: claim(term.epoch),
                RETRIES,
                on=IN_PASSING,
                what=f"claiming the state for leader {term.epoch}",
            )
        except LeaseLostError as error:
            return str(error)
        return None

    async def _keep(self, term: LeaseTerm) -> str:
        """Renew until leadership is lost."""
        due = term.renewed + self._lease / 3
        while True:
            until = self._trusted_until(term)
            await asyncio.sleep(min(due, until) - time.monotonic())
            began = time.monotonic()
            if began >= until:
                return f"its last renewal was {began - term.renewed:.2f} s ago, of a lease of {self._lease:g} s"
            try:
                async with asyncio.timeout(until - began):
                    await self._backend.renew(term.epoch)
            except LeaseLostError as error:
                return str(error)
            except (TimeoutError, *IN_PASSING) as error:
                logger.warning("contender '%s' could not renew its lease: %r", self._contender, error)
                due = time.monotonic() + self._lease / 20
                continue
            # Counted from its beginning: where a renewal takes long, the next one must not come late.
            term.renewed, due = began, began + self._lease / 3

    async def _publish(self, term: LeaseTerm, address: str) -> None:
        await self._backend.publish(term.epoch, address)

    async def _leader(self) -> LeaderInformation | None:
        return await self._backend.leader()

    async def _give_up(self) -> None:
        try:
            await self._backend.release()
        except (StoreError, TimeoutError) as error:
            logger.warning(
                "contender '%s' could not give up leadership; its lease will run out: %r", self._contender, error
            )
