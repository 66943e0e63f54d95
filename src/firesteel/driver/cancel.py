"""Cancels a driver: SIGTERM becomes an exception in the main thread, except while outputs are being committed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Cancelled(BaseException):
    """The attempt was asked to stop. Not an Exception, so that user code which catches those does not swallow it."""


class CancelSwitch:
    def __init__(self) -> None:
        self._shields = 0
        self.requested = False
        self.too_late = False
        """Once outputs are decided, a cancel can no longer be honoured; the attempt ends FINISHED."""

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        if self._shields == 0 and not self.too_late:
            raise Cancelled

    def reached_commit(self) -> None:
        """From here on the outputs become visible; a cancel that came before this line still wins."""
        self.too_late = True

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Finish these lines first; a cancel that comes meanwhile is raised at their end."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self.requested and self._shields == 0 and not self.too_late:
            raise Cancelled
