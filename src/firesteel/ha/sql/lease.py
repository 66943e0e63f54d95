"""Whether a leader is known to be gone: by a look at the processes of this host."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from firesteel.ha.sql.batch import Leadership
from firesteel.processes import ProcessIdentity


def holder_is_gone(row: Leadership, host: str) -> bool:
    """Whether the process that holds leadership ran on this host and is certainly no more. In doubt, False."""
    if not row.holder or not host or row.host != host or row.pid <= 0:
        return False
    process = ProcessIdentity(row.pid, row.process_started)
    if process.alive:
        return False
    try:
        os.kill(row.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # Somebody else's process. When even its entry is hidden from us, it may be the one.
        return ProcessIdentity.of(row.pid) is not None
    return True  # a zombie, or the pid was used again


def process_namespace() -> str:
    """A name of what shares our process ids, until it is booted anew; empty when there is no certain one.

    Containers of one machine share its boot id, and may share a host name; their pids are told apart by the namespace.
    """
    try:
        if platform.system() == "Darwin":
            asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True)
            boot, namespace = asked.stdout.strip(), "0"
        else:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{platform.node()}/{boot}/{namespace}" if boot else ""
