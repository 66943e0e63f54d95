"""One watch of the Lease for everybody in this process who wants to hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from firesteel.concurrency import OwnedTasks
from firesteel.ha.kubernetes.lease import LeaseRecord
from firesteel.ha.kubernetes.leases import Leases

Tell = Callable[[LeaseRecord, bool], None]
"""The Lease as it is now, or was last, and whether it is gone."""


class LeaseFollower:
    """Watches from when somebody first wants to know, until the tasks are closed."""

    def __init__(self, leases: Leases, tasks: OwnedTasks) -> None:
        self._leases = leases
        self._tasks = tasks
        self._watching: asyncio.Task[None] | None = None
        self._listeners: list[Tell] = []
        self._leader: tuple[int, str] | None = None
        self._changed = asyncio.Event()
        """Set and replaced with each change, so that all who wait look again."""
        self.changes = 0
        """How often another leader, or another address, was seen."""

    def subscribe(self, tell: Tell) -> None:
        self._listeners.append(tell)
        self._watch()

    def unsubscribe(self, tell: Tell) -> None:
        if tell in self._listeners:
            self._listeners.remove(tell)

    async def wait_for_change(self, since: int, seconds: float) -> None:
        """Until `changes` is not `since` any more, but no longer than `seconds`."""
        self._watch()
        try:
            async with asyncio.timeout(seconds):
                while self.changes == since:
                    await self._changed.wait()
        except TimeoutError:
            pass

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = self._tasks.start(self._leases.follow(self._seen), "watch of the Lease")

    def _seen(self, record: LeaseRecord, gone: bool) -> None:
        leader = (record.epoch, record.address) if record.holder and not gone else None
        if leader != self._leader:
            self._leader = leader
            self.changes += 1
            self._changed.set()
            self._changed = asyncio.Event()
        for tell in list(self._listeners):
            tell(record, gone)
