"""A store that retries while another one is unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from firesteel.concurrency import Backoff, retry
from firesteel.errors import StoreUnavailableError, VersionConflictError
from firesteel.ha.protocols import Epoch, StateStore, Stored

T = TypeVar("T")


class RetryingStore:
    """Repeats calls that raise StoreUnavailableError until they succeed; every other error is passed on.

    A try without an answer may have been carried out. If the next one finds the store as that try would have left it, it
    was: our own write is never reported as the write of another.
    """

    def __init__(self, store: StateStore, backoff: Backoff) -> None:
        self._store = store
        self._backoff = backoff

    async def get(self, path: str) -> Stored | None:
        return await self._retry(lambda: self._store.get(path), f"reading '{path}'")

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        return await self._retry(lambda: self._store.list(prefix), f"listing '{prefix}'")

    async def paths(self, prefix: str) -> Sequence[str]:
        return await self._retry(lambda: self._store.paths(prefix), f"listing the paths of '{prefix}'")

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        unanswered = False

        async def attempt() -> int:
            nonlocal unanswered
            try:
                return await self._store.put(path, value, epoch=epoch, expected=expected)
            except StoreUnavailableError:
                unanswered = True
                raise
            except VersionConflictError:
                if unanswered and (now := await self._store.get(path)) is not None and now.value == value:
                    return now.version
                raise

        return await self._retry(attempt, f"writing '{path}'")

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        """Like StateStore.delete; also True when nothing is left after a try without an answer."""
        unanswered = False

        async def attempt() -> bool:
            nonlocal unanswered
            try:
                return await self._store.delete(path, epoch=epoch, expected=expected) or unanswered
            except StoreUnavailableError:
                unanswered = True
                raise
            except VersionConflictError:
                if unanswered and await self._store.get(path) is None:
                    return True
                raise

        return await self._retry(attempt, f"deleting '{path}'")

    async def close(self) -> None:
        await self._store.close()

    async def _retry(self, action: Callable[[], Awaitable[T]], what: str) -> T:
        return await retry(action, self._backoff, on=(StoreUnavailableError,), what=what)
