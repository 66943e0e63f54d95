"""The statements that each job needs several times, sent straight to SQLite.

The overhead of SQLAlchemy is many times the cost of the statement itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from operator import attrgetter

from firesteel.ha.protocols import Stored
from firesteel.ha.sql.batch import Batch, Leadership, Written

_LEADERSHIP = """
    SELECT epoch, holder, host, pid, process_started, renewals, address, last_version
    FROM firesteel_leadership WHERE cluster_id = ?
"""
_SET_LEADERSHIP = """
    UPDATE firesteel_leadership
    SET epoch = ?, holder = ?, host = ?, pid = ?, process_started = ?, renewals = ?, address = ?, last_version = ?
    WHERE cluster_id = ?
"""
_COLUMNS = attrgetter("epoch", "holder", "host", "pid", "process_started", "renewals", "address", "last_version")
_VERSION = "SELECT version FROM firesteel_state WHERE cluster_id = ? AND path = ?"
_VALUE = "SELECT value, version FROM firesteel_state WHERE cluster_id = ? AND path = ?"
_INSERT = "INSERT INTO firesteel_state (value, version, cluster_id, path) VALUES (?, ?, ?, ?)"
_UPDATE = "UPDATE firesteel_state SET value = ?, version = ? WHERE cluster_id = ? AND path = ?"
_DELETE = "DELETE FROM firesteel_state WHERE cluster_id = ? AND path = ?"


def read_leadership(connection: sqlite3.Connection, cluster_id: str) -> Leadership:
    row = connection.execute(_LEADERSHIP, (cluster_id,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"the row of cluster '{cluster_id}' is missing")
    return Leadership(*row)


def read_value(connection: sqlite3.Connection, cluster_id: str, path: str) -> Stored | None:
    row = connection.execute(_VALUE, (cluster_id, path)).fetchone()
    return None if row is None else Stored(*row)


def read_versions(connection: sqlite3.Connection, cluster_id: str, paths: Collection[str]) -> dict[str, int]:
    """The versions of the existing paths."""
    found = ((path, connection.execute(_VERSION, (cluster_id, path)).fetchone()) for path in paths)
    return {path: row[0] for path, row in found if row is not None}


def write_batch(connection: sqlite3.Connection, cluster_id: str, batch: Batch) -> None:
    """Write the changes of the batch."""
    for path, change in batch.changes.items():
        match change:
            case Written(value, version):
                statement = _UPDATE if batch.existed(path) else _INSERT
                connection.execute(statement, (value, version, cluster_id, path))
            case None if batch.existed(path):
                connection.execute(_DELETE, (cluster_id, path))
            case None:
                pass  # made and removed in this same transaction
    if batch.leadership_changed:
        connection.execute(_SET_LEADERSHIP, (*_COLUMNS(batch.leadership), cluster_id))
