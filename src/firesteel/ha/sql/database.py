"""The interface of a database for the store and the election, and the function that opens one by its URL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy import URL, Connection

from firesteel.errors import StoreUnavailableError
from firesteel.ha.changes import Listening
from firesteel.ha.protocols import Epoch, Stored
from firesteel.ha.sql.batch import Batch, Leadership
from firesteel.ha.sql.url import backend_of

READERS = 2
"""The number of connections that only read, in addition to the one that writes."""
ATTEMPTS = 3

T = TypeVar("T")
logger = logging.getLogger(__name__)


class UndoneError(StoreUnavailableError):
    """Nothing was written, for certain, and an immediate retry may succeed, as after a deadlock or on a dead connection."""


class Database(Protocol):
    """An open database with our tables. Its methods block: call them in threads, never on the event loop."""

    where: str
    """The name of the database in messages, without secrets."""

    def write(self) -> AbstractContextManager[Connection]:
        """A transaction whose writes are durable when the block has ended without an error.

        Raises UndoneError, StoreUnavailableError (the writes may have been done, or not), StoreBrokenError, or StoreError
        for a value that the database refuses.
        """
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """Statements in this block see everything that was acknowledged before they began."""
        ...

    def look(self, connection: Connection, cluster_id: str) -> tuple[Leadership, bool]:
        """The leader, and whether the database is certain, by its own clock, that the lease has expired."""
        ...

    def lock(self, connection: Connection, cluster_id: str) -> tuple[Leadership, Epoch]:
        """The leader, locked against changes until this transaction ends, and the epoch to grant next, which was never
        granted before."""
        ...

    def value(self, connection: Connection, cluster_id: str, path: str) -> Stored | None: ...

    def versions(self, connection: Connection, cluster_id: str, paths: Collection[str]) -> dict[str, int]:
        """The versions of the existing paths."""
        ...

    def carry_out(self, connection: Connection, cluster_id: str, batch: Batch) -> None:
        """Write the rows of the batch, and what else a change of leadership requires."""
        ...

    def listen(self, cluster_id: str, on_change: Callable[[], None]) -> Listening | None:
        """Call `on_change`, from a thread, when the leader may have changed; None if the database cannot do that. Some
        changes may be missed, so polling is still necessary."""
        ...

    def close(self) -> None: ...


def open_database(url: URL | str, *, lease_duration: float) -> Database:
    """Open the database at `url`, with tables of our version.

    Raises:
        InvalidConfigError: The URL is malformed, incomplete, or names an unsupported kind of database.
        StoreBrokenError: The database cannot be used. It is left unchanged.
        StoreUnavailableError: It was out of reach or busy for too long.
    """
    # Each module is imported when it is used: the driver of the other need not be installed.
    if backend_of(url) == "sqlite":
        from firesteel.ha.sql.sqlite import SqliteDatabase

        return SqliteDatabase.open(url)
    from firesteel.ha.sql.postgresql import open_postgresql

    return open_postgresql(url, lease_duration=lease_duration)


def repeated(action: Callable[[], T]) -> T:
    """Repeat `action` up to twice when it failed without any effect and may succeed now."""
    for _ in range(ATTEMPTS - 1):
        try:
            return action()
        except UndoneError as error:
            logger.info("trying again: %s", error)
    return action()
