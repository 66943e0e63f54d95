"""Writes to a store that may be unavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from firesteel.concurrency import Backoff, retry
from firesteel.errors import FencingError, StoreError

from .codec import UnreadableRecordError

T = TypeVar("T")


async def persistently(action: Callable[[], Awaitable[T]], backoff: Backoff, what: str) -> T:
    """Retry `action` until the store takes it: an unavailable or full store may delay a job, but not change its outcome."""
    return await retry(action, backoff, on=(StoreError,), but_not=(FencingError, UnreadableRecordError), what=what)
