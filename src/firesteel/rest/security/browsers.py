"""Requests that a browser sends on behalf of a foreign page: DNS rebinding, forged requests, tokens in links.

These checks do not identify the caller; they keep a page from using what its visitor can reach (S14, S28).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from firesteel.config.sections import RestOptions, SecurityOptions
from firesteel.ip_addresses import ip_of
from firesteel.rest.security.addresses import LOOPBACK_NAMES, host_of, is_wildcard, origin_of
from firesteel.rest.security.refusal import Headers, RequestRefused

_QUERY_SECRETS = frozenset({"token", "access_token", "id_token", "authorization", "bearer"})
_TOKEN = re.compile(r"fst_[0-9a-z]{1,64}[._]|eyJ[\w-]{8,}\.[\w-]{2,}\.")
_READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_CHANGING_GETS = ("/yarn-cancel", "/yarn-stop")
"""Paths of Flink's contract that change something on GET."""
MULTIPART = "multipart/form-data"
_SIMPLE_TYPES = frozenset({"text/plain", "application/x-www-form-urlencoded", MULTIPART})
"""Content types that a page may send anywhere without a preflight; it may also send none."""


def is_mutating(method: str, path: str) -> bool:
    return method not in _READING or path.rstrip("/").endswith(_CHANGING_GETS)


class Hosts:
    """The host names that this node accepts. A page could give any other name the node's address (DNS rebinding)."""

    def __init__(self, rest: RestOptions, security: SecurityOptions) -> None:
        named = [rest.address or "", *security.allowed_hosts]
        if not is_wildcard(rest.bind_address):
            named.append(rest.bind_address)
        self._names = LOOPBACK_NAMES | {_spelled(name) for name in named if name}

    def check(self, headers: Sequence[str], server: tuple[str, int | None] | None) -> str:
        """Check the Host headers of a request."""
        if len(headers) != 1:
            raise RequestRefused(400, "The request must have exactly one Host header.")
        host = host_of(headers[0])
        if host is None:
            raise RequestRefused(400, "The Host header is not a valid host.")
        # An address cannot be rebound: a page that was loaded from it came from this node.
        here = server is not None and ip_of(host) is not None and ip_of(host) == ip_of(server[0])
        if host not in self._names and not here:
            raise RequestRefused(
                421,
                f"This node does not answer for the host {host}; add it to security.rest.allowed-hosts if it should.",
            )
        return headers[0]


def _spelled(name: str) -> str:
    address = ip_of(name)
    return str(address) if address is not None else name.lower().removesuffix(".")


class Origins:
    """The pages that may send requests: the node's own, and configured ones."""

    def __init__(self, security: SecurityOptions) -> None:
        self._named = frozenset(o for text in security.allowed_origins if (o := origin_of(text)) is not None)

    def check(self, headers: Mapping[str, str], *, host: str, scheme: str, mutating: bool) -> str | None:
        """The foreign origin that may send this request; None when it does not come from a foreign page."""
        sent = headers.get("origin")
        if sent is not None:
            origin = origin_of(sent)
            if origin is None or (origin not in self._named and origin != origin_of(f"{scheme}://{host}")):
                raise RequestRefused(
                    403, "Pages of this origin may not send requests; see security.rest.allowed-origins."
                )  # the origin itself is the attacker's text
            return origin if origin in self._named else None
        # Without an Origin it is a link, an image or a script, or it does not come from a browser. Browsers tell which.
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if elsewhere and (mutating or headers.get("sec-fetch-mode") != "navigate"):
            raise RequestRefused(403, "Pages of other sites may not send requests to this node.")
        return None


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    return method == "OPTIONS" and "access-control-request-method" in headers


def cors_headers(origin: str) -> Headers:
    """The headers that let a page of `origin` see the answer."""
    return ((b"access-control-allow-origin", origin.encode("ascii")), (b"vary", b"Origin"))


PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"600"),
)
"""What a page of an allowed origin may send."""


def check_query(query: bytes) -> None:
    """Refuse tokens in URLs: a URL ends up in logs, histories and referrers."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if any(name.lower().strip() in _QUERY_SECRETS or _TOKEN.match(name) or _TOKEN.match(text) for name, text in pairs):
        raise RequestRefused(
            400, "Do not put a token into a URL; send it as 'Authorization: Bearer ...', and revoke this one."
        )


def check_own_page(headers: Mapping[str, str]) -> None:
    """Check a change within a browser session: the Origin, which `Origins` has verified, must be this node's own page."""
    if headers.get("origin") is None and headers.get("sec-fetch-site") != "same-origin":
        raise RequestRefused(
            403, "Only pages of this node may make changes in a browser session; send a token instead of a cookie."
        )


def check_content_type(content_type: str, *, required: bool, upload: bool = False) -> None:
    """Check a change by a caller that the browser authenticates: allow only what a foreign page cannot send unasked.

    Args:
        required: Whether a type must be given: a page can send a body without one.
        upload: Whether forms are allowed, as for uploads of programs; a program that a page uploads is not run.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if (kind in _SIMPLE_TYPES and not (upload and kind == MULTIPART)) or (required and not kind):
        raise RequestRefused(415, "Send 'Content-Type: application/json'.")
