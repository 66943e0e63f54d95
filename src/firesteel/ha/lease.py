"""Leader election by a lease, wherever it is stored: in a row, a Lease of Kubernetes or a file.

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
"""The part of the lease for which its holder trusts it."""
LOOK_SECONDS = 0.5
"""The longest time between two looks at the lease while the store is unavailable, or reports no changes."""


class LeaseLostError(Exception):
    """Another contender has the lease, or will have it; the text says why."""


@dataclass(frozen=True, slots=True)
class Sighting(Generic[F]):
    """A lease as it was seen just now."""

    found: F
    """The backend's form of the lease; a take-over replaces exactly this one."""
    epoch: Epoch
    """The newest epoch that is known to have been granted."""
    sign: Hashable
    """Changes with each sign of life of the holder. It is only compared for equality, so clocks do not matter."""
    free: bool
    """It was given up, or its holder is known to be dead by other means than time."""
    seconds: float = 0.0
    """The lease duration that its holder asks others to wait, if that is longer than our own."""


class LeaseBackend(Protocol[F]):
    """Stores the lease of one contender. An implementation has to meet the contract of each method and nothing else.

    Every method may raise StoreUnavailableError or StoreFailingError and is then retried; any other error ends the election.
    """

    async def look(self) -> Sighting[F]:
        """Read the lease. Only called while the contender does not lead."""
        ...

    async def take(self, seen: Sighting[F]) -> Epoch | None:
        """Take the lease with a new epoch above all earlier ones; None when the lease has changed since it was seen."""
        ...

    async def renew(self, epoch: Epoch) -> None:
        """Renew the lease. Raises LeaseLostError."""
        ...

    async def publish(self, epoch: Epoch, address: str) -> None:
        """Publish the leader's address. Raises FencingError when `epoch` no longer leads."""
        ...

    async def leader(self) -> LeaderInformation | None:
        """The holder of the lease, and the published address."""
        ...

    async def release(self) -> None:
        """Give up the lease, even if a take-over was not waited for. Raises StoreError, TimeoutError."""
        ...


class LeaseObserver:
    """Watches a lease with this contender's own clock.

    A live holder keeps changing the lease. When the lease has not changed for its whole duration, seen from here, its holder
    has already stopped acting. A deleted lease proves nothing: its holder may not have noticed yet, so others wait as well.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._sign: Hashable = None
        self._since: float | None = None

    def may_take(self, seen: Sighting[F], now: float) -> bool:
        """Whether leadership is free, given the lease as it was just seen."""
        if seen.free:
            return True
        if self._since is None or seen.sign != self._sign:
            self._sign, self._since = seen.sign, now
        return now - self._since >= max(self._lease, seen.seconds)


@dataclass(slots=True)
class LeaseTerm:
    epoch: Epoch
    renewed: float
    """When the last successful renewal began."""


class LeaseElectionDriver(Contender[LeaseTerm], Generic[F]):
    """One contender. A store that times leases itself may report the end of a lease earlier than an observer could.

    Args:
        look_every: The longest time between two looks at the lease, in seconds; changes may be reported sooner.
        claim: Ensures that no earlier leader can write any more, where taking the lease does not do so. It gets the new
            epoch, and leadership is granted when it has returned. Raises LeaseLostError.
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
                    # After a long pause while taking it, it may be lost already; contend for the next one.
                    if epoch is not None and self._trusts(term := LeaseTerm(epoch, began)):
                        return term
                    continue  # another contender was faster
            except IN_PASSING as error:
                # Logged once: it retries twice a second, and a store may be unavailable for hours.
                level = logging.DEBUG if told else logging.WARNING
                logger.log(level, "contender '%s' cannot read the lease and keeps trying: %s", self._contender, error)
                told = True
                pause = min(pause, LOOK_SECONDS)
            await self._changes.after(mark, pause)

    async def _claimed(self, claim: Callable[[Epoch], Awaitable[None]], term: LeaseTerm) -> str | None:
        """Run `claim`; returns the reason if it failed."""
        try:
            await retry(
                lambda: claim(term.epoch),
                RETRIES,
                on=IN_PASSING,
                what=f"claiming the state for epoch {term.epoch}",
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
                return f"its last renewal was {began - term.renewed:.2f} s ago, and a lease lasts {self._lease:g} s"
            try:
                async with asyncio.timeout(until - began):
                    await self._backend.renew(term.epoch)
            except LeaseLostError as error:
                return str(error)
            except (TimeoutError, *IN_PASSING) as error:
                logger.warning("contender '%s' could not renew its lease: %r", self._contender, error)
                due = time.monotonic() + self._lease / 20
                continue
            # Counted from its beginning, so that a slow renewal does not delay the next one.
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
                "contender '%s' could not give up leadership; its lease will expire: %r", self._contender, error
            )
