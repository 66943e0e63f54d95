"""Limits on the number of connections of a node, and which of them are closed when there are too many (S43).

Anyone who can reach the port can open connections without a credential, and each takes a descriptor that the store and the
engines need as well. So the total and the number per address are limited. Unauthenticated connections are closed first:
the oldest one of the address that has most of them. All of this happens at the listener, before TLS and HTTP.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from firesteel.rest.security.addresses import network_of

logger = logging.getLogger(__name__)

PROVED = "firesteel.proved"
"""In the extensions of a scope: a function to call once the caller of a connection is authenticated."""
RESERVE = 256
"""The minimum of descriptors kept for the store, engines, drivers and files; a quarter of all if that is more."""
LEAST = 16
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_QUIET_SECONDS = 10.0
"""Seconds between two log lines about refused connections."""


def room_for(wanted: int) -> int:
    """The number of connections to allow, at most `wanted`: a part of the descriptors is reserved."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(LEAST, min(wanted, soft - max(RESERVE, soft // 4)))


class OpenConnection:
    """An open connection."""

    def __init__(self, descriptor: int, peer: str, end: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self.peer = peer
        self.end = end
        self.proved = False


class Connections:
    """The open connections. It knows no sockets: `end` of a connection closes it, and `closed` reports that it is closed."""

    def __init__(self, most: int, per_peer: int) -> None:
        self.most = most
        self.per_peer = per_peer
        self._open: dict[int, OpenConnection] = {}
        """Connections by their descriptors."""
        self._peers: Counter[str] = Counter()
        self._strangers: dict[str, dict[OpenConnection, None]] = {}
        """Unauthenticated connections by address, in the order of their arrival."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: OpenConnection) -> bool:
        """Admit a connection, closing another one if there are too many. False if there are too many and none can be closed."""
        peer = connection.peer
        if self._peers[peer] >= self.per_peer and not self._shed(peer):
            return False
        if len(self._open) >= self.most and not self.shed():
            return False
        self._open[connection.descriptor] = connection
        self._peers[peer] += 1
        self._strangers.setdefault(peer, {})[connection] = None
        return True

    def prove(self, descriptor: int) -> None:
        """Mark a connection as authenticated."""
        connection = self._open.get(descriptor)
        if connection is not None and not connection.proved:
            connection.proved = True
            self._forget(connection)

    def closed(self, connection: OpenConnection) -> None:
        if self._open.get(connection.descriptor) is not connection:
            return
        del self._open[connection.descriptor]
        self._peers[connection.peer] -= 1
        if not self._peers[connection.peer]:
            del self._peers[connection.peer]
        if not connection.proved:
            self._forget(connection)

    def shed(self) -> bool:
        """Close the oldest unauthenticated connection of the address that has most of them."""
        return bool(self._strangers) and self._shed(max(self._strangers, key=lambda p: len(self._strangers[p])))

    def _shed(self, peer: str) -> bool:
        victim = next(iter(self._strangers.get(peer, ())), None)
        if victim is None:
            return False
        self.closed(victim)
        victim.end()
        return True

    def _forget(self, connection: OpenConnection) -> None:
        strangers = self._strangers[connection.peer]
        del strangers[connection]
        if not strangers:
            del self._strangers[connection.peer]


class _Accepted(socket.socket):
    """A socket that reports when it is closed."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
        super().close()


class GuardedListener(socket.socket):
    """A listening socket that limits the number of connections. Belongs to the event loop of its node."""

    def __init__(self, listener: socket.socket, connections: Connections) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._connections = connections
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        """A spare descriptor, released for a moment to refuse a connection when there is no other."""
        self._told = float("-inf")
        self._turned_away = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError when no connection is waiting, or the one that was has been refused."""
        try:
            fd, address = self._accept()  # type: ignore[attr-defined]  # as in socket.socket.accept
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._connections.shed()
            self._turn_away_without_room(error)
            raise BlockingIOError from None
        accepted = _Accepted(self.family, self.type, self.proto, fileno=fd)
        connection = OpenConnection(fd, network_of(address[0] if address else ""), lambda: _hang_up(accepted))
        if not self._connections.admit(connection):
            accepted.close()
            self._tell("too many connections")
            raise BlockingIOError
        accepted.on_close = lambda: self._connections.closed(connection)
        return accepted, address

    def close(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        super().close()

    def _turn_away_without_room(self, error: OSError) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
            with contextlib.suppress(OSError):
                os.close(self._accept()[0])  # type: ignore[attr-defined]  # as above
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._tell(str(error.strerror))

    def _tell(self, why: str) -> None:
        self._turned_away += 1
        if time.monotonic() - self._told >= _QUIET_SECONDS:
            logger.warning("%s: %d connections were refused", why, self._turned_away)
            self._told, self._turned_away = time.monotonic(), 0


def _hang_up(accepted: socket.socket) -> None:
    """Shut the connection down; the event loop notices and closes it."""
    with contextlib.suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
