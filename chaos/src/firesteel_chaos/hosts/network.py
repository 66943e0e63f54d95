"""A bridge, the hosts on it, and who hears whom.

    with HostNetwork(directory, ["a", "b", "c"]) as network:
        network["a"].start(["python", "-m", "http.server", "--bind", network["a"].address])
        network["a"].cut_off()                       # nobody hears it, and it hears nobody
        network["a"].cut_off(Direction.OUT)          # it hears the others, and they do not hear it
        network.heal()

All are in 10.77.0.0/24, which is reached from this machine only: the machine itself has the last address, and nothing is
forwarded. Every host knows the link address of every other by heart. To cut a line, one of them is told a wrong one: its
packets then reach nobody, in silence, as on a network that loses them, in this one direction and for open connections too.
It needs no packet filter, which not every kernel has.

One network at a time is on a machine; a second one waits for the first to end. What an earlier one left behind is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Self

from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.hosts.host import StagedHost
from firesteel_chaos.hosts.links import (
    BRIDGE,
    MACHINE,
    NOBODY,
    SUBNET,
    Direction,
    ip,
    know,
    link_address,
    quiet,
    remove_leftovers,
)

LOCK = Path(tempfile.gettempdir()) / "firesteel-hosts.lock"
LOCK_SECONDS = 600.0
COMMANDS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}
"""And the packages of Debian that have them."""


def missing() -> tuple[str, str] | None:
    """What such a network needs and is not here, and how to get it; None when nothing is missing."""
    if not sys.platform.startswith("linux"):
        return "Linux, for hosts in network namespaces", "use a container or a virtual machine"
    if os.geteuid() != 0:
        return "the right to make network namespaces", "run as root, in a container or a virtual machine"
    for command, package in COMMANDS.items():
        if shutil.which(command) is None:
            return f"the command '{command}'", f"apt-get install {package}"
    return None


class HostNetwork:
    """Entered, the hosts are up. Left, they and all that ran on them are gone.

    Args:
        root: below it are the files of the hosts: `hosts/<name>` is seen by each as `local`, and `shared` by all.
    """

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root = root.absolute()
        self.local = self.root / "local"
        """The path of each host's own files, as processes on that host see it."""
        self.shared = self.root / "shared"
        self.address = f"{SUBNET}.{MACHINE}"
        """Of this machine, where servers can be that belong to no host."""
        for directory in (self.local, self.shared, self.root / "hosts"):
            directory.mkdir(parents=True, exist_ok=True)
        self._hosts = {name: StagedHost(self, name, number) for number, name in enumerate(names, start=1)}
        self._deaf: set[tuple[int, int]] = set()
        """(speaker, listener): what the first says does not reach the second."""
        self._lock: IO[str] | None = None

    def __getitem__(self, name: str) -> StagedHost:
        return self._hosts[name]

    def __iter__(self) -> Iterator[StagedHost]:
        return iter(self._hosts.values())

    def __enter__(self) -> Self:
        lack = missing()
        if lack is not None:
            raise ChaosError(f"{lack[0]} is missing; to get it: {lack[1]}")
        self._lock = _locked()
        try:
            remove_leftovers()
            ip(f"link add {BRIDGE} address {link_address(MACHINE)} type bridge")
            quiet(None, BRIDGE)
            ip(f"addr add {self.address}/24 dev {BRIDGE}")
            ip(f"link set {BRIDGE} up")
            self.teach(None, MACHINE, BRIDGE)
            for host in self:
                host.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is None:
            return
        try:
            with contextlib.ExitStack() as all_of_them:
                all_of_them.callback(remove_leftovers)
                for host in self:
                    all_of_them.callback(host.crash)
        finally:
            self._lock.close()
            self._lock = None

    # -- who hears whom -----------------------------------------------------------------------------------------------

    def cut_off(self, host: StagedHost, direction: Direction = Direction.BOTH) -> None:
        """From all others, this machine included."""
        others = [n for n in (*(h.number for h in self), MACHINE) if n != host.number]
        if direction is not Direction.IN:
            self._set(self._deaf | {(host.number, other) for other in others})
        if direction is not Direction.OUT:
            self._set(self._deaf | {(other, host.number) for other in others})

    def part(self, *groups: Sequence[StagedHost]) -> None:
        """Hosts hear those of their own group, and this machine, but nobody of another group."""
        for here in groups:
            apart = [host for group in groups if group is not here for host in group]
            self._set(self._deaf | {(a.number, b.number) for a in here for b in apart})

    def heal(self, host: StagedHost | None = None) -> None:
        """Undo all cuts, or those of one host."""
        self._set({pair for pair in self._deaf if host is not None and host.number not in pair})

    def _set(self, deaf: set[tuple[int, int]]) -> None:
        for speaker, listener in self._deaf ^ deaf:
            address = NOBODY if (speaker, listener) in deaf else link_address(listener)
            if speaker == MACHINE:
                know(None, BRIDGE, {listener: address})
            else:
                host = next(h for h in self if h.number == speaker)
                if host.up:
                    know(host.namespace, "eth0", {listener: address})
        self._deaf = deaf

    def teach(self, namespace: str | None, number: int, device: str) -> None:
        """Tell a host that has just come up where the others are, as far as it hears of them."""
        others = [n for n in (*(h.number for h in self), MACHINE) if n != number]
        know(namespace, device, {n: NOBODY if (number, n) in self._deaf else link_address(n) for n in others})


def _locked() -> IO[str]:
    file = LOCK.open("w")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                raise ChaosError(
                    f"another network of hosts has been on this machine for {LOCK_SECONDS:g} s; see who has {LOCK} open"
                ) from None
            time.sleep(0.2)
        else:
            return file
