"""Every backend keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts import ha_contract
from tests.contracts.ha_contract import LONG_LEASE, Backend

from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.ha.protocols import HighAvailabilityServices, LeaderElectionDriver
from firesteel.ha.sql.election import SqlLeaderElectionDriver
from firesteel.ha.sql.services import SqlHighAvailabilityServices


class MemoryBackend:
    def __init__(self) -> None:
        self.services = MemoryHighAvailabilityServices()

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        return self.services

    def pause(self, driver: LeaderElectionDriver) -> None:
        self.services.expire()

    async def close(self) -> None:
        await self.services.close()


class SqlBackend:
    """Each node has its own connections and threads, as in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._url = f"sqlite:///{directory / 'cluster.db'}"
        self._nodes: list[HighAvailabilityServices] = []

    async def open(self, *, lease: float = LONG_LEASE) -> HighAvailabilityServices:
        node = await SqlHighAvailabilityServices.open(self._url, cluster_id="test", lease_duration=lease)
        self._nodes.append(node)
        return node

    def pause(self, driver: LeaderElectionDriver) -> None:
        assert isinstance(driver, SqlLeaderElectionDriver)
        driver._tasks.cancel()

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return MemoryBackend() if request.param == "memory" else SqlBackend(tmp_path)


class TestStateStore(ha_contract.StateStoreContract):
    pass


class TestFencing(ha_contract.FencingContract):
    pass


class TestElection(ha_contract.ElectionContract):
    pass
