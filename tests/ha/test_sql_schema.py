"""Databases of older versions become ours, whole or not at all."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from firesteel.errors import StoreBrokenError
from firesteel.ha.sql.schema import MIGRATIONS, Migration
from firesteel.ha.sql.sqlite import SqliteDatabase as Database


def version(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(text("SELECT schema_version FROM firesteel_meta")).scalar_one())


def columns(database: Database) -> set[str]:
    with database.read() as connection:
        return {row[1] for row in connection.execute(text("PRAGMA table_info(firesteel_state)"))}


def adds(name: str) -> Migration:
    return lambda connection: _add(connection, name)


def _add(connection: Connection, name: str) -> None:
    connection.execute(text(f"ALTER TABLE firesteel_state ADD COLUMN {name} TEXT"))


def fails(_: Connection) -> None:
    raise RuntimeError("migration failed")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database of version 1, with a row."""
    made = f"sqlite:///{tmp_path / 'cluster.db'}"
    with contextlib.closing(Database.open(made, ())) as database, database.write() as connection:
        connection.execute(text("INSERT INTO firesteel_state VALUES ('c', 'a', x'00', 7)"))
    return made


def test_version_of_ours_counts_the_migrations(tmp_path: Path) -> None:
    with contextlib.closing(Database.open(f"sqlite:///{tmp_path / 'cluster.db'}")) as database:
        assert version(database) == len(MIGRATIONS) + 1


def test_migrations_run_once_in_order_and_keep_the_rows(url: str) -> None:
    with contextlib.closing(Database.open(url, (adds("b"),))) as database:
        assert version(database) == 2
    with contextlib.closing(Database.open(url, (adds("b"), adds("c"), adds("d")))) as database:
        assert version(database) == 4
        assert columns(database) >= {"b", "c", "d"}
        with database.read() as connection:
            assert connection.execute(text("SELECT version FROM firesteel_state")).scalar_one() == 7


def test_migration_that_fails_changes_nothing(url: str) -> None:
    with pytest.raises(RuntimeError, match="migration failed"):
        Database.open(url, (adds("b"), fails))
    with contextlib.closing(Database.open(url, ())) as database:
        assert version(database) == 1
        assert "b" not in columns(database)


def test_older_firesteel_refuses_what_a_newer_one_has_migrated(url: str) -> None:
    Database.open(url, (adds("b"),)).close()
    with pytest.raises(StoreBrokenError, match="schema version 2; this one knows 1"):
        Database.open(url, ())
