"""Hosts and URLs as text: which of them stay on this machine, and which can be trusted."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

from firesteel.ip_addresses import ip_of, is_loopback

_REMEMBERED = 1024
"""Cached, as every request names a host, nearly always the same one."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)


@lru_cache(_REMEMBERED)
def network_of(peer: str) -> str:
    """The network of an address, for counting. A client with IPv6 has billions of addresses, so its network counts as one."""
    address = ip_of(peer)
    if address is None or address.version == 4:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False))


def is_wildcard(host: str) -> bool:
    """Whether listening on `host` means listening on every address."""
    address = ip_of(host)
    return not host if address is None else address.is_unspecified


@lru_cache(_REMEMBERED)
def host_of(authority: str) -> str | None:
    """The host in `host`, `host:port`, `[ipv6]` or `[ipv6]:port`, normalised for comparison; None if it is malformed."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]{2,45}\]|[^\s:/@\[\]?#\\]{1,253})(?::[0-9]{1,5})?", authority)
    if found is None:
        return None
    host = found[1].lower().removesuffix(".")
    if host.startswith("["):
        address = ip_of(host)
        return None if address is None else str(address)
    return host if _NAME.fullmatch(host) else None


@lru_cache(_REMEMBERED)
def origin_of(text: str) -> str | None:
    """`scheme://host[:port]`, normalised for comparison and without a default port; None if it is malformed."""
    found = re.fullmatch(r"(https?)://([^/?#@\s]+)", text.lower())
    if found is None or (host := host_of(found[2])) is None:
        return None
    scheme = found[1]
    _, colon, port = found[2].rpartition(":")
    port = port if colon and port.isdigit() else ""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" + (f":{int(port)}" if port and int(port) != {"http": 80, "https": 443}[scheme] else "")


def is_trustworthy(url: str) -> bool:
    """Whether answers from `url` cannot be tampered with in transit: https, or http that stays on this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # raises if the port is not a number
    except ValueError:
        return False
    if not host or parts.username is not None or parts.password is not None or any(c.isspace() for c in url):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
