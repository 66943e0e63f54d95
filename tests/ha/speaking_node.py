"""What the nodes in processes of their own (`*_child.py`) have in common: they say on stdout what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.protocols import Epoch, HighAvailabilityServices, StateStore


def say(*words: object) -> None:
    print(*words, flush=True)


class SpeakingNode:
    """Contends, and is a listener that speaks. Made by `begin`."""

    def __init__(self, store: StateStore, holds: Callable[[Epoch], bool]) -> None:
        self._store = store
        self._holds = holds
        self._first: asyncio.Future[Epoch] = asyncio.get_running_loop().create_future()
        self._revoked = asyncio.Event()

    @staticmethod
    async def begin(services: HighAvailabilityServices) -> tuple[SpeakingNode, Epoch]:
        """Returns when it leads."""
        driver = services.election("child")
        node = SpeakingNode(services.store, driver.holds)
        await driver.start(node)
        return node, await node._first

    def on_grant(self, epoch: Epoch) -> None:
        say("granted", epoch)
        if not self._first.done():
            self._first.set_result(epoch)

    def on_revoke(self) -> None:
        say("revoked", "but holds it" if self._holds(self._first.result()) else "and knows it")
        self._revoked.set()

    def on_error(self, error: Exception) -> None:
        say("error", error)

    async def put(self, epoch: Epoch) -> None:
        """Put with many hands, and say each path after it was acknowledged."""

        async def hand(name: int) -> None:
            n = 0
            while True:
                path = f"acks/{name}-{n}"
                await self._store.put(path, path.encode() * 50, epoch=epoch)
                say("ack", path)
                n += 1

        await asyncio.gather(*(hand(name) for name in range(16)))

    async def lead(self, epoch: Epoch) -> None:
        """Until leadership is lost; then write as if it were not, until that is refused."""
        await self._revoked.wait()
        while True:  # until somebody else leads, or this node does once more
            try:
                await self._store.put("stale", b"", epoch=epoch)
            except FencingError:
                say("fenced")
                await asyncio.Event().wait()
            except StoreUnavailableError:
                await asyncio.sleep(0.05)
