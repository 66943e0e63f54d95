"""What the contract needs to be run: the backend under test, contenders, and listeners that remember."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from firesteel.ha.protocols import (
    Epoch,
    HighAvailabilityServices,
    LeaderElectionDriver,
    StateStore,
)

DEADLINE = 10.0
LONG_LEASE = 60.0
"""A hand-over within the deadline of a test did not wait for it."""
SHORT_LEASE = 3.0


class BackendUnderTest(Protocol):
    """One cluster, fresh for each test."""

    knows_contenders: bool
    """Whether a leader of it can tell if somebody else waits."""

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        """One more node. Backends of one process may hand out the same one again; it is closed after the test."""
        ...

    def pause(self, driver: LeaderElectionDriver) -> None:
        """Stop a contender as if its process were stopped: it neither renews nor gives up, and is told nothing."""
        ...

    async def close(self) -> None: ...


class Recorder:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.epochs: list[Epoch] = []
        self.errors: list[Exception] = []
        self._changed = asyncio.Event()

    @property
    def leading(self) -> Epoch | None:
        return self.epochs[-1] if self.events and self.events[-1] == "grant" else None

    def on_grant(self, epoch: Epoch) -> None:
        self.epochs.append(epoch)
        self._add("grant")

    def on_revoke(self) -> None:
        self._add("revoke")

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)
        self._add("error")

    def _add(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"did not come: {self.events} {self.epochs} {self.errors}")

    async def granted(self) -> Epoch:
        await self.until(lambda: self.leading is not None)
        return self.epochs[-1]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not await condition():
        assert time.monotonic() < deadline, "did not come true in time"
        await asyncio.sleep(0.01)


async def contend(services: HighAvailabilityServices, name: str = "node") -> tuple[LeaderElectionDriver, Recorder]:
    driver, listener = services.election(name), Recorder()
    await driver.start(listener)
    return driver, listener


async def leading(services: HighAvailabilityServices) -> tuple[LeaderElectionDriver, Recorder, Epoch]:
    driver, listener = await contend(services)
    return driver, listener, await listener.granted()


def run(backend: BackendUnderTest, test: Callable[[BackendUnderTest], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await test(backend)
        finally:
            await backend.close()

    asyncio.run(main())


def on_store(backend: BackendUnderTest, test: Callable[[StateStore, Epoch], Awaitable[None]]) -> None:
    """Run `test` with a store and the epoch of its leader."""

    async def main(backend: BackendUnderTest) -> None:
        services = await backend.open()
        _, _, epoch = await leading(services)
        await test(services.store, epoch)

    run(backend, main)
