"""A fenced store in memory that can be damaged, and that can lose answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from firesteel.errors import StoreUnavailableError
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch
from firesteel.types import JobID

OLD = Epoch(1)
EPOCH = Epoch(2)


class FaultyStore(MemoryStateStore):
    """`EPOCH` leads. After `lose_answer` the next write happens, and its writer does not learn so."""

    def __init__(self) -> None:
        super().__init__()
        self.newest_epoch = EPOCH
        self.writes: list[str] = []
        self._losing = False

    def lose_answer(self) -> None:
        self._losing = True

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        version = await super().put(path, value, epoch=epoch, expected=expected)
        self._wrote(path)
        return version

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        there = await super().delete(path, epoch=epoch, expected=expected)
        self._wrote(path)
        return there

    def _wrote(self, path: str) -> None:
        self.writes.append(path)
        if self._losing:
            self._losing = False
            raise StoreUnavailableError("the answer was lost")

    async def damage(self, path: str, value: bytes) -> None:
        await MemoryStateStore.put(self, path, value, epoch=EPOCH)

    async def value(self, path: str) -> bytes:
        stored = await self.get(path)
        assert stored is not None, f"nothing at {path}"
        return stored.value


def job(number: int) -> JobID:
    return JobID(f"{number:032x}")


async def threads_used(work: Awaitable[Any]) -> int:
    """Await `work`; how often it left the event loop for a thread."""
    calls = 0
    original = asyncio.to_thread

    async def to_thread(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return await original(function, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", to_thread)
        await work
    return calls
