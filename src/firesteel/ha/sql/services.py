"""The open backend: one database, one writer, and the contenders that use them."""

from __future__ import annotations

import asyncio

from sqlalchemy import URL

from firesteel.ha.sql.database import Database
from firesteel.ha.sql.election import SqlLeaderElectionDriver
from firesteel.ha.sql.store import Reader, SqlStateStore
from firesteel.ha.sql.tables import ensure_cluster
from firesteel.ha.sql.writer import GroupWriter


class SqlHighAvailabilityServices:
    """Made by `open`."""

    def __init__(self, database: Database, *, cluster_id: str, lease_duration: float) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._lease_duration = lease_duration
        self._reader = Reader(database)
        self._writer = GroupWriter(database, cluster_id)
        self._store = SqlStateStore(cluster_id, self._reader, self._writer)
        self._elections: list[SqlLeaderElectionDriver] = []

    @staticmethod
    async def open(url: URL | str, *, cluster_id: str, lease_duration: float) -> SqlHighAvailabilityServices:
        """Open the database at `url`, making or migrating it as needed. Raises like Database.open."""
        database = await asyncio.to_thread(_open, url, cluster_id)
        return SqlHighAvailabilityServices(database, cluster_id=cluster_id, lease_duration=lease_duration)

    @property
    def store(self) -> SqlStateStore:
        return self._store

    def election(self, contender: str) -> SqlLeaderElectionDriver:
        driver = SqlLeaderElectionDriver(
            contender,
            cluster_id=self._cluster_id,
            lease_duration=self._lease_duration,
            reader=self._reader,
            writer=self._writer,
        )
        self._elections.append(driver)
        return driver

    async def close(self) -> None:
        for driver in self._elections:
            await driver.close()
        await self._store.close()
        await asyncio.to_thread(self._database.close)


def _open(url: URL | str, cluster_id: str) -> Database:
    database = Database.open(url)
    try:
        with database.write() as connection:
            ensure_cluster(connection, cluster_id)
    except BaseException:
        database.close()
        raise
    return database
