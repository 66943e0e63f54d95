"""Nodes on a real API server, for the tests of the backend `kubernetes`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.kubernetes import KubernetesServer
from tests.support.kubernetes_door import Door, door_to

from firesteel.config import load_configuration
from firesteel.config.loader import Configuration
from firesteel.ha.kubernetes.services import KubernetesHighAvailabilityServices, open_kubernetes
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.protocols import LeaderElectionDriver
from firesteel.testing.ha_contract.harness import LONG_LEASE


def configured(
    directory: Path, kubeconfig: Path, namespace: str, *, cluster_id: str = "test", lease: float = LONG_LEASE
) -> Configuration:
    overrides = {
        "high-availability.type": "kubernetes",
        "high-availability.cluster-id": cluster_id,
        "high-availability.lease-duration": f"{round(lease * 1000)} ms",
        "high-availability.storageDir": str(directory / "large"),
        "kubernetes.namespace": namespace,
        "kubernetes.config.file": str(kubeconfig),
    }
    return load_configuration(overrides=overrides, environ={"HOME": str(directory)}, cwd=directory)


class KubernetesCluster:
    """One cluster in a namespace of its own. Each node has its own connections, as in a process of its own."""

    knows_contenders = False

    def __init__(self, server: KubernetesServer, directory: Path) -> None:
        self.server = server
        self.namespace = server.namespace()
        self.directory = directory
        self.kubeconfig = server.kubeconfig(directory)
        self._nodes: list[KubernetesHighAvailabilityServices] = []

    async def open(
        self, *, lease: float = LONG_LEASE, cluster_id: str = "test", kubeconfig: Path | None = None
    ) -> KubernetesHighAvailabilityServices:
        configuration = configured(
            self.directory, kubeconfig or self.kubeconfig, self.namespace, cluster_id=cluster_id, lease=lease
        )
        node = await open_kubernetes(configuration)
        self._nodes.append(node)
        return node

    def pause(self, driver: LeaderElectionDriver) -> None:
        assert isinstance(driver, LeaseElectionDriver)
        driver._tasks.cancel()

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()

    # What a person sees with kubectl.

    def config_map(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"

    @property
    def lease(self) -> str:
        """Of the cluster `test`."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/test-leader"


SHARD_OF_A = "test-state-03"
"""Of the path `a`."""


def on_cluster(
    server: KubernetesServer, directory: Path, test: Callable[[KubernetesCluster, Door], Awaitable[None]]
) -> None:
    """Run `test` with a fresh cluster, and a door to its server."""

    async def main() -> None:
        async with door_to(server) as door:
            cluster = KubernetesCluster(server, directory)
            try:
                await test(cluster, door)
            finally:
                door.rule = lambda _: None
                await cluster.close()

    asyncio.run(main())


async def behind(
    door: Door, cluster: KubernetesCluster, *, lease: float = LONG_LEASE
) -> KubernetesHighAvailabilityServices:
    """A node whose requests go through the door."""
    return await cluster.open(
        lease=lease, kubeconfig=cluster.server.kubeconfig(cluster.directory, address=door.address)
    )
