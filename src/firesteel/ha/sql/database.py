"""What the store and the election need of a database; and which one a URL names."""

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
"""Connections that only read, beside the one that writes."""
ATTEMPTS = 3

T = TypeVar("T")
logger = logging.getLogger(__name__)


class UndoneError(StoreUnavailableError):
    """Certainly nothing was written, and to try once more at once is worth it: a deadlock, a connection found dead."""


class Database(Protocol):
    """An open database with our tables. Its methods block: they are for threads, never for the event loop."""

    where: str
    """Its name in messages, without any secret."""

    def write(self) -> AbstractContextManager[Connection]:
        """A transaction whose writes are durable when the block has ended without an error.

        Raises UndoneError, StoreUnavailableError (the writes may have been done, or not), StoreBrokenError, or StoreError
        for a value that is not to the database's liking.
        """
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """Statements in here see all that was acknowledged before they began."""
        ...

    def look(self, connection: Connection, cluster_id: str) -> tuple[Leadership, bool]:
        """Who leads; and whether the database is certain, by a clock of its own, that the lease has run out."""
        ...

    def lock(self, connection: Connection, cluster_id: str) -> tuple[Leadership, Epoch]:
        """Who leads, so that nobody else can change it before this transaction ends; and the epoch to grant next, which
        was never granted before."""
        ...

    def value(self, connection: Connection, cluster_id: str, path: str) -> Stored | None: ...

    def versions(self, connection: Connection, cluster_id: str, paths: Collection[str]) -> dict[str, int]:
        """Of those paths that are there."""
        ...

    def carry_out(self, connection: Connection, cluster_id: str, batch: Batch) -> None:
        """Write the rows of the batch, and whatever else a change of leadership asks for."""
        ...

    def listen(self, cluster_id: str, on_change: Callable[[], None]) -> Listening | None:
        """Call `on_change`, from a thread, when another leader may have come or one may have gone; None if that cannot be
        had. Some changes will not be heard of: looking now and then stays necessary."""
        ...

    def close(self) -> None: ...


def open_database(url: URL | str, *, lease_duration: float) -> Database:
    """The database at `url`, with tables of our version.

    Raises:
        InvalidConfigError: The URL is none, names a kind of database that is not supported, or lacks something.
        StoreBrokenError: It cannot be used. What is there is left as it is.
        StoreUnavailableError: It is out of reach or busy, and stayed so.
    """
    # Each is imported when it is used: the driver of the other need not be installed.
    if backend_of(url) == "sqlite":
        from firesteel.ha.sql.sqlite import SqliteDatabase

        return SqliteDatabase.open(url)
    from firesteel.ha.sql.postgresql import open_postgresql

    return open_postgresql(url, lease_duration=lease_duration)


def repeated(action: Callable[[], T]) -> T:
    """Once more, and once more again, when `action` left nothing behind and may well work now."""
    for _ in range(ATTEMPTS - 1):
        try:
            return action()
        except UndoneError as error:
            logger.info("tried again at once: %s", error)
    return action()
