"""A store whose operations are counted and timed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from firesteel.errors import FencingError, StoreUnavailableError, VersionConflictError
from firesteel.ha.protocols import Epoch, StateStore, Stored
from firesteel.metrics.declarations import STORE_ERRORS, STORE_SECONDS
from firesteel.metrics.registry import MetricRegistry

T = TypeVar("T")

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (FencingError, "fenced"),
    (VersionConflictError, "conflict"),
    (StoreUnavailableError, "unavailable"),
)


class MeasuredStore:
    """Passes all calls on to another store."""

    def __init__(self, store: StateStore, metrics: MetricRegistry) -> None:
        self._store = store
        self._metrics = metrics

    async def get(self, path: str) -> Stored | None:
        return await self._measured("get", self._store.get(path))

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        return await self._measured("list", self._store.list(prefix))

    async def paths(self, prefix: str) -> Sequence[str]:
        return await self._measured("paths", self._store.paths(prefix))

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        return await self._measured("put", self._store.put(path, value, epoch=epoch, expected=expected))

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        return await self._measured("delete", self._store.delete(path, epoch=epoch, expected=expected))

    async def close(self) -> None:
        await self._store.close()

    async def _measured(self, operation: str, action: Awaitable[T]) -> T:
        began = time.monotonic()
        try:
            return await action
        except Exception as error:
            reason = next((word for kind, word in _REASONS if isinstance(error, kind)), "other")
            self._metrics.count(STORE_ERRORS, operation, reason)
            raise
        finally:
            self._metrics.observe(STORE_SECONDS, time.monotonic() - began, operation)
