"""Reading and writing rows: all statements, built once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, insert, select, update

from firesteel.ha.protocols import Epoch, Stored
from firesteel.ha.sql.batch import Batch, Leadership, Written
from firesteel.ha.sql.schema import leadership, state

_AT_A_TIME = 500
"""The number of paths in one statement; databases limit it."""

_OF_CLUSTER = state.c.cluster_id == bindparam("in_cluster")
_AT_PATH = and_(_OF_CLUSTER, state.c.path == bindparam("at_path"))
_CHANGED: dict[str, Any] = {"value": bindparam("new_value"), "version": bindparam("new_version")}
_NAMES = [f.name for f in fields(Leadership)]

_LEADERSHIP = select(*(leadership.c[name] for name in _NAMES)).where(leadership.c.cluster_id == bindparam("in_cluster"))
_VERSIONS = select(state.c.path, state.c.version).where(
    _OF_CLUSTER, state.c.path.in_(bindparam("paths", expanding=True))
)
_GET = select(state.c.value, state.c.version).where(_AT_PATH)
_INSERT = insert(state).values(cluster_id=bindparam("in_cluster"), path=bindparam("at_path"), **_CHANGED)
_UPDATE = update(state).where(_AT_PATH).values(**_CHANGED)
_DELETE = delete(state).where(_AT_PATH)
_SET_LEADERSHIP = update(leadership).where(leadership.c.cluster_id == bindparam("in_cluster"))


def ensure_cluster(connection: Connection, cluster_id: str) -> None:
    if connection.execute(_LEADERSHIP, {"in_cluster": cluster_id}).one_or_none() is None:
        nobody = Leadership(Epoch(0), "", "", 0, "", renewals=0, address="", last_version=0)
        connection.execute(insert(leadership), {"cluster_id": cluster_id, **asdict(nobody)})


def forget_cluster(connection: Connection, cluster_id: str) -> None:
    """Remove the row of a cluster that nobody leads and that has no values."""
    values = select(state.c.path).where(state.c.cluster_id == cluster_id)
    of_nobody = and_(leadership.c.cluster_id == cluster_id, leadership.c.holder == "", ~values.exists())
    connection.execute(delete(leadership).where(of_nobody))


def read_leadership(connection: Connection, cluster_id: str) -> Leadership:
    return Leadership(*connection.execute(_LEADERSHIP, {"in_cluster": cluster_id}).one())


def read_versions(connection: Connection, cluster_id: str, paths: Collection[str]) -> dict[str, int]:
    """The versions of the existing paths."""
    wanted = sorted(paths)
    found: dict[str, int] = {}
    for start in range(0, len(wanted), _AT_A_TIME):
        some = wanted[start : start + _AT_A_TIME]
        rows = connection.execute(_VERSIONS, {"in_cluster": cluster_id, "paths": some})
        found.update((path, version) for path, version in rows)
    return found


def read_value(connection: Connection, cluster_id: str, path: str) -> Stored | None:
    row = connection.execute(_GET, {"in_cluster": cluster_id, "at_path": path}).one_or_none()
    return Stored(*row) if row else None


def read_below(connection: Connection, cluster_id: str, prefix: str) -> dict[str, Stored]:
    query = select(state.c.path, state.c.value, state.c.version).where(_below(cluster_id, prefix))
    return {path: Stored(value, version) for path, value, version in connection.execute(query.order_by(state.c.path))}


def read_paths_below(connection: Connection, cluster_id: str, prefix: str) -> list[str]:
    query = select(state.c.path).where(_below(cluster_id, prefix)).order_by(state.c.path)
    return list(connection.execute(query).scalars())


def _below(cluster_id: str, prefix: str) -> ColumnElement[bool]:
    after_slash = chr(ord("/") + 1)  # a range can use an index, and LIKE treats `_` as a wildcard
    return and_(state.c.cluster_id == cluster_id, state.c.path > f"{prefix}/", state.c.path < f"{prefix}{after_slash}")


def write_batch(connection: Connection, cluster_id: str, batch: Batch) -> None:
    """Write the changes of the batch."""
    inserts: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    deletes: list[dict[str, Any]] = []
    for path, change in batch.changes.items():
        at = {"in_cluster": cluster_id, "at_path": path}
        match change:
            case Written(value, version):
                row = {**at, "new_value": value, "new_version": version}
                (updates if batch.existed(path) else inserts).append(row)
            case None if batch.existed(path):
                deletes.append(at)
            case None:
                pass  # made and removed in this same transaction
    for statement, rows in ((_INSERT, inserts), (_UPDATE, updates), (_DELETE, deletes)):
        if rows:
            connection.execute(statement, rows)
    if batch.leadership_changed:
        connection.execute(_SET_LEADERSHIP.values(**asdict(batch.leadership)), {"in_cluster": cluster_id})
