"""A database on PostgreSQL, for nodes on several hosts. Only this package imports the driver."""

from __future__ import annotations

from sqlalchemy import URL

from firesteel.errors import InvalidConfigError, Problem
from firesteel.ha.sql.database import Database
from firesteel.ha.sql.url import FIELD


def open_postgresql(url: URL | str, *, lease_duration: float) -> Database:
    """Raises like open_database."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        problem = Problem(
            f"PostgreSQL needs a driver, which is not installed ({error})",
            'run pip install "firesteel[postgresql]" on every node',
            field=FIELD,
        )
        raise InvalidConfigError([problem]) from error
    from firesteel.ha.sql.postgresql.database import PostgreSqlDatabase

    return PostgreSqlDatabase.open(url, lease_duration=lease_duration)
