"""Writing to a store that may be away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from firesteel.concurrency import Backoff, retry
from firesteel.errors import FencingError, StoreError

from .codec import UnreadableRecordError

T = TypeVar("T")


async def persistently(action: Callable[[], Awaitable[T]], backoff: Backoff, what: str) -> T:
    """A store that is away or full delays what becomes of a job; it does not change it."""
    return await retry(action, backoff, on=(StoreError,), but_not=(FencingError, UnreadableRecordError), what=what)
