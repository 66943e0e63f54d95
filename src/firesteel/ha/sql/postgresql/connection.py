"""One connection, which never waits for ever."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

from firesteel.ha.sql.postgresql.errors import SilenceError
from firesteel.ha.sql.postgresql.target import Target


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself when the server is silent for longer than `patience` while something is asked of it.

    Timeouts of the server and of TCP do not do: a server that is stopped keeps its connections, and a COMMIT that waits
    for a synchronous standby is bound by no timeout at all.
    """

    patience = 10.0
    warned = False
    """Whether the server sent a warning; of a COMMIT it says that a standby may not have it, and calls it done."""

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
    """The same steps; the driver resumes them several times a second, with nothing when nothing came."""
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
    """In autocommit mode; who wants transactions says so to it."""
    connection = LimitedConnection.connect(**target.parameters, autocommit=True)
    try:
        connection.patience = target.patience
        connection.add_notice_handler(connection.heed)
        values = _settings(target, reading=reading)
        connection.execute(_SET, (list(values), list(values.values())))
    except BaseException:  # raised again; the server would keep the connection
        connection.close()
        raise
    return connection


def _settings(target: Target, *, reading: bool) -> dict[str, str]:
    """What the server is to do by itself when we are slow, or gone without a word: let go of the row that all wait for."""
    within = f"{round(target.patience * 0.8 * 1000)}ms"  # before we give up, so that the connection lives on
    return {
        # A long list comes for as long as it comes. It keeps nobody waiting, and silence is noticed here.
        "statement_timeout": "0" if reading else within,
        "lock_timeout": within,
        "idle_in_transaction_session_timeout": within,
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{round(target.patience * 1000)}ms",
    }
