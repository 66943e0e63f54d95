"""What the kernel tells of a process: cheap enough to be read for every request."""

from __future__ import annotations

import os
import resource
from pathlib import Path

RESIDENT = "Status.Process.Memory.Resident"
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_metrics(pid: int) -> dict[str, int]:
    """Under the contract's names, which are those of a Java process, where it has one.

    Reads files below /proc: call it in a thread. What cannot be read is left out.
    """
    found: dict[str, int] = {}
    home = _PROC / str(pid)
    try:
        # The name of the program, in parentheses, may have spaces in it; what follows it has not.
        fields = (home / "stat").read_text().rpartition(")")[2].split()
        found["Status.JVM.CPU.Time"] = (int(fields[11]) + int(fields[12])) * 1_000_000_000 // _TICKS
        found["Status.JVM.Threads.Count"] = int(fields[17])
        found[RESIDENT] = int(fields[21]) * _PAGE
        found["Status.JVM.FileDescriptor.Open"] = len(os.listdir(home / "fd"))
    except (OSError, ValueError, IndexError):
        pass
    return found


def own_metrics() -> dict[str, int]:
    """Of this process. What dashboards show as its heap is its resident memory: Python has no other measure."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = process_metrics(os.getpid())
    return {
        **found,
        "Status.JVM.Memory.Heap.Used": found.get(RESIDENT, 0),
        "Status.JVM.Memory.Heap.Committed": found.get(RESIDENT, 0),
        "Status.JVM.Memory.Heap.Max": physical_memory(),
        "Status.JVM.FileDescriptor.Max": limit,
    }


def physical_memory() -> int:
    """Of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE
