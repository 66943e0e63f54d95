"""A node in a process of its own: `ha_child.py <put|lead> <database> <lease>`. Says on stdout what happens to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from firesteel.errors import FencingError
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.services import SqlHighAvailabilityServices


def say(*words: object) -> None:
    print(*words, flush=True)


class Listener:
    def __init__(self, holds: Callable[[Epoch], bool]) -> None:
        self.holds = holds
        self.epoch: asyncio.Future[Epoch] = asyncio.get_running_loop().create_future()
        self.revoked = asyncio.Event()

    def on_grant(self, epoch: Epoch) -> None:
        say("granted", epoch)
        if not self.epoch.done():
            self.epoch.set_result(epoch)

    def on_revoke(self) -> None:
        say("revoked", "but holds it" if self.holds(self.epoch.result()) else "and knows it")
        self.revoked.set()

    def on_error(self, error: Exception) -> None:
        say("error", error)


async def put(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
    """Put with many hands, and say each path after it was acknowledged."""

    async def hand(name: int) -> None:
        n = 0
        while True:
            path = f"acks/{name}-{n}"
            await services.store.put(path, path.encode() * 50, epoch=epoch)
            say("ack", path)
            n += 1

    await asyncio.gather(*(hand(name) for name in range(16)))


async def main(what: str, database: str, lease: float) -> None:
    services = await SqlHighAvailabilityServices.open(f"sqlite:///{database}", cluster_id="test", lease_duration=lease)
    driver = services.election("child")
    listener = Listener(driver.holds)
    await driver.start(listener)
    epoch = await listener.epoch
    if what == "put":
        await put(services, epoch)
    await listener.revoked.wait()
    while True:  # until somebody else leads, or this node does once more
        try:
            await services.store.put("stale", b"", epoch=epoch)
        except FencingError:
            say("fenced")
            await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
