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
"""A watch that ends so soon was ended by something that will end the next one as well."""
_REFUSED_SECONDS = 30.0
"""Seconds until a watch that was denied is tried again."""


class Leases:
    """Every update is based on the Lease as it was read: the server refuses it if the Lease has changed since."""

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
        """The Lease, now held by `holder` as `epoch`; None when it has changed since it was `found`."""
        made = taken(self._names, found, holder=holder, epoch=epoch, lease=lease)
        try:
            raw = await (self._api.create(LEASE, made) if found is None else self._api.replace(LEASE, made))
        except ConflictError:
            # The HTTP client repeats an update when a connection breaks; the first one may have succeeded.
            now = await self.read()
            return now if now is not None and (now.holder, now.epoch) == (holder, epoch) else None
        return LeaseRecord.of(raw) if raw is not None else None

    async def change(self, held: LeaseRecord, change: Callable[[LeaseRecord], dict[str, Any]]) -> LeaseRecord | None:
        """The Lease after `change`; None, without a change, when it is gone or no longer held as in `held`."""
        now: LeaseRecord | None = held
        for _ in range(TRIES):
            if now is None or (now.holder, now.epoch) != (held.holder, held.epoch):
                return None
            try:
                raw = await self._api.replace(LEASE, change(now))
                return LeaseRecord.of(raw) if raw is not None else None
            except ConflictError:
                now = await self.read()  # something else, such as a label, may have been changed
        raise StoreUnavailableError(
            f"Lease '{self._names.lease}' is constantly changed by other clients; try again later"
        )

    async def release(self, holder: str) -> None:
        """Give up the Lease of `holder`, even if the holder does not know that it has it."""
        found = await self.read()
        if found is not None and found.holder == holder:
            await self.change(found, released)

    async def follow(self, tell: Callable[[LeaseRecord, bool], None]) -> None:
        """Report every change, and whether the Lease is gone, for as long as this is awaited.

        A change may be reported late, twice or not at all: it is only a reason to look.
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
                    continue  # a watch has an end, and is started again
            except GoneError:
                since = None  # missed changes are not available; start with the current state
            except StoreUnavailableError as error:
                logger.info("the watch of Lease '%s' was interrupted: %s", self._names.lease, error)
            except StoreBrokenError as error:
                if not refused:
                    logger.warning("Lease '%s' cannot be watched and is polled instead: %s", self._names.lease, error)
                refused = True
                await asyncio.sleep(_REFUSED_SECONDS)  # the permission to watch it may be granted again
                since = None
                continue
            except StoreError as error:
                logger.warning("the watch of Lease '%s' failed: %s", self._names.lease, error)
                since = None
            await asyncio.sleep(next(delays))
