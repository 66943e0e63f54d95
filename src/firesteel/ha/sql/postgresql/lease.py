"""Leases by the database's own clock.

The row says when the lease ends, by the clock of the server that wrote it. So a contender that has just started can take
over at once from a leader that is long gone, where otherwise it would have to watch the row for a whole lease. It does so
only when

- the same server wrote it: after a failover or a restart the clock may be another one, an hour ahead of the first (F12);
- the holder has no session at the server: a holder that lives and renews has one, and must not be replaced because the
  clock of the server was set forward. A suspended holder has one too.

Otherwise it watches with its own clock, as on every database; so a server whose clock was set back, or a session that stays
on the server after its host is gone, costs one lease and no more. One case is left: the clock is set forward at the moment
when a live leader is cut off from the database and another contender starts. The first may then trust its lease for two
thirds of it beside the second. In the store that changes nothing: every write locks the row and compares its epoch, in
which no clock has a part.

A failover can lose commits where no standby is synchronous, and with them the newest epochs. They would be granted a second
time, and two leaders would have one epoch. So the first epoch that a server grants on a row that another server wrote, or
the same server before a restart, is far beyond the one in the row.
"""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import Column, Connection, DateTime, MetaData, String, text

from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.batch import Leadership
from firesteel.ha.sql.schema import metadata

EPOCHS_THAT_MAY_BE_LOST = 1000
CHANNEL = "firesteel_leadership"

tables = MetaData()
"""Our tables, with the columns that only PostgreSQL has."""
for _table in metadata.sorted_tables:
    _table.to_metadata(tables)
for _column in (
    Column("expires_at", DateTime(timezone=True)),
    # The server that wrote it, identified by the start time of its process.
    Column("server", String(64)),
    # The mark of the holder's sessions.
    Column("session", String(64)),
):
    tables.tables["firesteel_leadership"].append_column(_column)

_ROW = ", ".join(f"l.{f.name}" for f in fields(Leadership))
_FROM = "FROM firesteel_leadership AS l WHERE l.cluster_id = :cluster_id"
_THIS_SERVER = "CAST(extract(epoch FROM pg_postmaster_start_time()) AS text)"
_CONNECTED = "EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.application_name = l.session)"
_OVER = f"l.expires_at <= clock_timestamp() AND l.server = {_THIS_SERVER} AND NOT {_CONNECTED}"
_LOOK = text(f"SELECT {_ROW}, coalesce({_OVER}, false) {_FROM}")
_LOCK = text(f"SELECT {_ROW}, coalesce(l.server = {_THIS_SERVER}, true) {_FROM} FOR UPDATE")
_BEGIN = text(
    f"UPDATE firesteel_leadership SET expires_at = clock_timestamp() + make_interval(secs => :seconds), "
    f"server = {_THIS_SERVER}, session = :session WHERE cluster_id = :cluster_id"
)
_TELL = text("SELECT pg_notify(:channel, :cluster_id)")


def look(connection: Connection, cluster_id: str) -> tuple[Leadership, bool]:
    """The row, and whether its lease has certainly expired."""
    *row, over = connection.execute(_LOOK, {"cluster_id": cluster_id}).one()
    return Leadership(*row), over


def lock(connection: Connection, cluster_id: str) -> tuple[Leadership, Epoch]:
    """The row, locked so that no other leader comes between check and write, and the epoch to grant next."""
    *row, same_server = connection.execute(_LOCK, {"cluster_id": cluster_id}).one()
    found = Leadership(*row)
    return found, Epoch(found.epoch + (1 if same_server else EPOCHS_THAT_MAY_BE_LOST))


def begin_lease(connection: Connection, cluster_id: str, *, seconds: float, session: str) -> None:
    """Start a lease now. The holder counts from the moment before it asked."""
    connection.execute(_BEGIN, {"cluster_id": cluster_id, "seconds": seconds, "session": session})


def tell(connection: Connection, cluster_id: str) -> None:
    """Wake the listeners once the transaction is committed."""
    connection.execute(_TELL, {"channel": CHANNEL, "cluster_id": cluster_id})
