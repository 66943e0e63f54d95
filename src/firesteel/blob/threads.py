"""Runs work in threads whose callers may be cancelled."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """The result of `work`, which a cancellation of the caller does not interrupt: it comes through when that is over.

    A thread cannot be interrupted; a caller that cleaned up while it still writes would clean up too early.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen; the cancellation is what the caller is told
        raise cancelled
    return task.result()


class Threads:
    """Threads of our own: a disk that hangs blocks these, and not the shared ones."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`call` in a thread. When this returns or raises, the call is over."""
        loop = asyncio.get_running_loop()
        return await to_the_end(loop.run_in_executor(self._pool, functools.partial(call, *args, **kwargs)))

    async def close(self) -> None:
        """Wait for running calls, and accept no more."""
        await asyncio.to_thread(self._pool.shutdown)
