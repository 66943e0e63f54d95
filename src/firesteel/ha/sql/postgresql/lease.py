"""Leases by the database's own clock.

The row says until when the lease lasts, by the clock of the server that wrote it. One who has just come can so take over
at once from a leader that is long gone, where else it would have to watch the row for a whole lease. It does so only when

- the same server wrote it: after a failover or a restart the clock may be another one, an hour ahead of the first (F12);
- the holder has no session at the server: one that lives and renews has, and a server whose clock was set forward must not
  replace it. One that is stopped has one too.

Otherwise it watches, as on every database, with its own clock, and needs nobody's; so a server whose clock was set back,
and a session that stays on the server for a while though its host is gone, cost a lease and not more. What is left is a clock
that is set forward in the same moments in which the leader lives and is cut off from the database, and another contender
starts: the first may then trust its lease for two thirds of it beside the second. In the store that changes nothing:
every write locks the row and compares its epoch, which no clock has a part in.

A failover can lose commits where no standby is synchronous, and with them the newest epochs. They would be granted a second
time, and two leaders would have one epoch. So the first epoch that a server grants on a row that was written by another
server, or by itself before a restart, is a good way beyond the one that it finds.
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
"""Ours, with what is particular to PostgreSQL."""
for _table in metadata.sorted_tables:
    _table.to_metadata(tables)
for _column in (
    Column("expires_at", DateTime(timezone=True)),
    # Which server wrote that: when its process began names it well enough.
    Column("server", String(64)),
    # How the sessions of the holder are marked.
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
    """The row, and whether its lease is over for certain."""
    *row, over = connection.execute(_LOOK, {"cluster_id": cluster_id}).one()
    return Leadership(*row), over


def lock(connection: Connection, cluster_id: str) -> tuple[Leadership, Epoch]:
    """The row, locked: no other leader comes in between check and write. And the epoch to grant next."""
    *row, same_server = connection.execute(_LOCK, {"cluster_id": cluster_id}).one()
    found = Leadership(*row)
    return found, Epoch(found.epoch + (1 if same_server else EPOCHS_THAT_MAY_BE_LOST))


def begin_lease(connection: Connection, cluster_id: str, *, seconds: float, session: str) -> None:
    """From now on. The holder has counted from before it asked for it."""
    connection.execute(_BEGIN, {"cluster_id": cluster_id, "seconds": seconds, "session": session})


def tell(connection: Connection, cluster_id: str) -> None:
    """Wake those who listen, once the transaction is committed."""
    connection.execute(_TELL, {"channel": CHANNEL, "cluster_id": cluster_id})
