"""A connection that never waits forever."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

from firesteel.ha.sql.postgresql.errors import SilenceError
from firesteel.ha.sql.postgresql.target import Target


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself when the server is silent for longer than `patience` while a request is pending.

    Timeouts of the server and of TCP are not enough: a suspended server keeps its connections, and no timeout applies to a
    COMMIT that waits for a synchronous standby.
    """

    patience = 10.0
    warned = False
    """Whether the server sent a warning. On a COMMIT it means that a standby may not have the data."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().wait(_limited(gen, self.patience), *args, **kwargs)
        except SilenceError:
            self.close()
            raise

    def heed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warned = True


def _limited(gen: Any, patience: float) -> Generator[Any, Any, Any]:
    """The same steps with a time limit; the driver resumes them several times a second, even if nothing arrived."""
    try:
        step = next(gen)
        since = time.monotonic()
        while True:
            ready = yield step
            if ready:
                since = time.monotonic()
            elif time.monotonic() - since > patience:
                raise SilenceError(f"the server gave no answer for {patience:g} s")
            step = gen.send(ready)
    except StopIteration as end:
        return end.value


_SET = "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS settings(name, value)"


def connect(target: Target, *, reading: bool = False) -> LimitedConnection:
    """Open a connection in autocommit mode; callers that want transactions start them explicitly."""
    connection = LimitedConnection.connect(**target.parameters, autocommit=True)
    try:
        connection.patience = target.patience
        connection.add_notice_handler(connection.heed)
        values = _settings(target, reading=reading)
        connection.execute(_SET, (list(values), list(values.values())))
    except BaseException:  # raised again; otherwise the server would keep the connection
        connection.close()
        raise
    return connection


def _settings(target: Target, *, reading: bool) -> dict[str, str]:
    """Timeouts with which the server itself releases the row that all wait for, when we are slow or gone."""
    within = f"{round(target.patience * 0.8 * 1000)}ms"  # before we give up, so that the connection stays usable
    return {
        # A long list may take as long as it takes: it blocks nothing, and silence is noticed here.
        "statement_timeout": "0" if reading else within,
        "lock_timeout": within,
        "idle_in_transaction_session_timeout": within,
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{round(target.patience * 1000)}ms",
    }
