"""Group commit: what has queued up while a commit was under way becomes durable with the next one, and each has its answer."""

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
    """What somebody waits for."""

    future: asyncio.Future[Any]

    def done(self, result: Any) -> WriteOutcome:
        return WriteOutcome(self.future, result)

    def failed(self, error: Exception) -> WriteOutcome:
        return WriteOutcome(self.future, error=error)


B = TypeVar("B")
R = TypeVar("R", bound=QueuedWrite)


@dataclass(frozen=True, slots=True)
class WriteRequest(QueuedWrite, Generic[B]):
    """One whose `action` works on a batch; what it raises must come before any change."""

    action: Callable[[B], Any]

    def attempt(self, batch: B) -> WriteOutcome:
        try:
            return self.done(self.action(batch))
        except Exception as error:  # the caller's, whatever it is: it is raised there
            return self.failed(error)


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


def still_wanted(requests: Iterable[R]) -> list[R]:
    """Without those whose callers have gone away: they would not be missed if the process had died here."""
    return [request for request in requests if not request.future.cancelled()]


def resolve(outcomes: Iterable[WriteOutcome]) -> None:
    """Tell those who wait. For the event loop of their futures."""
    for outcome in outcomes:
        if outcome.future.done():  # cancelled meanwhile
            continue
        if outcome.error is not None:
            outcome.future.set_exception(outcome.error)
        else:
            outcome.future.set_result(outcome.result)


class GroupCommit(Generic[R]):
    """Commits on the event loop, in the order in which writes were submitted. No error of one ends it.

    Args:
        where: What is written to, in messages.
        commit: Makes a group durable, and tells what came of each. What it raises is told to all of the group; an error that
            is none of `expected` is logged as well.
        fits: Whether a request may go with those that were taken before it.
        at_once: Commits under way at a time.
        worth_another: So many writes wait before a further commit begins beside one that is under way.
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
        """What the commit has told of it, once that is durable."""
        self._queue.append(request)
        if len(self._working) < self._at_once and (not self._working or len(self._queue) >= self._worth_another):
            task = self._tasks.start(self._work(), self._where)
            self._working.add(task)
            task.add_done_callback(self._ended)
        return await request.future

    async def drain(self) -> None:
        """Wait until all that was submitted is done."""
        if self._working:
            await asyncio.wait(self._working)

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # whatever else is asked for in this turn of the event loop comes along
            while group := self._take():
                resolve(await self._outcomes(group))
        finally:
            # Here and not once it has ended: whoever submits in between would wait for nobody.
            self._working.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _outcomes(self, group: Sequence[R]) -> Iterable[WriteOutcome]:
        try:
            return await self._commit(group)
        except asyncio.CancelledError:
            self._leave(group, "a write may or may not have happened")
            raise
        except Exception as error:
            if not isinstance(error, self._expected):
                logger.exception("a write to %s failed in an unforeseen way", self._where)
            return [request.failed(error) for request in group]

    def _take(self) -> list[R]:
        group: list[R] = []
        while self._queue:
            request = self._queue[0]
            if not request.future.done():  # else its caller has gone away
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
        error = StoreUnavailableError(f"{self._where} is being left; {meaning}")
        resolve(request.failed(error) for request in requests)
