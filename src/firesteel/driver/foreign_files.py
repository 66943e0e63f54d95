"""Opens paths that a caller names, in a driver that runs one job after another and is confined to none of them.

It runs no user code, but it commits to directories that users name and can change meanwhile. See `sandbox.thread`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from firesteel.sandbox.rules import Sandbox
from firesteel.sandbox.thread import confined

T = TypeVar("T")

_SANDBOX: list[Sandbox] = []


@contextlib.contextmanager
def confined_to(sandbox: Sandbox | None) -> Iterator[None]:
    """Set what the owner of a task may open while it runs. None: the process is confined as a whole, or not at all."""
    if sandbox is not None:
        _SANDBOX.append(sandbox)
    try:
        yield
    finally:
        _SANDBOX.clear()


def call(function: Callable[[], T]) -> T:
    """Call `function`, which opens what a caller names."""
    return confined(_SANDBOX[-1] if _SANDBOX else None, function)
