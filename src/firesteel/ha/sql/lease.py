"""When may a contender take over? Pure, but for the look at this host's processes."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from firesteel.ha.sql.batch import Leadership
from firesteel.processes import ProcessIdentity


class LeaseWatch:
    """Watches the leadership row with this contender's own clock.

    No two clocks are ever compared. A holder that lives changes the row; one whose row stood still for the whole lease,
    seen from here, has stopped acting by itself before that.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen: tuple[int, str, int] | None = None
        self._since = 0.0

    def may_take(self, row: Leadership, now: float, *, holder_gone: bool) -> bool:
        """Whether leadership is free, given the row as it was read just now."""
        if not row.holder or holder_gone:
            return True
        seen = (row.epoch, row.holder, row.renewals)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= self._lease


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


def this_host() -> str:
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
