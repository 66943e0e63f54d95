"""Which servers, as whom, and how long to wait for them: everything that a connection is made with."""

from __future__ import annotations

import difflib
import re
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from sqlalchemy import URL

from firesteel.ha.sql.url import invalid

_FORM = "write postgresql://user:password@host:5432,host2:5432/database"
_ESCAPED = f"{_FORM}, with @ : / ? # and % in the password as %40 %3A %2F %3F %23 and %25"
_LEAST_PATIENCE, _MOST_PATIENCE = 1.0, 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """Made by `of`. Its parameters hold a password and are shown to nobody."""

    parameters: dict[str, Any] = field(repr=False)
    """As libpq has them."""
    where: str
    """For messages."""
    several_hosts: bool
    patience: float
    """Seconds without a sign of life after which a server that owes an answer is given up."""
    session: str
    """How the sessions of this process are marked on the server; never used again."""

    @staticmethod
    def of(url: URL | str, *, lease_duration: float) -> Target:
        """Raises InvalidConfigError, without a word of what the URL says."""
        parameters = _parse(url)
        # A quarter of the lease: a leader whose connection has died without a word has time for another one.
        patience = min(max(lease_duration / 4, _LEAST_PATIENCE), _MOST_PATIENCE)
        session = f"firesteel-{uuid.uuid4().hex}"
        hosts = str(parameters.get("host") or parameters.get("hostaddr") or "").split(",")
        ports = str(parameters.get("port") or "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        at = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
        defaults = {
            # Of several hosts, the one that can be written to; a server that is read-only now is none to lead by.
            "target_session_attrs": "read-write",
            "connect_timeout": str(max(2, round(patience))),
            # For connections that are silent because nothing is asked: a peer that is gone is noticed all the same.
            "keepalives_idle": "5",
            "keepalives_interval": "2",
            "keepalives_count": "3",
            "tcp_user_timeout": str(round(patience * 1000)),
        }
        # Marks, not wishes: how a session is called is how others see that we live.
        marks = {"application_name": session}
        return Target(
            parameters={**defaults, **parameters, **marks},
            where=f"the database {parameters.get('dbname') or 'of the user'} at {at or 'the default host'}",
            several_hosts=len(hosts) > 1,
            patience=patience,
            session=session,
        )


def _parse(url: URL | str) -> dict[str, Any]:
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    _, _, rest = text.partition("://")
    rest = _hosts_of_sqlalchemy(rest.replace(" ", "%20"))  # SQLAlchemy leaves spaces, libpq wants none
    try:
        # libpq's own parser: SQLAlchemy's knows one host only.
        parameters = {
            key: value for key, value in conninfo_to_dict(f"postgresql://{rest}").items() if value is not None
        }
    except psycopg.Error:
        raise _unparsable(rest) from None
    # What stands after a character that was not escaped is taken for a host, a port or a database.
    host, port, name = (str(parameters.get(key) or "") for key in ("host", "port", "dbname"))
    if "@" in host.lstrip("@") or "@" in name or not re.fullmatch(r"[0-9,]*", port):
        raise invalid("is not a PostgreSQL URL", _ESCAPED)
    if not name:
        raise invalid("names no database", _FORM)
    return parameters


def _hosts_of_sqlalchemy(rest: str) -> str:
    """SQLAlchemy spells several hosts as `?host=a:1&host=b:2`, libpq as `?host=a,b&port=1,2`."""
    before, mark, query = rest.partition("?")
    hosts = [unquote(host) for host in re.findall(r"(?:^|(?<=&))host=([^&]*)", query)]
    if not hosts or not any(":" in host for host in hosts):
        return rest
    others = [part for part in query.split("&") if part and not part.startswith("host=")]
    names = ",".join(host.partition(":")[0] for host in hosts)
    ports = ",".join(host.partition(":")[2] or "5432" for host in hosts)
    return f"{before}{mark}{'&'.join([f'host={names}', f'port={ports}', *others])}"


def _unparsable(rest: str) -> Exception:
    known = [option.keyword.decode() for option in Conninfo.get_defaults()]
    for part in rest.rpartition("?")[2].split("&"):
        key = part.partition("=")[0]
        # Only what is nearly one of libpq's own is named, and by its right name: a key may be the end of a password.
        if key not in known and (near := difflib.get_close_matches(key, known, 1, cutoff=0.8)):
            return invalid("has a parameter that PostgreSQL does not know", f"write {near[0]} if you mean that")
    return invalid("is not a PostgreSQL URL", _ESCAPED)
