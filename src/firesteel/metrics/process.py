"""What the kernel tells of a process: cheap enough to be read for every report, in a thread."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from firesteel.metrics.declarations import (
    CPU,
    DESCRIPTORS,
    ENGINE_CPU,
    ENGINE_DESCRIPTORS,
    ENGINE_RESIDENT,
    ENGINE_THREADS,
    MAX_DESCRIPTORS,
    RESIDENT,
    THREADS,
)
from firesteel.metrics.metric import Metric

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def own_measures() -> dict[Metric, float]:
    """Of this process. Reads files below /proc."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = _read(os.getpid(), cpu=CPU, threads=THREADS, resident=RESIDENT, descriptors=DESCRIPTORS)
    return {**found, MAX_DESCRIPTORS: limit}


def engine_process_measures(pid: int) -> dict[Metric, float]:
    """Of the process of an engine. Reads files below /proc."""
    return _read(pid, cpu=ENGINE_CPU, threads=ENGINE_THREADS, resident=ENGINE_RESIDENT, descriptors=ENGINE_DESCRIPTORS)


def _read(pid: int, *, cpu: Metric, threads: Metric, resident: Metric, descriptors: Metric) -> dict[Metric, float]:
    """What cannot be read is left out."""
    found: dict[Metric, float] = {}
    home = _PROC / str(pid)
    try:
        # The name of the program, in parentheses, may have spaces in it; what follows it has not.
        fields = (home / "stat").read_text().rpartition(")")[2].split()
        found[cpu] = (int(fields[11]) + int(fields[12])) / _TICKS
        found[threads] = int(fields[17])
        found[resident] = int(fields[21]) * _PAGE
        found[descriptors] = len(os.listdir(home / "fd"))
    except (OSError, ValueError, IndexError):
        pass
    return found


def physical_memory() -> int:
    """Of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE
