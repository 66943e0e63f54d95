"""Every backend keeps the contract."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.ha.kubernetes_nodes import KubernetesCluster
from tests.ha.zookeeper_nodes import ZooKeeperCluster
from tests.needs import ROOT

from firesteel.concurrency import OwnedTasks
from firesteel.config import load_configuration
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.protocols import HighAvailabilityServices, LeaderElectionDriver
from firesteel.ha.services import open_high_availability
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing import ha_contract
from firesteel.testing.ha_contract.harness import LONG_LEASE, BackendUnderTest
from firesteel.testing.memory_ha import SteeredHighAvailabilityServices


class MemoryBackend:
    knows_contenders = True

    def __init__(self) -> None:
        self.services = SteeredHighAvailabilityServices()

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        return self.services

    def pause(self, driver: LeaderElectionDriver) -> None:
        self.services.expire()

    async def close(self) -> None:
        await self.services.close()


class SqlBackend:
    """Each node has its own connections and threads, as in a process of its own."""

    knows_contenders = False

    def __init__(self, url: str, cluster_id: str = "test") -> None:
        self._url = url
        self._cluster_id = cluster_id
        self._nodes: list[HighAvailabilityServices] = []

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        node = await SqlHighAvailabilityServices.open(self._url, cluster_id=self._cluster_id, lease_duration=lease)
        self._nodes.append(node)
        return node

    def pause(self, driver: LeaderElectionDriver) -> None:
        assert isinstance(driver, LeaseElectionDriver)
        driver._tasks.cancel()

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()


class FactoryBackend:
    """The example of a third party's backend, opened by what the configuration names."""

    knows_contenders = False

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT / "examples" / "ha_backend"))
        self._directory = directory
        self._nodes: list[HighAvailabilityServices] = []

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        overrides = {
            "high-availability.type": "firesteel_directory_ha:open_backend",
            "high-availability.storageDir": str(self._directory),
            "high-availability.lease-duration": f"{round(lease * 1000)} ms",
        }
        configuration = load_configuration(
            overrides=overrides, environ={"HOME": str(self._directory)}, cwd=self._directory
        )
        node = await open_high_availability(configuration)
        self._nodes.append(node)
        return node

    def pause(self, driver: LeaderElectionDriver) -> None:
        tasks = vars(driver)["_tasks"]
        assert isinstance(tasks, OwnedTasks)
        tasks.cancel()

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.integration, pytest.mark.xdist_group("postgresql")]),
        pytest.param("zookeeper", marks=pytest.mark.xdist_group("zookeeper")),
        "factory",
        pytest.param("kubernetes", marks=[pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]),
    ]
)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> BackendUnderTest:
    match request.param:
        case "memory":
            return MemoryBackend()
        case "postgresql":
            return SqlBackend(request.getfixturevalue("postgresql_url"), f"contract-{uuid.uuid4().hex}")
        case "zookeeper":
            return ZooKeeperCluster(request.getfixturevalue("zookeeper").hosts, tmp_path)
        case "factory":
            return FactoryBackend(tmp_path, request.getfixturevalue("monkeypatch"))
        case "kubernetes":
            return KubernetesCluster(request.getfixturevalue("kubernetes"), tmp_path)
        case _:
            return SqlBackend(f"sqlite:///{tmp_path / 'cluster.db'}")


class TestStateStore(ha_contract.StateStoreContract):
    pass


class TestFencing(ha_contract.FencingContract):
    pass


class TestElection(ha_contract.ElectionContract):
    pass
