"""Writing records to a store past the cluster, as a damaged disk, a newer version or a person might."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from firesteel.config import Configuration
from firesteel.config.high_availability import HaType
from firesteel_chaos.faults.model import Records

_PUT = (
    "INSERT INTO firesteel_state (cluster_id, path, value, version) SELECT cluster_id, {0}, {0}, last_version "
    "FROM firesteel_leadership WHERE cluster_id = {0} "
    "ON CONFLICT (cluster_id, path) DO UPDATE SET value = excluded.value"
)
_DELETE = "DELETE FROM firesteel_state WHERE cluster_id = {0} AND path = {0}"


class SqliteRecords:
    def __init__(self, file: Path, cluster_id: str) -> None:
        self.file = file
        self._cluster_id = cluster_id

    def put(self, path: str, value: bytes) -> None:
        self._do(_PUT.format("?"), (path, value, self._cluster_id))

    def delete(self, path: str) -> None:
        self._do(_DELETE.format("?"), (self._cluster_id, path))

    def _do(self, statement: str, values: tuple[object, ...]) -> None:
        with contextlib.closing(sqlite3.connect(self.file, timeout=20)) as connection, connection:
            connection.execute(statement, values)


class PostgresqlRecords:
    def __init__(self, url: str, cluster_id: str) -> None:
        self._url = "postgresql://" + url.partition("://")[2]
        self._cluster_id = cluster_id

    def put(self, path: str, value: bytes) -> None:
        self._do(_PUT.format("%s"), (path, value, self._cluster_id))

    def delete(self, path: str) -> None:
        self._do(_DELETE.format("%s"), (self._cluster_id, path))

    def _do(self, statement: str, values: tuple[object, ...]) -> None:
        import psycopg

        with psycopg.connect(self._url, connect_timeout=10) as connection:
            connection.execute(statement, values)


class ZooKeeperRecords:
    def __init__(self, quorum: str, root: str, cluster_id: str) -> None:
        self._quorum = quorum
        self._state = f"{root.rstrip('/')}/{quote(cluster_id, safe='')}/state"

    def put(self, path: str, value: bytes) -> None:
        with self._client() as client:
            client.ensure_path(self._node(path))
            client.set(self._node(path), value)

    def delete(self, path: str) -> None:
        from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]

        with self._client() as client, contextlib.suppress(NoNodeError):
            client.delete(self._node(path))

    def _node(self, path: str) -> str:
        first, _, rest = path.partition("/")
        return f"{self._state}/{first}/{rest.replace('/', ':')}"

    @contextlib.contextmanager
    def _client(self) -> Any:
        from kazoo.client import KazooClient  # type: ignore[import-untyped]

        client = KazooClient(hosts=self._quorum, timeout=10.0)
        client.start(timeout=20.0)
        try:
            yield client
        finally:
            client.stop()
            client.close()


def open_records(configuration: Configuration) -> Records | None:
    """The records of the configured store; None for kinds that are not supported. Opens no connection yet."""
    options = configuration.high_availability
    match options.type:
        case HaType.SQL:
            url = options.sql_url or ""
            if url.startswith("postgres"):
                return PostgresqlRecords(url, options.cluster_id)
            file = Path(url.removeprefix("sqlite:///")) if url else configuration.data.dir / "cluster.db"
            return SqliteRecords(file, options.cluster_id)
        case HaType.ZOOKEEPER:
            zookeeper = configuration.zookeeper
            return ZooKeeperRecords(zookeeper.quorum or "", zookeeper.path_root, options.cluster_id)
    return None
