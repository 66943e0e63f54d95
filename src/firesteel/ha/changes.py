"""Waiting for a change of leadership, with a deadline: whoever waits looks again then, told or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Listening(Protocol):
    def stop(self) -> None:
        """End. Blocks, but for a moment only."""
        ...


Listen = Callable[[Callable[[], None]], Listening | None]
"""Begins to tell a callback, from whichever thread; None where nothing has to be stopped."""


class LeadershipChanges:
    """Counts what was heard, so that nothing that came between a look and the waiting is missed.

    Listening begins with the first who waits: a program that only reads a value needs no ear. Belongs to one event loop.
    """

    def __init__(self, listen: Listen = lambda _: None) -> None:
        self._listen = listen
        self._listening: Listening | None = None
        self.started = False
        """Whether somebody has waited."""
        self._heard = asyncio.Event()
        """Set and replaced with each change, so that all who wait look again."""
        self._count = 0

    @property
    def mark(self) -> int:
        """Taken before a look; see `after`."""
        return self._count

    async def after(self, mark: int, timeout: float | None = None) -> None:  # noqa: ASYNC109 - not an error
        """Returns when something was heard since the `mark`, at the latest after `timeout` seconds."""
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
        """Begin to listen, for those who want to hear of changes without waiting for them."""
        if self.started:
            return
        self.started = True
        loop = asyncio.get_running_loop()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(self.tell)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        self._listening = self._listen(tell)

    def tell(self) -> None:
        """Wake all who wait. For the event loop."""
        self._count += 1
        self._heard.set()
        self._heard = asyncio.Event()
