"""Nodes of one cluster on a PostgreSQL server, for tests."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator

from firesteel.ha.protocols import Epoch, LeaderElectionDriver
from firesteel.ha.sql.postgresql.database import PostgreSqlDatabase
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder


def a_cluster() -> str:
    """The id of a cluster that nobody else has."""
    return f"test-{uuid.uuid4().hex}"


@contextlib.asynccontextmanager
async def node(
    url: str, *, lease: float = LONG_LEASE, cluster_id: str | None = None
) -> AsyncIterator[SqlHighAvailabilityServices]:
    services = await SqlHighAvailabilityServices.open(url, cluster_id=cluster_id or a_cluster(), lease_duration=lease)
    try:
        yield services
    finally:
        await services.close()


async def lead(
    services: SqlHighAvailabilityServices, name: str = "node"
) -> tuple[LeaderElectionDriver, Recorder, Epoch]:
    driver, listener = services.election(name), Recorder()
    await driver.start(listener)
    return driver, listener, await listener.granted()


def database_of(services: SqlHighAvailabilityServices) -> PostgreSqlDatabase:
    assert isinstance(services._database, PostgreSqlDatabase)
    return services._database
