"""Leader election by a Lease."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from firesteel.errors import FencingError
from firesteel.ha.kubernetes.follower import LeaseFollower
from firesteel.ha.kubernetes.lease import LeaseRecord, published, renewed
from firesteel.ha.kubernetes.leases import Leases
from firesteel.ha.kubernetes.shard import ClaimRefusedError
from firesteel.ha.kubernetes.store import KubernetesStateStore
from firesteel.ha.lease import LeaseLostError, Sighting
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.rules import NEVER

LOOK_SECONDS = 2.0
"""The longest time between two looks at the Lease; the watch reports changes sooner."""
COLLECT_SECONDS = 600.0


class KubernetesLease:
    """The Lease, as one contender reads and writes it.

    The holder of the Lease does not lead yet: it first claims the shards of the state, and is granted leadership when no
    earlier leader can write any more. The lease is renewed meanwhile.
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
        self._leases = leases
        self._follower = follower
        self._state = state
        self._lease = lease_duration
        self._identity = f"{contender}/{uuid.uuid4().hex}"
        self._held: LeaseRecord | None = None
        """The Lease that we took last, after our last change of it."""
        self._changing = asyncio.Lock()
        """Renewals and addresses take turns."""
        self._taking: asyncio.Future[LeaseRecord | None] | None = None

    async def look(self) -> Sighting[LeaseRecord | None]:
        self._follower.changes.start()  # a leader needs them too, though it never waits for one
        found = await self._leases.read()
        if found is not None:
            # A Lease that names us comes from a take-over of ours that we did not trust, or no longer do.
            free = found.holder in {"", self._identity}
            sign = (found.epoch, found.holder, found.renewed)
            return Sighting(found, found.epoch, sign=sign, free=free, seconds=found.seconds)
        # No Lease: either there was no leader yet, or the Lease was deleted and its holder may not know, unless it was us.
        newest = await self._state.newest_epoch()
        free = newest in {NEVER, self._held.epoch if self._held is not None else NEVER}
        return Sighting(None, max(newest, self._follower.newest), sign=None, free=free)

    async def take(self, seen: Sighting[LeaseRecord | None]) -> Epoch | None:
        # The Lease may have been deleted with its epoch, but the state has the epoch too.
        newest = max(self._follower.newest, seen.epoch, await self._state.newest_epoch())
        # Must not be cancelled: `release` has to know whether there is something to give up.
        self._taking = asyncio.ensure_future(
            self._leases.take(seen.found, holder=self._identity, epoch=Epoch(newest + 1), lease=self._lease)
        )
        held = await asyncio.shield(self._taking)
        if held is None:
            return None
        self._held = held
        return held.epoch

    async def claim(self, epoch: Epoch) -> None:
        try:
            await self._state.claim(epoch, self._identity)
        except ClaimRefusedError as error:
            self._follower.heard_of(error.newest)
            raise LeaseLostError(str(error)) from error

    async def renew(self, epoch: Epoch) -> None:
        if not await self._change(epoch, renewed):
            raise LeaseLostError("another contender took over, or its Lease was deleted")

    async def publish(self, epoch: Epoch, address: str) -> None:
        if not await self._change(epoch, partial(published, address=address)):
            raise FencingError(f"the address of '{self._identity}' was refused: it no longer leads as epoch {epoch}")

    async def leader(self) -> LeaderInformation | None:
        found = await self._leases.read()
        return LeaderInformation(found.epoch, found.address) if found is not None and found.holder else None

    async def release(self) -> None:
        if self._taking is not None:
            await asyncio.wait([self._taking])  # it may be about to succeed
        async with asyncio.timeout(self._lease):
            await self._leases.release(self._identity)

    async def _change(self, epoch: Epoch, change: Callable[[LeaseRecord], dict[str, Any]]) -> bool:
        """Whether it was done; if not, we no longer have the Lease."""
        async with self._changing:
            held = self._held
            if held is None or held.epoch != epoch:
                return False
            now = await self._leases.change(held, change)
            if now is None:
                return False
            self._held = now
            return True
