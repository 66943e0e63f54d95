"""Sessions of browsers, which cannot send a bearer token: a link that works once, then a cookie (S48).

An authenticated caller asks for a link, or enters a token on the page of the dashboard. A link is valid for one browser and
one minute. Both set a cookie that scripts cannot read and other sites cannot make the browser send. Sessions are kept in
memory only: a restarted node has none, and none can be stolen from a disk.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from firesteel.rest.security.principals import Principal

COOKIE = "firesteel-session"
SECURE_COOKIE = "__Host-firesteel-session"
"""The cookie's name with TLS. Browsers accept a cookie of that name only from the same host, and never without TLS."""
LINK_SECONDS = 60.0
SESSION_SECONDS = 8 * 3600.0
MOST_LINKS = 100
MOST_SESSIONS = 1000


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: Principal
    until: float


class Sessions:
    """The sessions of one node. Belongs to one event loop. The oldest are dropped when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: dict[str, _Entry] = {}
        self._sessions: dict[str, _Entry] = {}

    def link(self, principal: Principal) -> str:
        """A code that starts one session as `principal`."""
        return _add(self._links, _Entry(principal, self._clock() + LINK_SECONDS), MOST_LINKS)

    def begin(self, code: str) -> str | None:
        """The value of a new cookie; None when the code is unknown, expired or already used."""
        entry = self._links.pop(_key(code), None)
        if entry is None or entry.until < self._clock():
            return None
        return self.start(entry.principal)

    def start(self, principal: Principal) -> str:
        """The value of a new cookie, for a caller that was just authenticated."""
        return _add(self._sessions, _Entry(principal, self._clock() + SESSION_SECONDS), MOST_SESSIONS)

    def end(self, cookie: str) -> None:
        """End the session of that cookie, if there is one."""
        self._sessions.pop(_key(cookie), None)

    def principal(self, cookie: str) -> Principal | None:
        """The principal of a session."""
        entry = self._sessions.get(_key(cookie))
        return entry.principal if entry is not None and entry.until >= self._clock() else None


def _add(entries: dict[str, _Entry], entry: _Entry, most: int) -> str:
    while len(entries) >= most:
        del entries[next(iter(entries))]
    secret = secrets.token_urlsafe(32)
    entries[_key(secret)] = entry
    return secret


def _key(secret: str) -> str:
    """A hash is compared instead of the secret, so that timing reveals nothing about it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def cookie_name(*, tls: bool) -> str:
    return SECURE_COOKIE if tls else COOKIE


def set_cookie(value: str, *, tls: bool, seconds: float = SESSION_SECONDS) -> str:
    secure = "; Secure" if tls else ""
    attributes = f"Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{secure}"
    return f"{cookie_name(tls=tls)}={value}; {attributes}"


def forget_cookie(*, tls: bool) -> str:
    """A header that deletes the cookie."""
    return set_cookie("", tls=tls, seconds=0)


def cookie_of(header: str, *, tls: bool) -> str | None:
    """The session's cookie in a Cookie header; None when it is missing or repeated."""
    name = cookie_name(tls=tls)
    pairs = (part.strip().partition("=") for part in header.split(";"))
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else None
