"""Ports for servers that are told where to listen, and begin to listen only seconds later.

A port that the kernel hands out (`bind` to 0) is soon handed out again: to any connection that any process opens meanwhile,
or to the very server that it was meant for, for another purpose. So these come from outside the range of the kernel.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"
_KERNEL_DRAWS_FROM = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Of Linux, and below those of all other systems, which say it elsewhere.
_USUAL_RANGE = (32768, 60999)
# Below, well-known services live.
_LOWEST, _HIGHEST = 20_000, 65_535
_ENOUGH = 1_000
_TRIES = 200


class NoPortError(OSError):
    """So many ports were tried, and none was free."""


def kernel_range() -> tuple[int, int]:
    """The first and the last port that the kernel hands out by itself."""
    try:
        first, last = _KERNEL_DRAWS_FROM.read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return _USUAL_RANGE


def quiet_range(kernel: tuple[int, int]) -> range:
    """Ports that the kernel does not hand out: below its own, else above them; all, when it has taken those too."""
    first, last = kernel
    for found in (range(_LOWEST, first), range(max(_LOWEST, last + 1), _HIGHEST + 1)):
        if len(found) >= _ENOUGH:
            return found
    return range(_LOWEST, _HIGHEST + 1)


def unused_ports(count: int, hosts: Sequence[str] = (LOOPBACK,)) -> list[int]:
    """A number of consecutive ports that are free at these addresses."""
    among = quiet_range(kernel_range())
    for _ in range(_TRIES):
        first = random.choice(among[:-count])  # noqa: S311 - chance, not a secret
        row = list(range(first, first + count))
        with contextlib.ExitStack() as stack:
            try:
                for host in hosts:
                    for port in row:
                        stack.enter_context(socket.create_server((host, port)))
            except OSError:
                continue
            return row
    raise NoPortError(f"no {count} free ports in a row were found in {_TRIES} tries at {', '.join(hosts)}")


def unused_port() -> int:
    return unused_ports(1)[0]
