"""Waiting for a change of leadership, with a deadline at which the caller looks again even if nothing was heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Listening(Protocol):
    def stop(self) -> None:
        """Stop listening. Blocks for a moment at most."""
        ...


Listen = Callable[[Callable[[], None]], Listening | None]
"""Starts calling a callback, from any thread; returns None if there is nothing to stop."""


class LeadershipChanges:
    """Counts changes, so that none between a look and the wait after it is missed.

    Listening starts with the first call that waits: a program that only reads a value needs none. Belongs to one event loop.
    """

    def __init__(self, listen: Listen = lambda _: None) -> None:
        self._listen = listen
        self._listening: Listening | None = None
        self.started = False
        """Whether listening has started."""
        self._heard = asyncio.Event()
        """Set and replaced with each change, which wakes all waiting calls."""
        self._count = 0

    @property
    def mark(self) -> int:
        """The current count, to be taken before a look; see `after`."""
        return self._count

    async def after(self, mark: int, timeout: float | None = None) -> None:  # noqa: ASYNC109 - not an error
        """Return when there was a change since the `mark`, at the latest after `timeout` seconds."""
        self.start()
        if self._count != mark:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._heard.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        self.started = True
        listening, self._listening = self._listening, None
        if listening is not None:
            await asyncio.to_thread(listening.stop)

    def start(self) -> None:
        """Start to listen, for callers that want changes reported without waiting for them."""
        if self.started:
            return
        self.started = True
        loop = asyncio.get_running_loop()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(self.tell)
            except RuntimeError:  # the loop is closed, so nothing waits any more
                pass

        self._listening = self._listen(tell)

    def tell(self) -> None:
        """Wake all waiting calls. Call this on the event loop."""
        self._count += 1
        self._heard.set()
        self._heard = asyncio.Event()
