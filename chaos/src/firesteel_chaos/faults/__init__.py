"""The table of faults.

model       what a fault is, and what it has at hand
nodes       F1 to F4, F12, F26: nodes are killed, paused, started with another time of day
crashes     F5: the leader dies at a write
lines       F6, F7: nodes are cut off, and lines are bad
disk        F10, F11 on SQLite, F21, F22: files and records
processes   F13, F14, F15, F18: drivers and engines
hosts       F27, F28, F29: hosts are lost, cut off and stand still, and workers on them
clients     F19, F20, F23: what clients do, and what happens to them half-way

Those of the servers of a store, F8 and F11, come from whoever has the servers: they are given as `Fault`s as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.faults import clients, crashes, disk, hosts, lines, nodes, processes
from firesteel_chaos.faults.model import ABILITIES, Fault, Injection, NoTargetError, Strike, World, fault

TABLE: tuple[Fault, ...] = (
    *nodes.FAULTS,
    *crashes.FAULTS,
    *lines.FAULTS,
    *disk.FAULTS,
    *processes.FAULTS,
    *clients.FAULTS,
    *hosts.FAULTS,
)


def playable(faults: Iterable[Fault], abilities: Collection[str]) -> list[Fault]:
    """Those that can be done to a cluster of these abilities."""
    return [each for each in faults if each.needs <= set(abilities)]


def select(faults: Iterable[Fault], wanted: Sequence[str]) -> list[Fault]:
    """Those whose name (F6) or key (F6/cut-store) is wanted; all when nothing is. Raises ChaosError for other words."""
    known = list(faults)
    chosen = [each for each in known if not wanted or each.name in wanted or each.key in wanted]
    unknown = set(wanted) - {each.name for each in known} - {each.key for each in known}
    if unknown:
        keys = ", ".join(each.key for each in known)
        raise ChaosError(f"no such fault: {', '.join(sorted(unknown))}; the faults are {keys}")
    return chosen


__all__ = [
    "ABILITIES",
    "TABLE",
    "Fault",
    "Injection",
    "NoTargetError",
    "Strike",
    "World",
    "fault",
    "playable",
    "select",
]
