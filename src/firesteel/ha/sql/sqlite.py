"""A database in an SQLite file: its connections, its peculiarities, and the meaning of its errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from firesteel.errors import (
    InvalidConfigError,
    Problem,
    StoreBrokenError,
    StoreError,
    StoreFailingError,
    StoreUnavailableError,
)
from firesteel.fs.files import private_dir
from firesteel.ha.changes import Listening
from firesteel.ha.protocols import Epoch, Stored
from firesteel.ha.sql import sqlite_rows as rows
from firesteel.ha.sql.batch import Batch, Leadership
from firesteel.ha.sql.database import READERS
from firesteel.ha.sql.schema import MIGRATIONS, Migration, prepare
from firesteel.ha.sql.tables import read_leadership
from firesteel.ha.sql.url import FIELD, parse

BUSY_TIMEOUT = 5.0
"""How long to wait for the lock of another process before raising an error, in seconds."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT}
_FAILING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
"""The errors among them that may go away without a change to the file: disk space, quotas, a disk that came back."""
_BROKEN = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a backup, or move it away to start with an empty one"),
    sqlite3.SQLITE_NOTADB: (
        "is not an SQLite database",
        "restore it from a backup, or set high-availability.sql.url to another file",
    ),
    sqlite3.SQLITE_READONLY: ("cannot be written to", "make the file and its directory writable for this user"),
    sqlite3.SQLITE_PERM: ("cannot be written to", "make the file and its directory writable for this user"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "make the file and its directory writable for this user"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free space on its disk"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check its disk"),
}


