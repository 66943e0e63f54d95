"""An interactive Spark session: kept until its user ends it, or has run nothing for a while.

The user's own process (a notebook, a shell) talks to the engine directly, not through this module. The session outlives
that process, so a notebook that was restarted finds its views again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import grpc

from firesteel.spark_connect.operation import Outcome, error_class
from firesteel.spark_connect.session import RECONNECT_SECONDS

LONGEST_PAUSE = 2.0
SHORTEST_PAUSE = 0.05
_ENDED = ("INVALID_HANDLE.SESSION_CLOSED", "INVALID_HANDLE.SESSION_NOT_FOUND", "INVALID_HANDLE.SESSION_CHANGED")


class SessionEnd(Enum):
    IDLE = "nothing was run in it for its idle time"
    CLOSED = "its user ended it"


class Watched(Protocol):
    """The part of EngineSession that is used here."""

    def operations(self) -> dict[str, Outcome]: ...

    def streams(self) -> bool: ...


class Idleness:
    """How long nothing was run, as far as periodic checks can tell."""

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._since = now
        self._known: frozenset[str] = frozenset()

    def see(self, operations: dict[str, Outcome], now: float) -> bool:
        """Take note of what was run; whether the limit is reached."""
        if operations.keys() - self._known or Outcome.RUNNING in operations.values():
            self._since = now
        self._known = frozenset(operations)
        return now - self._since >= self._limit

    def begin_again(self, operations: dict[str, Outcome], now: float) -> None:
        """The session is in use after all; `operations` are those of the check itself."""
        self._known |= frozenset(operations)
        self._since = now


def keep(
    session: Watched,
    idle_timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> SessionEnd:
    """Return when the session is idle or was ended. Raises what the engine says when it cannot be asked."""
    pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, idle_timeout / 10))
    idleness = Idleness(idle_timeout, clock())
    lost_since: float | None = None
    while True:
        sleep(pause)
        try:
            if idleness.see(session.operations(), clock()):
                # Looking for streams is something that runs, so it is left for when it matters.
                if not session.streams():
                    return SessionEnd.IDLE
                idleness.begin_again(session.operations(), clock())
            lost_since = None
        except Exception as error:
            if error_class(_text(error)) in _ENDED:
                return SessionEnd.CLOSED
            lost_since = clock() if lost_since is None else lost_since
            if clock() - lost_since > RECONNECT_SECONDS:
                raise


def _text(error: Exception) -> str:
    return (error.details() or "") if isinstance(error, grpc.RpcError) else str(error)
