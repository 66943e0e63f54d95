"""Which host something runs on: a process that is not seen here is dead only if it was a process of this host.

Drivers and engines are processes of the host whose leader started them. A node of another host sees neither them nor, with a
data directory of its own, their files. What it does not see it must not take for gone.
"""

from __future__ import annotations

import functools
import getpass
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of a host. A part that cannot be found out is empty, and proves nothing."""

    name: str
    machine: str
    """Survives a reboot; of the machine, or of the container's image."""
    boot: str
    """One run of one kernel, which all containers of a machine share."""

    def __str__(self) -> str:
        return f"{self.name}/{self.machine}/{self.boot}"

    @staticmethod
    def parse(text: str) -> Host | None:
        """None when nothing was noted, or it makes no sense: then nobody knows, and what is seen here decides."""
        parts = text.split("/")
        return Host(*parts) if len(parts) == 3 and parts[0] else None

    def is_elsewhere(self, here: Host, *, seen: bool) -> bool:
        """Whether a process of this host may live without being seen from `here`.

        Args:
            seen: There is something here by which to tell whether the process lives, if it is one of our kernel's: the
                process itself, or its files, as the locks on them are seen from other containers too.
        """
        if self.boot and self.boot == here.boot:
            return not (seen or self.name == here.name)
        # Of an earlier boot of this machine nothing is left.
        return (self.name, self.machine) != (here.name, here.machine)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Tells what runs here from what runs elsewhere.

    `lost`: names of hosts that somebody vouches for being gone for good, with all that ran there.
    """

    here: Host
    lost: frozenset[str] = frozenset()

    def elsewhere(self, noted: str, *, seen: bool) -> Host | None:
        """The other host that was noted, when what runs there cannot be seen from here. See Host.is_elsewhere."""
        host = Host.parse(noted)
        if host is None or host.name in self.lost or not host.is_elsewhere(self.here, seen=seen):
            return None
        return host


@functools.cache
def this_host() -> Host:
    return Host(platform.node().replace("/", "-") or "unknown", _machine_id(), _boot_id())


def _machine_id() -> str:
    for file in _MACHINE_IDS:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def _boot_id() -> str:
    try:
        if platform.system() == "Darwin":
            asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True)
            return asked.stdout.strip()
        return _BOOT_ID.read_text().strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def this_user() -> str:
    """Who runs this process; jobs that the command submits to its own cluster are theirs."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container that runs under a user id without an account
        return f"uid-{os.getuid()}"