class SqliteDatabase:
    """One open SQLite file. Its methods block: call them in threads, never on the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = f"the database {path}"
        # Two engines, because a transaction that is going to write must say so at its start: a reader that becomes a writer
        # after another process has written can only fail.
        self._writing = self._engine("BEGIN IMMEDIATE", connections=1)
        self._reading = self._engine("BEGIN", connections=READERS)
        self._file = (0, 0)

    @staticmethod
    def open(url: URL | str, migrations: Sequence[Migration] = MIGRATIONS) -> SqliteDatabase:
        """Open the database at `url`, with tables of our version.

        Raises:
            InvalidConfigError: The URL is malformed, or does not name an SQLite file.
            StoreBrokenError: The database cannot be used. It is left unchanged.
            StoreUnavailableError: It was locked for all of BUSY_TIMEOUT.
        """
        path = _path_of(url)
        _create_private(path)
        database = SqliteDatabase(path)
        try:
            _patiently(lambda: database._prepare(migrations))
        except BaseException:  # raised again; nothing else closes the connections
            database.close()
            raise
        return database

    def _prepare(self, migrations: Sequence[Migration]) -> None:
        with self._mapped():
            # SQLite requires this outside of transactions. With it, readers do not wait for writers.
            raw = self._writing.raw_connection()
            try:
                mode = raw.cursor().execute("PRAGMA journal_mode").fetchone()[0]
                if mode != "wal":
                    mode = raw.cursor().execute("PRAGMA journal_mode=WAL").fetchone()[0]
            finally:
                raw.close()
        if mode != "wal":
            raise StoreBrokenError(
                f"{self.where} cannot keep a write-ahead log (its journal mode is '{mode}'); "
                "put it on a local disk that this user may write to"
            )
        self._file = _identity(self._path)
        with self.write() as connection:
            prepare(connection, self.where, migrations)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that holds the write lock; durable when the block has ended without an error."""
        # SQLite keeps using a file that was deleted or replaced as if nothing had happened. Its writes are lost, and a
        # process that opens the path anew would lead beside us.
        if _identity(self._path) != self._file:
            raise StoreBrokenError(
                f"{self.where} was deleted or replaced while it was open; "
                "stop every node of the cluster, put the file back, and start again"
            )
        with self._mapped(), self._writing.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees everything that was durable when it began."""
        with self._mapped(), self._reading.begin() as connection:
            yield connection

    def close(self) -> None:
        self._reading.dispose()
        self._writing.dispose()

    # Nodes are on one host, leases are timed by the observers' own clocks, and a file reports no changes.

    def look(self, connection: Connection, cluster_id: str) -> tuple[Leadership, bool]:
        return read_leadership(connection, cluster_id), False

    def lock(self, connection: Connection, cluster_id: str) -> tuple[Leadership, Epoch]:
        row = rows.read_leadership(_driver_of(connection), cluster_id)  # the whole database is already locked
        return row, Epoch(row.epoch + 1)

    def value(self, connection: Connection, cluster_id: str, path: str) -> Stored | None:
        return rows.read_value(_driver_of(connection), cluster_id, path)

    def versions(self, connection: Connection, cluster_id: str, paths: Collection[str]) -> dict[str, int]:
        return rows.read_versions(_driver_of(connection), cluster_id, paths)

    def carry_out(self, connection: Connection, cluster_id: str, batch: Batch) -> None:
        rows.write_batch(_driver_of(connection), cluster_id, batch)

    def listen(self, cluster_id: str, on_change: Callable[[], None]) -> Listening | None:
        return None

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._error(error.orig) from error
        except sqlite3.Error as error:  # raised while connecting; SQLAlchemy does not wrap it
            raise self._error(error) from error
        except PoolTimeoutError as error:
            raise StoreUnavailableError(f"{self.where} is busy; it may work later ({error})") from error
        except SQLAlchemyError as error:
            raise self._error(error) from error

    def _error(self, error: BaseException | None) -> StoreError:
        # Extended codes carry the general one in their lowest byte.
        extended = getattr(error, "sqlite_errorcode", 0)
        # Without space for the shared memory beside the file the disk is full too, though SQLite reports something else.
        code = sqlite3.SQLITE_FULL if extended == sqlite3.SQLITE_IOERR_SHMSIZE else extended & 0xFF
        if code in _BUSY:
            return StoreUnavailableError(f"{self.where} is locked by another process; it may work later ({error})")
        if code in _BROKEN:
            what, fix = _BROKEN[code]
            kind = StoreFailingError if code in _FAILING else StoreBrokenError
            return kind(f"{self.where} {what} ({error}); {fix}")
        if code == sqlite3.SQLITE_TOOBIG or isinstance(error, sqlite3.DataError):
            return StoreError(f"{self.where} refused a value ({error}); store a smaller one")
        return StoreBrokenError(f"{self.where} cannot be used ({error}); restore it from a backup")

    def _engine(self, begin: str, *, connections: int) -> Engine:
        engine = create_engine(
            URL.create("sqlite", database=str(self._path)),
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            # Connections are used by one thread at a time, but not always by the one that made them.
            connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT, "isolation_level": None},
        )

        @event.listens_for(engine, "connect")
        def connected(connection: sqlite3.Connection, _: Any) -> None:
            cursor = connection.cursor()
            # With these an acknowledged write survives a power loss; the second one is for macOS.
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute("PRAGMA fullfsync=ON")
            cursor.close()

        @event.listens_for(engine, "begin")
        def begun(connection: Connection) -> None:
            _driver_of(connection).execute(begin)

        return engine


def _driver_of(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _path_of(url: URL | str) -> Path:
    name = parse(url).database or ""
    if not name or name == ":memory:" or name.startswith("file:"):
        fix = "write sqlite:////absolute/path.db"
        raise InvalidConfigError(
            [Problem("does not name a regular file, and nothing else is durable", fix, field=FIELD)]
        )
    return Path(name).absolute()


def _create_private(path: Path) -> None:
    """Make an empty file that only its owner can read; SQLite gives its log files the same mode. An existing file stays."""
    try:
        private_dir(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except FileExistsError:
        if path.is_file():
            return
        raise StoreBrokenError(
            f"the database {path} is not a file; set high-availability.sql.url to another path"
        ) from None
    except OSError as error:
        raise StoreBrokenError(
            f"cannot create the database {path} ({error.strerror}); make its directory writable for this user, "
            "or set high-availability.sql.url to another path"
        ) from error


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _patiently(action: Callable[[], None]) -> None:
    """Retry while the file is busy. SQLite's own timeout does not cover the switch to a write-ahead log, for which two
    processes may compete that open the file at once."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            return action()
        except StoreUnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
