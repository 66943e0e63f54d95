"""The meaning of PostgreSQL's errors, by their SQLSTATE. Pure."""

from __future__ import annotations

import re

import psycopg

from firesteel.errors import StoreBrokenError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.sql.database import UndoneError


class SilenceError(psycopg.OperationalError):
    """The server did not answer and the connection was closed. The request may still be carried out."""


_LOST = ("08", "57P")
"""The connection is lost, or the server is shutting down. Whether a COMMIT was done is unknown."""
_UNDONE = {
    "40001": "rolled it back in favour of another transaction",
    "40P01": "rolled it back to resolve a deadlock",
    "23505": "already has the row, from another node",
}
_AWAY = {
    "25006": "is read-only now (a standby, or set to it); retrying until a server is writable",
    "25P03": "ended a transaction that was idle for too long",
    "53300": "has no connection slots left; raise max_connections, or end unused sessions",
    "53200": "is out of memory",
    "55P03": "was locked by another session for too long; see pg_stat_activity",
    "57014": "did not do it in time",
}
_FAILING = {"53100": "its disk is full; free space", "58030": "its disk fails; check the disk"}
_BROKEN = {
    "42501": (
        "denies this to the user",
        "GRANT the user CREATE on the first schema of its search_path, and make it the owner of the tables firesteel_*",
    ),
    "42P01": ("lacks tables that existed before", "restore them from a backup, and start the nodes again"),
    "42703": ("has unknown columns", "restore its tables from a backup, or install the version that made them"),
    "XX001": ("is damaged", "restore it from a backup"),
    "XX002": ("is damaged", "restore it from a backup, or REINDEX it"),
}
# A server that refuses a connection gives the reason as text only, in its own language.
_REFUSED = {
    r"password authentication failed|no password supplied|28P01": "set the right user and password",
    r'role ".*" does not exist|no pg_hba\.conf entry|authentication failed': (
        "set a user that may connect from this host, or allow it in pg_hba.conf"
    ),
    r'database ".*" does not exist': "create it with CREATE DATABASE, or name another",
    r"permission denied for database": "GRANT CONNECT ON DATABASE to the user",
    r"certificate verify failed|root certificate file|server certificate for|does not support SSL": (
        "check sslmode, sslrootcert and the host name in the URL against the server's certificate"
    ),
    r"invalid (sslmode|port|integer|connection option|target_session_attrs)|invalid .* value": (
        "correct that parameter of the URL"
    ),
}


def server_error(error: psycopg.Error, where: str, *, committing: bool) -> StoreError:
    """The error for a statement, or for a COMMIT (`committing`), on an established connection."""
    state = error.sqlstate
    if state is None or state.startswith(_LOST):
        if committing:
            return StoreUnavailableError(
                f"{where} did not confirm the last writes; they may or may not have happened ({_said(error)})"
            )
        # Nothing was committed. A silent server would stay silent; after other errors a new connection may help.
        kind = StoreUnavailableError if isinstance(error, SilenceError) else UndoneError
        return kind(f"the connection to {where} was lost; it may work later ({_said(error)})")
    if state in _UNDONE:
        return UndoneError(f"{where} {_UNDONE[state]} ({_said(error)})")
    if state in _AWAY:
        return StoreUnavailableError(f"{where} {_AWAY[state]} ({_said(error)})")
    if state in _FAILING:
        return StoreFailingError(f"{where} cannot be written to: {_FAILING[state]} ({_said(error)})")
    if state in _BROKEN:
        what, fix = _BROKEN[state]
        return StoreBrokenError(f"{where} {what} ({_said(error)}); {fix}")
    if state.startswith(("22", "54")):
        return StoreError(f"{where} refused a value ({_said(error)}); store a smaller one")
    if state.startswith(("53", "40", "XX", "58")):
        return StoreUnavailableError(f"{where} could not do it; it may work later ({_said(error)})")
    return StoreBrokenError(f"{where} cannot be used ({_said(error)}); check the server's log")


def connect_error(error: psycopg.Error, where: str, *, opening: bool) -> StoreError:
    """The error for a connection that could not be made.

    When a node starts, a wrong password is a mistake in its configuration. Later it is not: it was right before, and a
    server that is being replaced may refuse it for a while.
    """
    said = _said(error)
    for pattern, fix in _REFUSED.items():
        if re.search(pattern, said):
            kind = StoreBrokenError if opening else StoreUnavailableError
            return kind(f"cannot connect to {where} ({said}); {fix}")
    if "session is read-only" in said or "server is in hot standby mode" in said:
        return StoreUnavailableError(f"{where} {_AWAY['25006']} ({said})")
    if re.search(r"too many (clients|connections)|connection slots are reserved", said):
        return StoreUnavailableError(f"{where} {_AWAY['53300']} ({said})")
    return StoreUnavailableError(f"{where} is out of reach; it may work later ({said})")


def _said(error: psycopg.Error) -> str:
    """The error text in one line; psycopg's never holds a password."""
    code = f"{error.sqlstate}: " if error.sqlstate else ""
    return code + "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
