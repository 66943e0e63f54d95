"""The tables, and the migration of databases of older versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    inspect,
    select,
    update,
)

from firesteel.errors import StoreBrokenError

metadata = MetaData()

# Paths are compared byte by byte on every database: prefixes are ranges, and lists are in the order of paths.
_Path = String(1024).with_variant(String(1024, collation="C"), "postgresql")

state = Table(
    "firesteel_state",
    metadata,
    Column("cluster_id", String(255), primary_key=True),
    Column("path", _Path, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("version", BigInteger, nullable=False),
)

leadership = Table(
    "firesteel_leadership",
    metadata,
    Column("cluster_id", String(255), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("process_started", String(255), nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("address", String(1024), nullable=False),
    Column("last_version", BigInteger, nullable=False),
)
"""One row per cluster, made when the cluster is first opened. Writers take turns by locking it."""

meta = Table(
    "firesteel_meta",
    metadata,
    # Always 1: there is one row.
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
)

Migration = Callable[[Connection], None]

MIGRATIONS: Sequence[Migration] = ()
"""The n-th migration takes a database from version n to n + 1. Never change a released one; append."""


def prepare(
    connection: Connection, where: str, migrations: Sequence[Migration] = MIGRATIONS, tables: MetaData = metadata
) -> None:
    """Make the tables in an empty database, or migrate existing ones to our version, in one transaction.

    Args:
        tables: The tables to make, for a database that has additional columns.

    Raises:
        StoreBrokenError: The database has a newer version, or is not ours. It is left unchanged.
    """
    ours = len(migrations) + 1
    there = inspect(connection).get_table_names()
    if meta.name not in there:
        # A PostgreSQL database may well be shared, but foreign tables in an SQLite file mean that it is the wrong file.
        if there and connection.dialect.name == "sqlite":
            raise StoreBrokenError(
                f"{where} is not a Firesteel database: it holds the tables {', '.join(sorted(there))}; "
                "set high-availability.sql.url to another file"
            )
        tables.create_all(connection)
        connection.execute(meta.insert().values(id=1, schema_version=ours))
        return
    found = connection.execute(select(meta.c.schema_version)).scalar_one_or_none()
    if found is None or found < 1:
        raise StoreBrokenError(f"{where} has no schema version; restore it from a backup, or use another database")
    if found > ours:
        raise StoreBrokenError(
            f"{where} was written by a newer Firesteel (schema version {found}; this one knows {ours}); "
            "install that version or a later one"
        )
    for migrate in migrations[found - 1 :]:
        migrate(connection)
    # Even if it has our version: an error about a read-only database should come now.
    connection.execute(update(meta).values(schema_version=ours))
