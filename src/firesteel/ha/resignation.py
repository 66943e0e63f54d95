"""Leadership that is given up on purpose, for backends whose contenders take it when they find it free."""

from __future__ import annotations

import asyncio
import time

from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import NEVER


class Resignation:
    """Of one contender: asked for by its owner, carried out by the task that leads, and then stood back from."""

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
        """Returns when the task that leads has carried it out."""
        if not self.is_asked:
            self._epoch, self._patience = epoch, patience
            self._done.clear()
            self._asked.set()
        await self._done.wait()

    async def asked(self) -> str:
        """Returns when it is asked for, and why leadership ends then."""
        await self._asked.wait()
        return "it was asked to give it up"

    def carried_out(self) -> None:
        """The store has been told, or cannot be; from now on others go first."""
        self._asked.clear()
        self._stand_back_until = time.monotonic() + self._patience
        self._done.set()

    def drop(self) -> None:
        """The contender is no more."""
        self._asked.clear()
        self._done.set()

    def stands_back(self, newest: Epoch) -> bool:
        """Whether others go first still, given the newest epoch in the store: until one of them has led."""
        return newest <= self._epoch and time.monotonic() < self._stand_back_until
