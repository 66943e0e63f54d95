"""What errors of PostgreSQL mean to us, by their SQLSTATE. Pure."""

from __future__ import annotations

import re

import psycopg

from firesteel.errors import StoreBrokenError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.sql.database import UndoneError


class SilenceError(psycopg.OperationalError):
    """The server owed an answer and gave no sign of life; the connection was closed. What it was asked may be done yet."""


_LOST = ("08", "57P")
"""The connection is gone, or the server is about to go. Of a COMMIT nobody knows whether it was done."""
_UNDONE = {
    "40001": "had to undo it for another transaction",
    "40P01": "had to undo it to end a deadlock",
    "23505": "has just got the same row from another node",
}
_AWAY = {
    "25006": "is read-only now (a standby, or set so); it is looked for again until one can be written to",
    "25P03": "ended a transaction that was at rest for too long",
    "53300": "has no connection left; raise max_connections, or end sessions that nobody needs",
    "53200": "is out of memory",
    "55P03": "is locked by another session for too long; pg_stat_activity shows which",
    "57014": "did not do it in time",
}
_FAILING = {"53100": "its disk is full; make space", "58030": "its disk fails; look at its health"}
_BROKEN = {
    "42501": (
        "does not let this user do it",
        "GRANT it CREATE on the first schema of its search_path, and let it own the tables firesteel_*",
    ),
    "42P01": ("has not the tables that were there", "restore them from a backup, and start the nodes again"),
    "42703": ("has other columns than Firesteel made", "restore its tables from a backup, or install that version"),
    "XX001": ("is damaged", "restore it from a backup"),
    "XX002": ("is damaged", "restore it from a backup, or REINDEX it"),
}
# A server that refuses a connection says why in words only, and in its own language.
_REFUSED = {
    r"password authentication failed|no password supplied|28P01": "set the user and password that it knows",
    r'role ".*" does not exist|no pg_hba\.conf entry|authentication failed': (
        "set a user that may connect from this host, or let it in pg_hba.conf"
    ),
    r'database ".*" does not exist': "CREATE DATABASE it, or name another",
    r"permission denied for database": "GRANT CONNECT ON DATABASE to the user",
    r"certificate verify failed|root certificate file|server certificate for|does not support SSL": (
        "check sslmode, sslrootcert and the host name in the URL against the server's certificate"
    ),
    r"invalid (sslmode|port|integer|connection option|target_session_attrs)|invalid .* value": (
        "correct that parameter of the URL"
    ),
}


def server_error(error: psycopg.Error, where: str, *, committing: bool) -> StoreError:
    """Of a statement, or of a COMMIT (`committing`), on a connection that was there."""
    state = error.sqlstate
    if state is None or state.startswith(_LOST):
        if committing:
            return StoreUnavailableError(
                f"{where} did not say whether it kept the last writes; they may be there or not ({_said(error)})"
            )
        # Nothing was committed; a silent server would be silent once more, all else is worth another connection.
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
    return StoreBrokenError(f"{where} cannot be used ({_said(error)}); look into the log of the server")


def connect_error(error: psycopg.Error, where: str, *, opening: bool) -> StoreError:
    """Of a connection that could not be made.

    When a node starts, a password that is wrong is a mistake in its configuration. Later it is not: it was right once, and
    a server that is being replaced may refuse for a while what it will let in again.
    """
    said = _said(error)
    for pattern, fix in _REFUSED.items():
        if re.search(pattern, said):
            kind = StoreBrokenError if opening else StoreUnavailableError
            return kind(f"{where} cannot be connected to ({said}); {fix}")
    if "session is read-only" in said or "server is in hot standby mode" in said:
        return StoreUnavailableError(f"{where} {_AWAY['25006']} ({said})")
    if re.search(r"too many (clients|connections)|connection slots are reserved", said):
        return StoreUnavailableError(f"{where} {_AWAY['53300']} ({said})")
    return StoreUnavailableError(f"{where} is out of reach; it may work later ({said})")


def _said(error: psycopg.Error) -> str:
    """Its words in one line; psycopg's never hold a password."""
    code = f"{error.sqlstate}: " if error.sqlstate else ""
    return code + "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
