"""High availability of type `none`: everything in memory, for one process. A restart forgets it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from firesteel.errors import FencingError, StoreError
from firesteel.ha.protocols import NEW, Epoch, LeaderInformation, LeaderListener, Stored
from firesteel.ha.rules import NEVER, check_epoch, check_path, check_version


class MemoryStateStore:
    def __init__(self) -> None:
        self.newest_epoch = NEVER
        self._rows: dict[str, Stored] = {}
        self._last_version = 0
        self._closed = False

    async def get(self, path: str) -> Stored | None:
        self._check(path)
        return self._rows.get(path)

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        return {path: self._rows[path] for path in await self.paths(prefix)}

    async def paths(self, prefix: str) -> Sequence[str]:
        self._check(prefix)
        return sorted(path for path in self._rows if path.startswith(f"{prefix}/"))

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        self._check_write(path, epoch, expected)
        self._last_version += 1
        self._rows[path] = Stored(value, self._last_version)
        return self._last_version

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        self._check_write(path, epoch, expected)
        return self._rows.pop(path, None) is not None

    async def close(self) -> None:
        self._closed = True

    def _check(self, path: str) -> None:
        check_path(path)
        if self._closed:
            raise StoreError("the in-memory store is closed; open it again")

    def _check_write(self, path: str, epoch: Epoch, expected: int | None) -> None:
        self._check(path)
        check_epoch(epoch, self.newest_epoch, f"a write of '{path}'")
        row = self._rows.get(path)
        check_version(path, row.version if row else NEW, expected)


class MemoryLeaderElectionDriver:
    """A contender within this process. Made by MemoryHighAvailabilityServices."""

    def __init__(self, contender: str, services: MemoryHighAvailabilityServices) -> None:
        self.contender = contender
        self.listener: LeaderListener | None = None
        self._services = services

    async def start(self, listener: LeaderListener) -> None:
        if self.listener is not None:
            raise RuntimeError(f"contender '{self.contender}' is already started")
        self.listener = listener
        self._services.contend(self)

    def holds(self, epoch: Epoch) -> bool:
        return self._services.holds(self, epoch)

    async def publish(self, epoch: Epoch, address: str) -> None:
        self._services.publish(self, epoch, address)

    async def leader(self) -> LeaderInformation | None:
        return self._services.leader

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        self._services.resign(self, epoch, patience)

    async def others_wait(self) -> bool:
        return self._services.others_wait(self)

    async def close(self) -> None:
        self._services.leave(self)


class MemoryHighAvailabilityServices:
    """Contenders lead in the order in which they started. Everything belongs to one event loop."""

    def __init__(self) -> None:
        self._store = MemoryStateStore()
        self._holder: MemoryLeaderElectionDriver | None = None
        self._address = ""
        self._waiting: list[MemoryLeaderElectionDriver] = []
        self._resting: dict[MemoryLeaderElectionDriver, asyncio.TimerHandle] = {}
        """Contenders that gave up leadership when there was no other, and wait for one."""

    @property
    def store(self) -> MemoryStateStore:
        return self._store

    @property
    def leader(self) -> LeaderInformation | None:
        return LeaderInformation(self._store.newest_epoch, self._address) if self._holder else None

    def election(self, contender: str) -> MemoryLeaderElectionDriver:
        return MemoryLeaderElectionDriver(contender, self)

    async def close(self) -> None:
        self._waiting.clear()
        for driver in list(self._resting):
            self._wake(driver)
        self._holder = None
        await self._store.close()

    # Called by contenders.

    def contend(self, driver: MemoryLeaderElectionDriver) -> None:
        self._waiting.append(driver)
        # Not at once: a listener is never called from within the call that contends.
        asyncio.get_running_loop().call_soon(self._grant)

    def holds(self, driver: MemoryLeaderElectionDriver, epoch: Epoch) -> bool:
        return driver is self._holder and epoch == self._store.newest_epoch

    def publish(self, driver: MemoryLeaderElectionDriver, epoch: Epoch, address: str) -> None:
        doing = f"the address of contender '{driver.contender}'"
        check_epoch(epoch, self._store.newest_epoch, doing)
        if not self.holds(driver, epoch):
            raise FencingError(f"{doing} was refused: it does not lead")
        self._address = address

    def resign(self, driver: MemoryLeaderElectionDriver, epoch: Epoch, patience: float) -> None:
        if not self.holds(driver, epoch):
            return
        self._vacate()
        assert driver.listener is not None
        driver.listener.on_revoke()
        loop = asyncio.get_running_loop()
        if self._waiting:
            self._waiting.append(driver)
            loop.call_soon(self._grant)
        else:
            self._resting[driver] = loop.call_later(patience, self._rested, driver)

    def others_wait(self, driver: MemoryLeaderElectionDriver) -> bool:
        return any(other is not driver for other in self._waiting)

    def leave(self, driver: MemoryLeaderElectionDriver) -> None:
        self._wake(driver)
        if driver in self._waiting:
            self._waiting.remove(driver)
        if driver is self._holder:
            self._vacate()
            asyncio.get_running_loop().call_soon(self._grant)

    def _rested(self, driver: MemoryLeaderElectionDriver) -> None:
        if self._wake(driver):
            self._waiting.append(driver)
            self._grant()

    def _wake(self, driver: MemoryLeaderElectionDriver) -> bool:
        timer = self._resting.pop(driver, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _vacate(self) -> None:
        self._holder = None
        self._address = ""

    def _next_epoch(self) -> Epoch:
        self._store.newest_epoch = Epoch(self._store.newest_epoch + 1)
        return self._store.newest_epoch

    def _grant(self) -> None:
        if self._holder is None and self._waiting:
            self._holder = self._waiting.pop(0)
            self._waiting += [driver for driver in list(self._resting) if self._wake(driver)]
            assert self._holder.listener is not None
            self._holder.listener.on_grant(self._next_epoch())
