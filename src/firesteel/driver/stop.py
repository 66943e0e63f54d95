"""Stops a streaming driver gracefully, after its current batch."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType


class StopSwitch:
    """A stop request. The caller writes a file and then sends SIGUSR1: the file is what counts, so a request that comes
    before there is anything to stop is not lost. The parent of all drivers ignores the signal, and so do they until
    they can handle it."""

    def __init__(self, request: Path) -> None:
        self._request = request
        self._asked = False

    def install(self) -> None:
        signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    @property
    def requested(self) -> bool:
        self._asked = self._asked or self._request.exists()
        return self._asked
