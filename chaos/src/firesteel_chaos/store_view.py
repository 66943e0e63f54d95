"""The store of a cluster, read from outside: not through the code that is to be judged, but as anybody could who has access.

Only what is needed to judge is read: the epoch, and of each job its graph's digest, its record's attempt and its result.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from firesteel.config import Configuration
from firesteel.config.high_availability import HaType
from firesteel.errors import FiresteelError

JOB_PARTS = ("graphs", "jobs", "results")
_BUSY_SECONDS = 2.0
_LOOK_AGAIN = 20
"""A result that is clean is read again every so many looks: it must not change, so it has to be looked at, but not always."""


class StoreUnreadableError(FiresteelError):
    """The store did not let itself be read just now."""


@dataclass(frozen=True, slots=True)
class JobRows:
    """What stands in the store of one job."""

    parts: tuple[str, ...] = ()
    digest: str | None = None
    attempt: int | None = None
    cancel: bool = False
    result: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "parts": list(self.parts),
            "digest": self.digest,
            "attempt": self.attempt,
            "cancel": self.cancel,
            "result": None if self.result is None else dict(self.result),
        }


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    epoch: int
    holder: str
    """Whom the store names as the leader; empty when nobody."""
    rows: Mapping[str, int]
    """How many, by the first part of their path."""
    jobs: Mapping[str, JobRows] = field(default_factory=dict)


class StoreView(Protocol):
    """Used by one thread at a time."""

    def look(self) -> StoreSnapshot:
        """Raises StoreUnreadableError."""
        ...

    def close(self) -> None: ...


def open_store_view(configuration: Configuration) -> StoreView | None:
    """A view of the store that the configuration names; None where there is none for its kind. Opens nothing yet."""
    options = configuration.high_availability
    match options.type:
        case HaType.SQL:
            url = options.sql_url or ""
            if url.startswith("postgres"):
                return PostgresqlView(url, options.cluster_id)
            path = url.removeprefix("sqlite:///") if url else str(configuration.data.dir / "cluster.db")
            return SqliteView(path, options.cluster_id)
        case HaType.ZOOKEEPER:
            zookeeper = configuration.zookeeper
            return ZooKeeperView(zookeeper.quorum or "", zookeeper.path_root, options.cluster_id)
    return None


def rows_of(parts: Mapping[str, bytes | None]) -> JobRows:
    """A job from its rows by part; a value of None was not read."""
    graph, record, result = (_json(parts.get(p)) for p in JOB_PARTS)
    data: dict[str, Any] = record["data"] if isinstance(record.get("data"), dict) else {}
    ended = None
    if result.get("status") is not None:
        ended = {k: result.get(k) for k in ("status", "dirty", "attempts", "restarts", "ended_at", "stopped")}
    return JobRows(
        parts=tuple(p for p in JOB_PARTS if p in parts),
        digest=result.get("digest") or graph.get("digest"),
        attempt=data.get("attempt"),
        cancel=bool(data.get("cancel_requested")),
        result=ended,
    )


def _json(raw: bytes | None) -> dict[str, Any]:
    try:
        data = json.loads(raw) if raw else {}
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _by_job(rows: Iterable[tuple[str, bytes | None]]) -> dict[str, JobRows]:
    jobs: dict[str, dict[str, bytes | None]] = {}
    for path, value in rows:
        part, _, rest = path.partition("/")
        if part in JOB_PARTS and rest and "/" not in rest:
            jobs.setdefault(rest, {})[part] = value
    return {job: rows_of(parts) for job, parts in jobs.items()}


class _SqlView(ABC):
    """The two tables, whatever database they are in. Values are fetched when their version is a new one."""

    _place = "?"

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._values: dict[str, tuple[int, bytes]] = {}

    @abstractmethod
    def _select(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]: ...

    def _look(self) -> StoreSnapshot:
        p = self._place
        leadership = self._select(
            f"SELECT epoch, holder FROM firesteel_leadership WHERE cluster_id = {p}", (self._cluster_id,)
        )
        versions = self._select(
            f"SELECT path, version FROM firesteel_state WHERE cluster_id = {p}", (self._cluster_id,)
        )
        wanted = [(path, v) for path, v in versions if path.partition("/")[0] in JOB_PARTS]
        known = {path: self._values[path] for path, v in wanted if self._values.get(path, (0, b""))[0] == v}
        for path, version in wanted:
            if path not in known:
                found = self._select(
                    f"SELECT value FROM firesteel_state WHERE cluster_id = {p} AND path = {p}",
                    (self._cluster_id, path),
                )
                if found:
                    known[path] = (version, bytes(found[0][0]))
        self._values = known
        epoch, holder = leadership[0] if leadership else (0, "")
        rows = Counter(path.partition("/")[0] for path, _ in versions)
        return StoreSnapshot(int(epoch), str(holder), dict(rows), _by_job((p, v) for p, (_, v) in known.items()))


class SqliteView(_SqlView):
    def __init__(self, file: str, cluster_id: str) -> None:
        super().__init__(cluster_id)
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def look(self) -> StoreSnapshot:
        try:
            if self._connection is None:
                # No autocommit: all that one look reads is of one moment.
                address = f"file:{quote(self._file)}?mode=ro"
                self._connection = sqlite3.connect(
                    address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
                )
            self._connection.execute("BEGIN")
            try:
                return self._look()
            finally:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            raise StoreUnreadableError(f"{self._file}: {error}") from error

    def _select(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class PostgresqlView(_SqlView):
    _place = "%s"

    def __init__(self, url: str, cluster_id: str) -> None:
        super().__init__(cluster_id)
        self._url = "postgresql://" + url.partition("://")[2]
        self._connection: Any = None

    def look(self) -> StoreSnapshot:
        import psycopg

        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._url,
                    connect_timeout=3,
                    options="-c statement_timeout=3000 -c default_transaction_read_only=on "
                    "-c default_transaction_isolation=repeatable\\ read",
                )
            with self._connection.transaction():
                return self._look()
        except psycopg.Error as error:
            self.close()
            raise StoreUnreadableError(f"PostgreSQL: {error}") from error

    def _select(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(statement, values).fetchall()
        return rows

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


class ZooKeeperView:
    """Nodes of ZooKeeper as `docs/operations/high-availability-zookeeper.md` describes them; large values are not followed."""

    def __init__(self, quorum: str, root: str, cluster_id: str) -> None:
        self._quorum = quorum
        self._cluster = f"{root.rstrip('/')}/{quote(cluster_id, safe='')}"
        self._client: Any = None
        self._values: dict[str, bytes] = {}
        self._looks = 0

    def look(self) -> StoreSnapshot:
        from kazoo.exceptions import KazooException  # type: ignore[import-untyped]
        from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

        try:
            if self._client is None:
                self._connect()
            return self._look()
        except (KazooException, KazooTimeoutError, OSError) as error:
            self.close()
            raise StoreUnreadableError(f"ZooKeeper: {error!r}") from error

    def _connect(self) -> None:
        from kazoo.client import KazooClient  # type: ignore[import-untyped]

        self._client = KazooClient(hosts=self._quorum, timeout=6.0, read_only=False)
        self._client.start(timeout=3.0)

    def _look(self) -> StoreSnapshot:
        """Not of one moment, as there is no such read; so in an order in which what is seen together may be seen together.

        Clean-up removes graphs and records before it marks a result clean, and a result is there before anything is removed.
        Results are therefore read before and after the rest: before, so that nothing stands beside a result that was clean;
        after, so that a job which ended in between is not taken for one that is gone.
        """
        self._looks += 1
        # The epoch is the data version of its node, so that one write both bumps it and is the fence.
        holder, stat = self._get(f"{self._cluster}/epoch")
        parts = self._children(f"{self._cluster}/state")
        rows: dict[str, int] = {}
        values = self._values_of("results", rows)
        for part in parts:
            if part in JOB_PARTS:
                values.update(self._values_of(part, rows) if part != "results" else {})
            else:
                rows[part] = len(self._children(f"{self._cluster}/state/{part}"))
        for path, value in self._values_of("results", rows).items():
            if path not in values:
                values[path] = value
                if not _json(value).get("dirty"):
                    for part in ("graphs", "jobs"):
                        values.pop(f"{part}/{path.partition('/')[2]}", None)
        self._values = values
        latch = str(_json(holder).get("latch", ""))
        return StoreSnapshot(stat.version if stat else 0, latch, rows, _by_job(values.items()))

    def _values_of(self, part: str, rows: dict[str, int]) -> dict[str, bytes]:
        names = self._children(f"{self._cluster}/state/{part}")
        rows[part] = len(names)
        return {f"{part}/{name}": value for name in names if (value := self._value(part, name)) is not None}

    def _value(self, part: str, name: str) -> bytes | None:
        """None when it was removed meanwhile."""
        key = f"{part}/{name}"
        known = self._values.get(key)
        settled = part == "graphs" or (part == "results" and known is not None and not _json(known).get("dirty"))
        if known is not None and settled and (self._looks + hash(name)) % _LOOK_AGAIN:
            return known
        raw, stat = self._get(f"{self._cluster}/state/{part}/{name}")
        return raw.removeprefix(b"v") if stat is not None else None

    def _get(self, path: str) -> tuple[bytes, Any]:
        from kazoo.exceptions import NoNodeError

        try:
            value, stat = self._client.get(path)
        except NoNodeError:
            return b"", None
        return value or b"", stat

    def _children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            names: list[str] = self._client.get_children(path)
        except NoNodeError:
            return []
        return names

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.stop()
            with contextlib.suppress(Exception):
                client.close()
