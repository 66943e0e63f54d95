"""Batches short looks at files.

A leader that takes over a hundred attempts looks at a few files of each. The look itself takes a tenth of a millisecond; going
to a thread and back for it takes many, on a machine that is as busy as it is after a failover.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

LARGEST = 16
"""The size of a batch: each caller in it waits for the slowest look."""
AT_ONCE = 4

_Asked = tuple[Callable[[], Any], asyncio.Future[Any]]


class Together:
    """Runs the looks requested in one turn of the event loop together, in `threads`. Belongs to one event loop."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._asked: deque[_Asked] = deque()
        self._under_way = 0
        self._due = False

    async def run(self, look: Callable[[], T]) -> T:
        """What `look` returns or raises. It is completed even when the waiting caller is cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._asked.append((look, answer))
        if not self._due:
            self._due = True
            loop.call_soon(self._begin)
        return await answer

    def _begin(self) -> None:
        self._due = False
        while self._asked and self._under_way < AT_ONCE:
            some = [self._asked.popleft() for _ in range(min(LARGEST, len(self._asked)))]
            looks = [look for look, _ in some]
            try:
                done = asyncio.get_running_loop().run_in_executor(self._threads, _all, looks)
            except RuntimeError as error:  # the threads are gone
                _tell(some, [(None, error)] * len(some))
                continue
            self._under_way += 1
            done.add_done_callback(partial(self._done, some))

    def _done(self, some: Sequence[_Asked], done: asyncio.Future[list[_Outcome]]) -> None:
        self._under_way -= 1
        if done.cancelled():
            for _, answer in some:
                answer.cancel()
        else:
            _tell(some, done.result())
        self._begin()


_Outcome = tuple[Any, Exception | None]


def _all(looks: Sequence[Callable[[], Any]]) -> list[_Outcome]:
    return [_one(look) for look in looks]


def _one(look: Callable[[], Any]) -> _Outcome:
    try:
        return look(), None
    except Exception as error:
        return None, error


def _tell(some: Sequence[_Asked], outcomes: Sequence[_Outcome]) -> None:
    for (_, answer), (value, error) in zip(some, outcomes, strict=True):
        if answer.done():
            continue  # the caller no longer waits
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)
