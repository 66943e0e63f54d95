"""The servers, the user and the timeouts of a connection."""

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
    """Made by `of`. Its parameters hold a password and are never shown."""

    parameters: dict[str, Any] = field(repr=False)
    """Parameters of libpq."""
    where: str
    """The name of the database in messages."""
    several_hosts: bool
    patience: float
    """After so many seconds of silence, a server with a pending request is given up."""
    session: str
    """The mark of this process's sessions on the server; never reused."""

    @staticmethod
    def of(url: URL | str, *, lease_duration: float) -> Target:
        """Raises InvalidConfigError, whose message does not repeat the URL."""
        parameters = _parse(url)
        # A quarter of the lease: a leader whose connection died silently has time for another one.
        patience = min(max(lease_duration / 4, _LEAST_PATIENCE), _MOST_PATIENCE)
        session = f"firesteel-{uuid.uuid4().hex}"
        hosts = str(parameters.get("host") or parameters.get("hostaddr") or "").split(",")
        ports = str(parameters.get("port") or "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        at = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
        defaults = {
            # Of several hosts, the writable one; a read-only server is of no use to a leader.
            "target_session_attrs": "read-write",
            "connect_timeout": str(max(2, round(patience))),
            # For idle connections: a peer that is gone is noticed all the same.
            "keepalives_idle": "5",
            "keepalives_interval": "2",
            "keepalives_count": "3",
            "tcp_user_timeout": str(round(patience * 1000)),
        }
        # These are fixed: by the name of a session other nodes see that we live.
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
    rest = _hosts_of_sqlalchemy(rest.replace(" ", "%20"))  # SQLAlchemy keeps spaces, libpq does not accept them
    try:
        # libpq's own parser: SQLAlchemy's supports one host only.
        parameters = {
            key: value for key, value in conninfo_to_dict(f"postgresql://{rest}").items() if value is not None
        }
    except psycopg.Error:
        raise _unparsable(rest) from None
    # Text after an unescaped character is taken for a host, a port or a database.
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
        # A key may be the end of a password: it is only named if it is close to a parameter of libpq, and then by that name.
        if key not in known and (near := difflib.get_close_matches(key, known, 1, cutoff=0.8)):
            return invalid("has an unknown parameter", f"did you mean {near[0]}?")
    return invalid("is not a PostgreSQL URL", _ESCAPED)
