"""Hosts that are spelled as addresses, and which of them only this machine reaches."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_REMEMBERED = 1024
"""Every request names a host, nearly always the same one."""


@lru_cache(_REMEMBERED)
def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in `host`, if it is not a name; an IPv4 address inside an IPv6 one counts as itself."""
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost may be anywhere."""
    address = ip_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback
