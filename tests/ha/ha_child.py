"""A node in a process of its own: `ha_child.py <put|lead|stop> <database> <lease> [<cluster id>] [elsewhere]`.

Says on stdout what happens to it. The database is a file or a URL; `elsewhere` is a host of another name; `stop` stops itself
in the middle of a transaction.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from firesteel.errors import FencingError
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql import election
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


def stop_in_the_next_transaction(services: SqlHighAvailabilityServices) -> None:
    """After the row was locked, and before it is let go."""

    def stop(*_: object) -> None:
        del vars(services._database)["carry_out"]
        say("stops")
        os.kill(os.getpid(), signal.SIGSTOP)

    vars(services._database)["carry_out"] = stop


async def main(what: str, database: str, lease: float, cluster_id: str = "test", where: str = "") -> None:
    if where:
        vars(election)["this_host"] = lambda: where
    url = database if "://" in database else f"sqlite:///{database}"
    services = await SqlHighAvailabilityServices.open(url, cluster_id=cluster_id, lease_duration=lease)
    driver = services.election("child")
    listener = Listener(driver.holds)
    await driver.start(listener)
    epoch = await listener.epoch
    if what == "put":
        await put(services, epoch)
    if what == "stop":
        stop_in_the_next_transaction(services)
    await listener.revoked.wait()
    while True:  # until somebody else leads, or this node does once more
        try:
            await services.store.put("stale", b"", epoch=epoch)
        except FencingError:
            say("fenced")
            await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
