"""Contenders as witnesses: a process on the same host as a leader knows at once, and for certain, when the leader ends.

Other contenders have to wait until its lease or session has expired.
"""

from __future__ import annotations

import logging
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firesteel.concurrency import OwnedTasks
from firesteel.process_watch import ended
from firesteel.processes import ProcessIdentity

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """A process, and the namespace of its process id."""

    namespace: str
    """Empty when it is not certain; the process then has no neighbours."""
    pid: int
    started: str

    @staticmethod
    def here() -> ProcessPlace:
        """The place of this process."""
        me = ProcessIdentity.of(os.getpid())
        return ProcessPlace(process_namespace() if me else "", me.pid if me else 0, me.started if me else "")

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.started)

    def is_within(self, namespace: str) -> bool:
        """Whether processes in `namespace` can see whether this one runs."""
        return bool(namespace) and self.namespace == namespace and self.pid > 0

    def is_gone(self, namespace: str) -> bool:
        """Whether the process is visible from `namespace` and has certainly ended. False in doubt."""
        if not self.is_within(namespace) or self.identity.alive:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            # A process of another user. If even its entry is hidden from us, it may be the one.
            return ProcessIdentity.of(self.pid) is not None
        return True  # a zombie, or the pid was reused


class Neighbours:
    """The processes of this host that are before us in a queue, by their names in the queue.

    `tell` is called when one of them ends. Leaving the context stops the watching.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._places: dict[str, ProcessPlace | None] = {}
        self._namespace = ""
        self._tasks = OwnedTasks("neighbours", self._failed)

    async def __aenter__(self) -> Neighbours:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def meet(self, name: str, place: ProcessPlace | None, namespace: str) -> None:
        """Start to watch a process, if it is visible from our `namespace`."""
        seen = place if place is not None and place.is_within(namespace) else None
        self._places[name] = seen
        self._namespace = namespace
        if seen is not None:
            self._tasks.start(self._watch(seen), f"watch {seen.pid}")

    def gone(self, name: str) -> ProcessPlace | None:
        """The process, if it has certainly ended."""
        place = self._places[name]
        return place if place is not None and place.is_gone(self._namespace) else None

    async def _watch(self, place: ProcessPlace) -> None:
        await ended(place.identity)
        self._tell()

    def _failed(self, error: BaseException) -> None:
        logger.warning("a process of this host cannot be watched; waiting for the store to report its end: %s", error)


def process_namespace() -> str:
    """A name, until the next boot, for the processes that share our process ids; empty when it cannot be certain.

    Containers of one machine share its boot id, and may share a host name; the namespace tells their pids apart.
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
