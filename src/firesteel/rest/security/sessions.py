"""Sessions of browsers, which cannot send a bearer token: a link that works once, and then a cookie (S48).

Whoever has proven who they are asks for a link, or shows a token to the page of the dashboard. A link is good for one browser
and for a minute. Both leave a cookie in the browser that scripts do not see and other sites cannot make it send. Nothing here
is written down: a node that restarts knows no session, and one that somebody stole from a disk does not exist.
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
"""Where there is TLS. Browsers take a cookie of that name only from the very host, and never without TLS."""
LINK_SECONDS = 60.0
SESSION_SECONDS = 8 * 3600.0
MOST_LINKS = 100
MOST_SESSIONS = 1000


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: Principal
    until: float


class Sessions:
    """Lives on one event loop. The oldest go when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: dict[str, _Entry] = {}
        self._sessions: dict[str, _Entry] = {}

    def link(self, principal: Principal) -> str:
        """A code that begins one session as `principal`."""
        return _add(self._links, _Entry(principal, self._clock() + LINK_SECONDS), MOST_LINKS)

    def begin(self, code: str) -> str | None:
        """The value of a new cookie; None when the code was used before, is too old, or was never given."""
        entry = self._links.pop(_key(code), None)
        if entry is None or entry.until < self._clock():
            return None
        return self.start(entry.principal)

    def start(self, principal: Principal) -> str:
        """The value of a new cookie, for one who has just proven who they are."""
        return _add(self._sessions, _Entry(principal, self._clock() + SESSION_SECONDS), MOST_SESSIONS)

    def end(self, cookie: str) -> None:
        """The session of that cookie is over, if there is one."""
        self._sessions.pop(_key(cookie), None)

    def principal(self, cookie: str) -> Principal | None:
        """Whose session it is."""
        entry = self._sessions.get(_key(cookie))
        return entry.principal if entry is not None and entry.until >= self._clock() else None


def _add(entries: dict[str, _Entry], entry: _Entry, most: int) -> str:
    while len(entries) >= most:
        del entries[next(iter(entries))]
    secret = secrets.token_urlsafe(32)
    entries[_key(secret)] = entry
    return secret


def _key(secret: str) -> str:
    """What is compared is not the secret: how long that takes tells nothing about it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def cookie_name(*, tls: bool) -> str:
    return SECURE_COOKIE if tls else COOKIE


def set_cookie(value: str, *, tls: bool, seconds: float = SESSION_SECONDS) -> str:
    secure = "; Secure" if tls else ""
    attributes = f"Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{secure}"
    return f"{cookie_name(tls=tls)}={value}; {attributes}"


def forget_cookie(*, tls: bool) -> str:
    """Has a browser throw the cookie away."""
    return set_cookie("", tls=tls, seconds=0)


def cookie_of(header: str, *, tls: bool) -> str | None:
    """The session's cookie in a Cookie header; None when it is not there once."""
    name = cookie_name(tls=tls)
    pairs = (part.strip().partition("=") for part in header.split(";"))
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else None
