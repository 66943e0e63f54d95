"""Identifies hosts: a process that cannot be seen here is dead only if it was a process of this host.

Drivers and engines are processes of the host whose leader started them. A node of another host sees neither them nor, with a
data directory of its own, their files. It must not take for gone what it cannot see.
"""

from __future__ import annotations

import functools
import getpass
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of a host. A part that cannot be found out is empty, and proves nothing."""

    name: str
    machine: str
    """The id of the machine, or of the container's image. Survives a reboot."""
    boot: str
    """The id of one run of one kernel, which all containers of a machine share."""

    def __str__(self) -> str:
        return f"{self.name}/{self.machine}/{self.boot}"

    @staticmethod
    def parse(text: str) -> Host | None:
        """The host in a record; None when none was recorded, or it is malformed: then what is seen here decides."""
        parts = text.split("/")
        return Host(*parts) if len(parts) == 3 and parts[0] else None

    def is_elsewhere(self, here: Host, *, seen: bool) -> bool:
        """Whether a process of this host may live without being seen from `here`.

        Args:
            seen: Whether this node could tell that the process lives if it ran on this kernel: from the process itself,
            or
                from the locks on its files, which other containers see too.
        """
        if self.boot and self.boot == here.boot:
            return not (seen or self.name == here.name)
        # No process survives from an earlier boot of this machine.
        return (self.name, self.machine) != (here.name, here.machine)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Tells what runs here from what runs elsewhere.

    `lost`: names of hosts that an operator has declared gone for good, with all that ran there.
    """

    here: Host
    lost: frozenset[str] = frozenset()

    def elsewhere(self, noted: str, *, seen: bool) -> Host | None:
        """The recorded host, when it is another one whose processes cannot be seen from here. See Host.is_elsewhere."""
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


def boot_time() -> float:
    """Seconds since this machine was booted, suspension included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def this_user() -> str:
    """The user who runs this process, and who owns the jobs that the command submits to its own cluster."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container that runs under a user id without an account
        return f"uid-{os.getuid()}"
