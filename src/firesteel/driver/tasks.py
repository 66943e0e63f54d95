"""What a driver process can be asked to do. Each task takes JSON arguments and gives the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firesteel.driver import inspect_graph, release, run, training

TASKS: dict[str, Callable[[dict[str, Any]], int]] = {
    "attempt": run.main,
    "inspect": inspect_graph.main,
    "release": release.main,
    "train": training.main,
}

let_go = run.let_go
"""After a task that ended with 0: whether this process is as if it had never done it, and may do another."""
