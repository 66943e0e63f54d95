"""Group commit: writes that queued up during a commit become durable with the next one, and each gets its own answer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from firesteel.concurrency import OwnedTasks
from firesteel.errors import StoreError, StoreUnavailableError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueuedWrite:
    """A write that a caller waits for."""

    future: asyncio.Future[Any]

    def done(self, result: Any) -> WriteOutcome:
        return WriteOutcome(self.future, result)

    def failed(self, error: Exception) -> WriteOutcome:
        return WriteOutcome(self.future, error=error)


B = TypeVar("B")
R = TypeVar("R", bound=QueuedWrite)


@dataclass(frozen=True, slots=True)
class WriteRequest(QueuedWrite, Generic[B]):
    """A write whose `action` works on a batch; the action must raise before it changes anything."""

    action: Callable[[B], Any]

    def attempt(self, batch: B) -> WriteOutcome:
        try:
            return self.done(self.action(batch))
        except Exception as error:  # any error of the caller's action; it is raised in the caller
            return self.failed(error)


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


def still_wanted(requests: Iterable[R]) -> list[R]:
    """The writes whose callers still wait. The others may be dropped, as if the process had died here."""
    return [request for request in requests if not request.future.cancelled()]


def resolve(outcomes: Iterable[WriteOutcome]) -> None:
    """Deliver the outcomes to the waiting callers. Call this on the event loop of their futures."""
    for outcome in outcomes:
        if outcome.future.done():  # cancelled meanwhile
            continue
        if outcome.error is not None:
            outcome.future.set_exception(outcome.error)
        else:
            outcome.future.set_result(outcome.result)


class GroupCommit(Generic[R]):
    """Commits on the event loop, in the order in which writes were submitted. No failed write ends it.

    Args:
        where: The name of the store, for messages.
        commit: Makes a group durable and returns the outcome of each write. An error fails all writes of the group, and is
            logged if it is not one of `expected`.
        fits: Whether a request may join the group taken so far.
        at_once: The number of commits that may be under way at the same time.
        worth_another: The number of waiting writes that start another commit while one is under way.
    """

    def __init__(
        self,
        where: str,
        commit: Callable[[Sequence[R]], Awaitable[Iterable[WriteOutcome]]],
        *,
        tasks: OwnedTasks,
        expected: tuple[type[Exception], ...] = (StoreError,),
        fits: Callable[[Sequence[R], R], bool] = lambda group, request: True,
        at_once: int = 1,
        worth_another: int = 1,
    ) -> None:
        self._where = where
        self._commit = commit
        self._tasks = tasks
        self._expected = expected
        self._fits = fits
        self._at_once = at_once
        self._worth_another = worth_another
        self._queue: deque[R] = deque()
        self._working: set[asyncio.Task[None]] = set()

    async def submit(self, request: R) -> Any:
        """Return the outcome of the write once it is durable."""
        self._queue.append(request)
        if len(self._working) < self._at_once and (not self._working or len(self._queue) >= self._worth_another):
            task = self._tasks.start(self._work(), self._where)
            self._working.add(task)
            task.add_done_callback(self._ended)
        return await request.future

    async def drain(self) -> None:
        """Wait until all submitted writes are done."""
        if self._working:
            await asyncio.wait(self._working)

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # writes of this turn of the event loop join the group
            while group := self._take():
                resolve(await self._outcomes(group))
        finally:
            # Here and not after the task has ended: a write submitted in between would never be committed.
            self._working.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _outcomes(self, group: Sequence[R]) -> Iterable[WriteOutcome]:
        try:
            return await self._commit(group)
        except asyncio.CancelledError:
            self._leave(group, "the write may or may not have happened")
            raise
        except Exception as error:
            if not isinstance(error, self._expected):
                logger.exception("a write to %s failed unexpectedly", self._where)
            return [request.failed(error) for request in group]

    def _take(self) -> list[R]:
        group: list[R] = []
        while self._queue:
            request = self._queue[0]
            if not request.future.done():  # else its caller no longer waits
                if group and not self._fits(group, request):
                    break
                group.append(request)
            self._queue.popleft()
        return group

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if task.cancelled():
            self._leave(self._queue, "nothing was written")
            self._queue.clear()

    def _leave(self, requests: Iterable[R], meaning: str) -> None:
        error = StoreUnavailableError(f"{self._where} is being closed; {meaning}")
        resolve(request.failed(error) for request in requests)
