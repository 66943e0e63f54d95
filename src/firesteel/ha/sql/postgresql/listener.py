"""Notifications of leadership changes: a connection that only does LISTEN."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable

import psycopg

from firesteel.concurrency import Backoff
from firesteel.ha.sql.postgresql.connection import LimitedConnection, connect
from firesteel.ha.sql.postgresql.lease import CHANNEL
from firesteel.ha.sql.postgresql.target import Target

QUIET_SECONDS = 10.0
"""After this much silence it checks that the server still answers."""
_BACKOFF = Backoff(0.2, 5.0)

logger = logging.getLogger(__name__)


class NotificationListener:
    """A thread with its own connection, which is reopened when it breaks. Users of it have to poll from time to time as well.

    It also notifies when a connection was made or lost, as a change may have been missed.
    """

    def __init__(self, target: Target, cluster_id: str, on_change: Callable[[], None]) -> None:
        self._target = target
        self._cluster_id = cluster_id
        self._on_change = on_change
        self._awake, self._wake = socket.socketpair()
        self._stopped = threading.Event()
        # A daemon, because a process that is told to exit must not wait for an unreachable server.
        self._thread = threading.Thread(target=self._work, name="ha-sql-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.close()  # the thread notices this unless it is just connecting
        self._thread.join(1.0)

    def _work(self) -> None:
        delays = _BACKOFF.delays()
        while not self._stopped.is_set():
            try:
                with contextlib.closing(connect(self._target)) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    delays = _BACKOFF.delays()
                    self._on_change()
                    self._hear(connection)
            except (psycopg.Error, OSError) as error:
                if not self._stopped.is_set():
                    logger.info("%s sends no notifications for now: %s", self._target.where, error)
                    self._on_change()
            self._stopped.wait(next(delays))
        self._awake.close()

    def _hear(self, connection: LimitedConnection) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._awake, selectors.EVENT_READ)
            while True:
                ready = selector.select(QUIET_SECONDS)
                if self._stopped.is_set():
                    return
                if not ready:
                    connection.execute("SELECT 1")  # notifications that came with the answer are read below
                told = [notification.payload for notification in connection.notifies(timeout=0)]
                if self._cluster_id in told:
                    self._on_change()
