"""A node in a process of its own: `zookeeper_child.py <what> <hosts> <cluster id> <storage dir> <lease>`.

Says on stdout what happens to it, as ha_child.py does. What: `lead`, or `crash`, which is to die after the file of a large
value was written and before its pointer was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from firesteel.config import load_configuration
from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.protocols import Epoch
from firesteel.ha.services import open_high_availability
from firesteel.ha.storage_files import LocalFiles


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


def die_after_writing_a_file() -> None:
    write = LocalFiles.write

    def write_and_die(self: LocalFiles, name: str, value: bytes) -> None:
        write(self, name, value)
        say("dies")
        os._exit(9)

    LocalFiles.write = write_and_die  # type: ignore[method-assign]


async def main(what: str, hosts: str, cluster_id: str, storage: str, lease: str) -> None:
    configuration = load_configuration(
        overrides={
            "high-availability.type": "zookeeper",
            "high-availability.cluster-id": cluster_id,
            "high-availability.storageDir": storage,
            "high-availability.zookeeper.quorum": hosts,
            "high-availability.zookeeper.client.session-timeout": f"{lease} s",
        },
        environ={"HOME": storage},
    )
    services = await open_high_availability(configuration)
    driver = services.election("child")
    listener = Listener(driver.holds)
    await driver.start(listener)
    epoch = await listener.epoch
    if what == "crash":
        die_after_writing_a_file()
        await services.store.put("graphs/large", bytes(2**20), epoch=epoch)
    await listener.revoked.wait()
    while True:  # until somebody else leads, or this node does once more
        try:
            await services.store.put("stale", b"", epoch=epoch)
        except FencingError:
            say("fenced")
            await asyncio.Event().wait()
        except StoreUnavailableError:
            await asyncio.sleep(0.05)


asyncio.run(main(*sys.argv[1:]))
