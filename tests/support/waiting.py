"""Waiting for what another process does: looked at again and again, up to a limit."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 60.0
POLL_SECONDS = 0.05


def until(condition: Callable[[], object], what: str | Callable[[], str], seconds: float = SECONDS) -> None:
    """Returns once `condition` holds. `what` is said when it does not in time, and may be worked out only then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(POLL_SECONDS)
