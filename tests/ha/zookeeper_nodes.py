"""Nodes of one cluster on ZooKeeper, each with a network of its own between it and the servers."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.support.tcp_proxy import TcpProxy

from firesteel.config import Configuration, load_configuration
from firesteel.ha.protocols import LeaderElectionDriver
from firesteel.ha.services import open_high_availability
from firesteel.ha.zookeeper.backend import ZooKeeperHighAvailabilityServices
from firesteel.ha.zookeeper.election import ZooKeeperLeaderElectionDriver
from firesteel.testing.ha_contract.harness import DEADLINE, LONG_LEASE

PREFIX = "high-availability.zookeeper"


class Network:
    """The proxies between one node and all servers."""

    def __init__(self, hosts: str) -> None:
        self._stack = contextlib.ExitStack()
        targets = [host.rpartition(":") for host in hosts.split(",")]
        self.proxies = [self._stack.enter_context(TcpProxy((host, int(port)))) for host, _, port in targets]

    @property
    def hosts(self) -> str:
        return ",".join(proxy.address for proxy in self.proxies)

    @property
    def accepted(self) -> int:
        return sum(proxy.accepted for proxy in self.proxies)

    def close(self) -> None:
        self._stack.close()

    def __getattr__(self, name: str) -> Any:
        """What a proxy can do (cut, restore, drop, freeze, thaw, delay), done by all of them."""

        def do(*args: Any) -> None:
            for proxy in self.proxies:
                getattr(proxy, name)(*args)

        return do


class ZooKeeperCluster:
    """A `Backend` of the contract. Its cluster id is its own, so that tests share a server."""

    knows_contenders = True

    def __init__(self, hosts: str, directory: Path) -> None:
        self.hosts = hosts
        self.directory = directory
        self.cluster_id = f"test-{uuid.uuid4().hex}"
        self.path = f"/firesteel/{self.cluster_id}"
        self._nodes: list[tuple[ZooKeeperHighAvailabilityServices, Network]] = []
        self._helpers: list[threading.Thread] = []

    def configuration(self, hosts: str, lease: float, **options: str) -> Configuration:
        """`options` with `__` for a dot, `_` for a dash, without the prefix."""
        overrides = {
            "data.dir": str(self.directory / "data"),
            "high-availability.type": "zookeeper",
            "high-availability.cluster-id": self.cluster_id,
            "high-availability.storageDir": str(self.directory / "storage"),
            f"{PREFIX}.quorum": hosts,
            f"{PREFIX}.client.session-timeout": f"{round(lease * 1000)} ms",
            **{f"{PREFIX}.{key.replace('__', '.').replace('_', '-')}": value for key, value in options.items()},
        }
        home = {"HOME": str(self.directory)}
        return load_configuration(overrides=overrides, environ=home, cwd=self.directory)

    async def open(self, *, lease: float = LONG_LEASE, **options: str) -> ZooKeeperHighAvailabilityServices:
        return await self.open_with(options, lease=lease)

    async def open_with(
        self, options: Mapping[str, str], *, lease: float = LONG_LEASE
    ) -> ZooKeeperHighAvailabilityServices:
        network = Network(self.hosts)
        try:
            services = await open_high_availability(self.configuration(network.hosts, lease, **options))
        except BaseException:
            network.close()
            raise
        assert isinstance(services, ZooKeeperHighAvailabilityServices)
        self._nodes.append((services, network))
        return services

    def network(self, services: ZooKeeperHighAvailabilityServices) -> Network:
        return next(network for node, network in self._nodes if node is services)

    def pause(self, driver: LeaderElectionDriver) -> None:
        """Nothing passes between the driver's node and the servers until its session has expired, and it does nothing."""
        assert isinstance(driver, ZooKeeperLeaderElectionDriver)
        assert driver._leading is not None
        latch = driver._leading.latch.path
        driver._tasks.cancel()
        network = next(network for node, network in self._nodes if node.session is driver._session)
        network.cut()

        def resume() -> None:
            with self.client() as client:
                deadline = time.monotonic() + DEADLINE
                while client.exists(latch) is not None and time.monotonic() < deadline:
                    time.sleep(0.01)
            network.restore()

        helper = threading.Thread(target=resume, name="resume")
        helper.start()
        self._helpers.append(helper)

    @contextlib.contextmanager
    def client(self, **arguments: Any) -> Iterator[Any]:
        """A plain client of the servers, to look and to do harm with."""
        client = KazooClient(hosts=self.hosts, timeout=10, **arguments)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    async def close(self) -> None:
        for helper in self._helpers:
            helper.join()
        for services, network in self._nodes:
            await services.close()
            network.close()
