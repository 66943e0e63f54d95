"""Bridges, links and namespaces, made and removed by `ip`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from firesteel_chaos.controlled import ChaosError

PREFIX = "fst-"
BRIDGE = f"{PREFIX}bridge"
SUBNET = "10.77.0"
MACHINE = 254
"""The number of this machine on the bridge."""
NOBODY = "02:fe:77:00:ff:ff"


class Direction(StrEnum):
    IN = "in"
    OUT = "out"
    BOTH = "both"


def link_address(number: int) -> str:
    return f"02:fe:77:00:00:{number:02x}"


def ip(*lines: str, namespace: str | None = None) -> None:
    """Run these commands of `ip`, all in one go. Raises ChaosError with what it said."""
    where = [] if namespace is None else ["-n", namespace]
    done = subprocess.run(
        ["ip", *where, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        raise ChaosError(f"ip {' ; '.join(lines)}: {done.stdout}{done.stderr}".strip())


def connect(namespace: str, number: int) -> None:
    """Make a namespace with a line to the bridge."""
    port = f"{PREFIX}{number}"
    ip(
        f"netns add {namespace}",
        f"link add {port} type veth peer name eth0 address {link_address(number)} netns {namespace}",
        f"link set {port} master {BRIDGE}",
        f"link set {port} up",
    )
    quiet(None, port)
    quiet(namespace, "all")
    ip("link set lo up", f"addr add {SUBNET}.{number}/24 dev eth0", "link set eth0 up", namespace=namespace)


def disconnect(number: int) -> None:
    """Pull the plug: nothing that the host still says reaches anybody, not even that its connections end.

    Both ends go. The namespace could not be relied on for that: it lives until its last connection has given up.
    """
    with contextlib.suppress(ChaosError):
        ip(f"link del {PREFIX}{number}")


def quiet(namespace: str | None, device: str) -> None:
    """Without IPv6, whose link-local addresses would be found by neighbours that were told a wrong link address."""
    inside = [] if namespace is None else ["ip", "netns", "exec", namespace]
    file = f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6"
    subprocess.run([*inside, "sh", "-c", f"if [ -e {file} ]; then echo 1 > {file}; fi"], check=True, timeout=30)


def know(namespace: str | None, device: str, addresses: Mapping[int, str]) -> None:
    lines = [f"neigh replace {SUBNET}.{n} lladdr {a} dev {device} nud permanent" for n, a in addresses.items()]
    ip(*lines, namespace=namespace)


def remove_leftovers() -> None:
    """Of networks that nobody holds the lock for: processes, namespaces, links."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True, timeout=30).stdout
    for name in (line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)):
        for pid in _processes_in(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ip(f"netns del {name}")
    # The links of namespaces go with them, but not at once.
    links = (p.name for p in Path("/sys/class/net").glob(f"{PREFIX}*"))
    for link in sorted(links, key=lambda name: name == BRIDGE):
        with contextlib.suppress(ChaosError):
            ip(f"link del {link}")


def _processes_in(namespace: str) -> list[int]:
    asked = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False, timeout=30)
    return [int(word) for word in asked.stdout.split()]
