"""`high-availability.sql.url`. Messages never repeat the URL: it may hold a password, even in the wrong place."""

from __future__ import annotations

import re

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from firesteel.errors import InvalidConfigError, Problem

FIELD = "high-availability.sql.url"
FIX = "write sqlite:////absolute/path.db or postgresql://user:password@host:5432/database"
POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
"""Accepted schemes. The second is the spelling of some providers; the third names the only driver that is supported."""


def backend_of(url: URL | str) -> str:
    """`sqlite` or `postgresql`. Raises InvalidConfigError for everything else."""
    scheme = url.drivername if isinstance(url, URL) else url.partition("://")[0]
    if not re.fullmatch(r"[a-z0-9_+]+", scheme) or scheme == url:
        raise invalid("is not a database URL")
    if scheme in POSTGRESQL:
        return "postgresql"
    kind, _, driver = scheme.partition("+")
    if kind in POSTGRESQL:
        raise invalid(f"names the driver '{driver}', which is not supported", "write postgresql:// without a driver")
    if kind != "sqlite":
        raise invalid(f"databases of type '{kind}' are not supported")
    return kind


def parse(url: URL | str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise invalid("is not a database URL") from None


def invalid(message: str, fix: str = FIX) -> InvalidConfigError:
    return InvalidConfigError([Problem(message, fix, field=FIELD)])
