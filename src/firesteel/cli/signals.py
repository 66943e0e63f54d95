"""Signals to an attached command, as exceptions."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Raised for Ctrl-C, for SIGTERM, or when the terminal is gone."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.by_hand = number == signal.SIGINT


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    def on_signal(number: int, _frame: Any) -> None:
        raise Interrupted(number)

    with _handled_by(on_signal):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a request be sent whole. Only a second signal from here on interrupts that too."""
    count = 0

    def on_signal(number: int, _frame: Any) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise Interrupted(number)

    with _handled_by(on_signal):
        yield


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = {n: signal.signal(n, handler) for n in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
