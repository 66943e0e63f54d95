"""An event loop whose clock jumps to the next timer: hours of waiting take no time, and a seed always gives the same run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

NODE: ContextVar[object | None] = ContextVar("node", default=None)
"""The simulated process that the running code belongs to; None for clients and the world itself."""


class StalledError(Exception):
    """A deadlock: nothing is ready and no timer is set."""


class _JumpingSelector(selectors.DefaultSelector):
    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            ready = super().select(0)
            if not ready:
                raise StalledError
            return ready
        if timeout > 0:
            self.loop.now += timeout
        return []  # there is no outside input; a system call each time would take an eighth of a schedule's time


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.loop = self
        self.tasks_of: dict[object, set[asyncio.Task[Any]]] = {}
        self.set_task_factory(self._make)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    def _make(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **kwargs: Any) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=loop, **kwargs)
        node = NODE.get()
        if node is not None:
            mine = self.tasks_of.setdefault(node, set())
            mine.add(task)
            task.add_done_callback(mine.discard)
        return task

    def kill(self, node: object) -> None:
        """Cancel every task of a process where it is."""
        for task in list(self.tasks_of.pop(node, ())):
            task.cancel()


async def inline(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Replaces asyncio.to_thread: a real thread would make runs random."""
    await asyncio.sleep(0)
    return function(*args, **kwargs)


def run_in_virtual_time(main: Callable[[], Awaitable[T]], *, limit: float = 100_000.0) -> T:
    """Run `main` to its end in an event loop whose clock jumps, and return its result.

    It may only wait for timers and other tasks, not for sockets, threads or processes.

    Raises:
        StalledError: all tasks wait for each other.
        TimeoutError: it takes more than `limit` seconds of virtual time.
    """
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main(), limit))
    finally:
        for _ in range(20):  # a cancelled task may start others while it ends
            left = asyncio.all_tasks(loop)
            if not left:
                break
            for task in left:
                task.cancel()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
