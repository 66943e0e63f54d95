"""Tasks that have an owner, calls that leave the event loop, and tries that are repeated."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


class OwnedTasks:
    """The background tasks of one component: closing it ends them all, and unexpected errors are reported.

    The error of a task that is never awaited would be lost in silence; here it goes to `on_error`.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._name = name
        self._on_error = on_error
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        if self._closed:
            work.close()
            raise asyncio.CancelledError(f"{self._name} is closed")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._closed:
            logger.error("task %s failed", task.get_name(), exc_info=error)
            self._on_error(error)

    def __len__(self) -> int:
        return len(self._tasks)

    def cancel(self) -> None:
        """Ask all to end, without waiting. Nothing can be started here any more."""
        self._closed = True
        me = asyncio.current_task()
        for task in list(self._tasks):
            if task is not me:
                task.cancel()

    async def close(self) -> None:
        """End all and wait until they have ended."""
        self.cancel()
        me = asyncio.current_task()
        waiting = [t for t in self._tasks if t is not me]
        if waiting:
            await asyncio.wait(waiting)


async def surely(future: asyncio.Future[Any]) -> None:
    """Wait until `future` is done, however often the caller is cancelled meanwhile: for what ends soon by itself."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({future})


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `initial` to `maximum`, each shortened at random by up to a fifth (no stampedes)."""

    initial: float
    maximum: float

    def delays(self) -> Iterator[float]:
        delay = self.initial
        while True:
            yield delay * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load, guards nothing
            delay = min(delay * 2, self.maximum)


RETRIES = Backoff(0.2, 5.0)
"""For services that may be unavailable for a moment."""


async def retry(
    action: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    on: tuple[type[Exception], ...],
    but_not: tuple[type[Exception], ...] = (),
    what: str,
    within: float = math.inf,
    repetitions: float = math.inf,
) -> T:
    """Repeat `action` until it does not raise one of `on`. Those of `but_not`, and anything else, pass through.

    No try begins later than `within` seconds from now, and it is repeated `repetitions` times at most: then the last error
    passes through as well.
    """
    deadline = time.monotonic() + within
    for number, delay in enumerate(backoff.delays()):
        try:
            return await action()
        except but_not:
            raise
        except on as error:
            if number >= repetitions or time.monotonic() + delay >= deadline:
                raise
            logger.warning("%s failed and will be tried again in %.2f s: %s", what, delay, error)
            await asyncio.sleep(delay)
    raise AssertionError  # delays never end
