"""The tasks that a driver process can be asked to run. Each takes JSON arguments and returns the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firesteel.driver import errands, inspect_graph, release, run, training

TASKS: dict[str, Callable[[dict[str, Any]], int]] = {
    "attempt": run.main,
    "errand": errands.main,
    "inspect": inspect_graph.main,
    "release": release.main,
    "train": training.main,
}

TAKING: dict[str, Callable[[dict[str, Any]], bool]] = {"attempt": run.take}
"""What a process does before it is confined to its task. False: the task belongs to another process, or is obsolete."""

_LET_GO: dict[str, Callable[[], bool]] = {"attempt": run.let_go, "errand": errands.let_go}


def let_go(task: str) -> bool:
    """After a task that returned 0: whether this process is as if it had never run it, and may run another."""
    return _LET_GO[task]()
