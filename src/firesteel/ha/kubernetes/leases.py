"""Reading, guarding and following one cluster's Lease."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from firesteel.concurrency import Backoff
from firesteel.errors import StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.kubernetes.api import LEASE, Api, ConflictError, GoneError
from firesteel.ha.kubernetes.lease import LeaseRecord, released, taken
from firesteel.ha.kubernetes.names import LEADER, Names
from firesteel.ha.kubernetes.root import TRIES
from firesteel.ha.protocols import Epoch

logger = logging.getLogger(__name__)
_BACKOFF = Backoff(0.1, 5.0)
_BRIEF_SECONDS = 1.0
"""A watch that is over so soon was ended by something that will end the next one as well."""
_REFUSED_SECONDS = 30.0
"""Until it is tried again to watch what we may not watch."""


class Leases:
    """Every update is of the Lease as it was read: the server refuses it when anybody came between."""

    def __init__(self, api: Api, names: Names) -> None:
        self._api = api
        self._names = names

    async def read(self) -> LeaseRecord | None:
        raw = await self._api.read(LEASE, self._names.lease)
        if raw is None:
            return None
        self._names.check_ours(raw, LEADER)
        return LeaseRecord.of(raw)

    async def take(self, found: LeaseRecord | None, *, holder: str, epoch: Epoch, lease: float) -> LeaseRecord | None:
        """The Lease, held by `holder` as `epoch`; None when it is not any more as it was `found`."""
        made = taken(self._names, found, holder=holder, epoch=epoch, lease=lease)
        try:
            raw = await (self._api.create(LEASE, made) if found is None else self._api.replace(LEASE, made))
        except ConflictError:
            # The HTTP client sends an update again when a connection breaks; the first one may have done it.
            now = await self.read()
            return now if now is not None and (now.holder, now.epoch) == (holder, epoch) else None
        return LeaseRecord.of(raw) if raw is not None else None

    async def change(self, held: LeaseRecord, change: Callable[[LeaseRecord], dict[str, Any]]) -> LeaseRecord | None:
        """The Lease after `change`; None when it is not held any more as in `held`, or is gone. Nothing was changed then."""
        now: LeaseRecord | None = held
        for _ in range(TRIES):
            if now is None or (now.holder, now.epoch) != (held.holder, held.epoch):
                return None
            try:
                raw = await self._api.replace(LEASE, change(now))
                return LeaseRecord.of(raw) if raw is not None else None
            except ConflictError:
                now = await self.read()  # somebody may have put a label on it
        raise StoreUnavailableError(f"Lease '{self._names.lease}' is changed by others all the time; try again later")

    async def release(self, holder: str) -> None:
        """Give up whatever `holder` has, whether it knows of it or not."""
        found = await self.read()
        if found is not None and found.holder == holder:
            await self.change(found, released)

    async def follow(self, tell: Callable[[LeaseRecord, bool], None]) -> None:
        """Tell of every change, and whether the Lease is gone with it, for as long as this is awaited.

        A change may be told late, or not at all, or twice: it is a reason to look, and no more.
        """
        since: str | None = None
        refused = False
        delays = _BACKOFF.delays()
        while True:
            began = time.monotonic()
            try:
                async with aclosing(self._api.watch(LEASE, self._names.lease, since)) as changes:
                    async for kind, raw in changes:
                        refused = False
                        since = raw["metadata"]["resourceVersion"]
                        delays = _BACKOFF.delays()
                        tell(LeaseRecord.of(raw), kind == "DELETED")
                if time.monotonic() - began > _BRIEF_SECONDS:
                    continue  # it has an end, in order to be begun again
            except GoneError:
                since = None  # what was missed is forgotten; begin with how it is now
            except StoreUnavailableError as error:
                logger.info("watching Lease '%s' was interrupted: %s", self._names.lease, error)
            except StoreBrokenError as error:
                if not refused:
                    logger.warning(
                        "Lease '%s' is not watched, only looked at from time to time: %s", self._names.lease, error
                    )
                refused = True
                await asyncio.sleep(_REFUSED_SECONDS)  # the right to watch it may be given back
                since = None
                continue
            except StoreError as error:
                logger.warning("watching Lease '%s' failed: %s", self._names.lease, error)
                since = None
            await asyncio.sleep(next(delays))
