"""The open backend: one database, one writer, and the contenders that use them."""

from __future__ import annotations

import asyncio
from functools import partial

from sqlalchemy import URL

from firesteel.concurrency import RETRIES, retry
from firesteel.errors import StoreUnavailableError
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.sql.batch import Leadership
from firesteel.ha.sql.database import Database, open_database, repeated
from firesteel.ha.sql.election import SqlLease
from firesteel.ha.sql.store import Reader, SqlStateStore
from firesteel.ha.sql.tables import ensure_cluster, forget_cluster
from firesteel.ha.sql.url import backend_of
from firesteel.ha.sql.writer import GroupWriter

OPENING_SECONDS = 20.0


class SqlHighAvailabilityServices:
    """Made by `open`."""

    def __init__(self, database: Database, *, cluster_id: str, lease_duration: float) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._lease_duration = lease_duration
        self._reader = Reader(database)
        self._writer = GroupWriter(database, cluster_id)
        self._store = SqlStateStore(cluster_id, self._reader, self._writer)
        self._changes = LeadershipChanges(partial(database.listen, cluster_id))
        self._elections: list[LeaseElectionDriver[Leadership]] = []

    @staticmethod
    async def open(url: URL | str, *, cluster_id: str, lease_duration: float) -> SqlHighAvailabilityServices:
        """Open the database at `url`, making or migrating it as needed. Raises like open_database.

        This waits for a while for a server that is out of reach: where everything starts at once, it may be the last.
        """
        database = await retry(
            lambda: asyncio.to_thread(_open, url, cluster_id, lease_duration),
            RETRIES,
            on=(StoreUnavailableError,),
            what="opening the database",
            within=0.0 if backend_of(url) == "sqlite" else OPENING_SECONDS,
        )
        return SqlHighAvailabilityServices(database, cluster_id=cluster_id, lease_duration=lease_duration)

    @property
    def store(self) -> SqlStateStore:
        return self._store

    def election(self, contender: str) -> LeaseElectionDriver[Leadership]:
        lease = SqlLease(
            contender, cluster_id=self._cluster_id, database=self._database, reader=self._reader, writer=self._writer
        )
        driver = LeaseElectionDriver(contender, lease, lease_duration=self._lease_duration, changes=self._changes)
        self._elections.append(driver)
        return driver

    async def forget_cluster(self) -> None:
        """See ForgetsClusters: the row that says who leads."""

        def forget() -> None:
            with self._database.write() as connection:
                forget_cluster(connection, self._cluster_id)

        await asyncio.to_thread(repeated, forget)

    async def close(self) -> None:
        for driver in self._elections:
            await driver.close()
        await self._changes.close()
        await self._store.close()
        await asyncio.to_thread(self._database.close)


def _open(url: URL | str, cluster_id: str, lease_duration: float) -> Database:
    database = open_database(url, lease_duration=lease_duration)

    def ensure() -> None:
        with database.write() as connection:
            ensure_cluster(connection, cluster_id)

    try:
        repeated(ensure)
    except BaseException:
        database.close()
        raise
    return database
