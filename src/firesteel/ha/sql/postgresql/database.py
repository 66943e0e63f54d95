"""The database on a PostgreSQL server, or on several servers of which one is writable."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from firesteel.errors import StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.protocols import Epoch, Stored
from firesteel.ha.sql.batch import Batch, Leadership
from firesteel.ha.sql.database import READERS, repeated
from firesteel.ha.sql.postgresql import lease
from firesteel.ha.sql.postgresql.connection import LimitedConnection, connect
from firesteel.ha.sql.postgresql.errors import connect_error, server_error
from firesteel.ha.sql.postgresql.listener import NotificationListener
from firesteel.ha.sql.postgresql.target import Target
from firesteel.ha.sql.schema import MIGRATIONS, Migration, prepare
from firesteel.ha.sql.tables import read_value, read_versions, write_batch

OLDEST_SERVER = 12
"""The first version with tcp_user_timeout."""
PREPARING_SECONDS = 60.0
"""How long a node waits for another node that makes or migrates the tables."""
_PREPARING = 4051935116308290327
"""The advisory lock for making or migrating the tables; an arbitrary number."""

logger = logging.getLogger(__name__)


class PostgreSqlDatabase:
    """Made by `open`. Its methods block: call them in threads, never on the event loop."""

    def __init__(self, target: Target, *, lease_duration: float) -> None:
        self.where = target.where
        self._target = target
        self._lease = lease_duration
        self._opening = True
        self._writing = self._engine("READ COMMITTED", connections=1, reading=False)
        # Each statement is a transaction: there is no BEGIN and no COMMIT to wait for.
        self._reading = self._engine("AUTOCOMMIT", connections=READERS, reading=True)

    @staticmethod
    def open(
        url: URL | str, *, lease_duration: float, migrations: Sequence[Migration] = MIGRATIONS
    ) -> PostgreSqlDatabase:
        """Raises like open_database."""
        database = PostgreSqlDatabase(Target.of(url, lease_duration=lease_duration), lease_duration=lease_duration)
        try:
            repeated(partial(database._prepare, migrations))
        except BaseException:  # raised again; nothing else closes the connections
            database.close()
            raise
        database._opening = False
        return database

    def _prepare(self, migrations: Sequence[Migration]) -> None:
        with self.write() as connection:
            driver = _driver_of(connection)
            if (version := driver.info.server_version // 10_000) < OLDEST_SERVER:
                raise StoreBrokenError(f"{self.where} is PostgreSQL {version}; use {OLDEST_SERVER} or a newer one")
            self._warn_of_losses(connection)
            patience, driver.patience = driver.patience, PREPARING_SECONDS
            try:
                for name in ("statement_timeout", "lock_timeout"):
                    limit = f"{PREPARING_SECONDS - 5:.0f}s"
                    connection.execute(text("SELECT set_config(:name, :value, true)"), {"name": name, "value": limit})
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PREPARING})
                prepare(connection, self.where, migrations, lease.tables)
            finally:
                driver.patience = patience

    def _warn_of_losses(self, connection: Connection) -> None:
        asked = text(
            "SELECT current_setting('synchronous_commit'), current_setting('fsync'), "
            "current_setting('synchronous_standby_names')"
        )
        commit, fsync, standbys = connection.execute(asked).one()
        if commit == "off":
            logger.warning(
                "%s has synchronous_commit off for this user: acknowledged jobs can be lost when it crashes; "
                "turn it on for the user or the database",
                self.where,
            )
        if fsync == "off":
            logger.warning("%s has fsync off: a crash of its machine can destroy it; turn it on", self.where)
        if self._target.several_hosts and commit != "off" and (not standbys or commit == "local"):
            logger.warning(
                "%s does not wait for a standby: a failover can lose acknowledged jobs; "
                "set synchronous_standby_names, and synchronous_commit to on",
                self.where,
            )

    # -- transactions ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        committing = False
        try:
            with self._connected(self._writing) as connection, connection.begin() as transaction:
                yield connection
                driver = _driver_of(connection)
                driver.warned = False
                committing = True
                transaction.commit()
        except (SQLAlchemyError, psycopg.Error) as error:
            raise self._error(error, committing=committing) from error
        if driver.warned:
            raise StoreUnavailableError(
                f"{self.where} has the last writes, but a standby may not, as the wait for it was cancelled; write again"
            )

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        try:
            with self._connected(self._reading) as connection:
                yield connection
        except (SQLAlchemyError, psycopg.Error) as error:
            raise self._error(error, committing=False) from error

    def close(self) -> None:
        self._reading.dispose()
        self._writing.dispose()

    def _connected(self, engine: Engine) -> Connection:
        try:
            return engine.connect()
        except (SQLAlchemyError, psycopg.Error) as error:
            cause = _cause(error)
            assert cause is not None
            raise connect_error(cause, self.where, opening=self._opening) from error

    def _error(self, error: Exception, *, committing: bool) -> StoreError:
        cause = _cause(error)
        if cause is None:  # a row that must exist is missing
            return StoreBrokenError(f"{self.where} is not as Firesteel left it ({error}); restore it from a backup")
        if cause.sqlstate == psycopg.errors.ReadOnlySqlTransaction.sqlstate:
            # The next connection goes to a writable server, if there is one.
            self._writing.dispose()
            self._reading.dispose()
        return server_error(cause, self.where, committing=committing)

    def _engine(self, isolation_level: str, *, connections: int, reading: bool) -> Engine:
        return create_engine(
            "postgresql+psycopg://",
            creator=partial(connect, self._target, reading=reading),
            isolation_level=isolation_level,
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            use_native_hstore=False,  # otherwise each engine queries it
            hide_parameters=True,  # errors are logged, and values belong to users
        )

    # -- leadership -----------------------------------------------------------------------------------------------

    def look(self, connection: Connection, cluster_id: str) -> tuple[Leadership, bool]:
        return lease.look(connection, cluster_id)

    def lock(self, connection: Connection, cluster_id: str) -> tuple[Leadership, Epoch]:
        return lease.lock(connection, cluster_id)

    def value(self, connection: Connection, cluster_id: str, path: str) -> Stored | None:
        return read_value(connection, cluster_id, path)

    def versions(self, connection: Connection, cluster_id: str, paths: Collection[str]) -> dict[str, int]:
        return read_versions(connection, cluster_id, paths)

    def carry_out(self, connection: Connection, cluster_id: str, batch: Batch) -> None:
        with _driver_of(connection).pipeline():  # one round trip for everything
            write_batch(connection, cluster_id, batch)
            if batch.lease_renewed:
                lease.begin_lease(connection, cluster_id, seconds=self._lease, session=self._target.session)
            if batch.leader_changed:
                lease.tell(connection, cluster_id)

    def listen(self, cluster_id: str, on_change: Callable[[], None]) -> NotificationListener:
        return NotificationListener(self._target, cluster_id, on_change)


def _driver_of(connection: Connection) -> LimitedConnection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, LimitedConnection)
    return driver


def _cause(error: Exception) -> psycopg.Error | None:
    found = error.orig if isinstance(error, DBAPIError) else error
    return found if isinstance(found, psycopg.Error) else None
