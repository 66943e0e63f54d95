"""Giving up leadership on purpose, for backends whose contenders take it when they find it free."""

from __future__ import annotations

import asyncio
import time

from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import NEVER


class Resignation:
    """The resignation of one contender: requested by its owner and carried out by the leading task, which then waits."""

    def __init__(self) -> None:
        self._epoch = NEVER
        self._patience = 0.0
        self._asked = asyncio.Event()
        self._done = asyncio.Event()
        self._stand_back_until = 0.0

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    async def ask(self, epoch: Epoch, patience: float) -> None:
        """Request the resignation. Returns when the leading task has carried it out."""
        if not self.is_asked:
            self._epoch, self._patience = epoch, patience
            self._done.clear()
            self._asked.set()
        await self._done.wait()

    async def asked(self) -> str:
        """Wait for the request. Returns the reason for the end of leadership."""
        await self._asked.wait()
        return "it was asked to resign"

    def carried_out(self) -> None:
        """Leadership is given up, or the store cannot be reached; from now on other contenders go first."""
        self._asked.clear()
        self._stand_back_until = time.monotonic() + self._patience
        self._done.set()

    def drop(self) -> None:
        """The contender is closed."""
        self._asked.clear()
        self._done.set()

    def stands_back(self, newest: Epoch) -> bool:
        """Whether other contenders still go first: until one of them has led, by the newest epoch in the store."""
        return newest <= self._epoch and time.monotonic() < self._stand_back_until
