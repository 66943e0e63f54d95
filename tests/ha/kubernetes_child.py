"""A node in a process of its own: `kubernetes_child.py <put|lead> <directory> <kubeconfig> <namespace> <lease>`.

Says on stdout what happens to it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.ha.kubernetes_nodes import configured

from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.kubernetes.services import KubernetesHighAvailabilityServices, open_kubernetes
from firesteel.ha.protocols import Epoch


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


async def put(services: KubernetesHighAvailabilityServices, epoch: Epoch) -> None:
    """Put with many hands, and say each path after it was acknowledged."""

    async def hand(name: int) -> None:
        n = 0
        while True:
            path = f"acks/{name}-{n}"
            await services.store.put(path, path.encode() * 50, epoch=epoch)
            say("ack", path)
            n += 1

    await asyncio.gather(*(hand(name) for name in range(16)))


async def main(what: str, directory: str, kubeconfig: str, namespace: str, lease: str) -> None:
    configuration = configured(Path(directory), Path(kubeconfig), namespace, lease=float(lease))
    services = await open_kubernetes(configuration)
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
        except StoreUnavailableError:
            continue


asyncio.run(main(*sys.argv[1:]))
