"""The listeners of event streams, and the progress and log lines that are read for listeners of a job.

Changes of a job's state are pushed to listeners (`jobmaster.events`). Its progress and its log are files: one task polls
them for all listeners of a job, while there are any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from firesteel.concurrency import OwnedTasks
from firesteel.errors import RateLimitedError
from firesteel.jobmaster.events import LOG, LOST, PROGRESS, JobEvent, Subscription
from firesteel.rest.logs import JobLogs
from firesteel.rest.native.log_tail import JobTail, Lines, News, Progress
from firesteel.types import JobID

logger = logging.getLogger(__name__)

END = "end"
"""Kind of an event that is not sent: it wakes a stream because it ends or its job has ended."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
SHARE = 4
"""One caller may have open one of so many of all streams."""
RESERVE = 10
"""One of so many of all streams is reserved for admins."""
MOST_WAITING = 1 << 20
"""Characters of log lines that are buffered for one slow listener."""


class Listener:
    """One open stream."""

    def __init__(self, subscription: Subscription, *, logs: bool = False) -> None:
        self.subscription = subscription
        self.wants_logs = logs
        self.lost = 0
        """The number of dropped log events that the listener was not told about yet."""
        self._waiting = 0

    def offer(self, event: JobEvent) -> None:
        if event.kind == LOG:
            if not self.wants_logs:
                return
            size = _size(event)
            if self._waiting + size > MOST_WAITING:
                self.lost += 1
                return
            self._waiting += size
        self.subscription.offer(event)

    async def next(self, patience: float) -> JobEvent | None:
        """The next event; None when there was none within the timeout."""
        if self.lost:
            lost, self.lost = self.lost, 0
            return JobEvent(LOST, JobID(""), time.time(), {"count": lost})
        try:
            async with asyncio.timeout(patience):
                event = await self.subscription.next()
        except TimeoutError:
            return None
        if event.kind == LOG:
            self._waiting = max(0, self._waiting - _size(event))
        elif event.kind == LOST:  # the lost events may include log lines
            self._waiting = 0
        return event

    def end(self) -> None:
        self.subscription.offer(JobEvent(END, JobID(""), 0.0))


class EventSource:
    """The open streams of a node. `close` ends them all, before the server waits for its connections."""

    def __init__(self, *, interval: float = 0.5, slowest: float = 2.0, keep_alive: float = 15.0) -> None:
        self.interval = interval
        """Seconds between two polls of an active job."""
        self.slowest = slowest
        """Seconds between two polls of a job that had no news for a while."""
        self.keep_alive = keep_alive
        self._tasks = OwnedTasks("event-source", lambda _: None)  # the error is logged, and streams continue
        self._streams: set[Listener] = set()
        self._watches: dict[JobID, _Watch] = {}
        self._admitted: Counter[Hashable] = Counter()
        self._closed = False

    @property
    def listeners(self) -> int:
        return self._admitted.total()

    @property
    def watched(self) -> int:
        """Jobs whose files are polled."""
        return len(self._watches)

    def admit(self, limit: int, caller: Hashable = None, *, privileged: bool = False) -> None:
        """Count a new stream of `caller`, until `leave`. One caller may have a quarter; a tenth is reserved for admins.

        Raises:
            RateLimitedError: there are `limit` of them, or as many as this caller may have.
        """
        own, share = self._admitted[caller], max(1, limit // SHARE)
        most = limit if privileged else limit - limit // RESERVE
        if self._closed or self.listeners >= most or own >= share:
            which = f"you have {own} event streams" if own >= share else f"{self.listeners} event streams are"
            raise RateLimitedError(
                f"{which} open, which is the limit (rest.max-event-listeners); close some, or try again later",
                retry_after=5,
            )
        self._admitted[caller] += 1

    def leave(self, caller: Hashable = None) -> None:
        self._admitted[caller] -= 1
        if not self._admitted[caller]:
            del self._admitted[caller]

    @contextlib.contextmanager
    def listening(self, listener: Listener) -> Iterator[Listener]:
        """End `listener` when this source is closed."""
        self._streams.add(listener)
        if self._closed:
            listener.end()
        try:
            yield listener
        finally:
            self._streams.discard(listener)

    @contextlib.asynccontextmanager
    async def following(
        self, job_id: JobID, logs: JobLogs, listener: Listener, known: Mapping[str, Any] = NOTHING
    ) -> AsyncIterator[_Watch]:
        """Offer progress and log lines of a job to `listener`.

        It gets the last lines of the log at once, and the progress if that differs from what it has (`known`).
        """
        watch = self._watches.get(job_id)
        if watch is None:
            watch = self._watches[job_id] = _Watch(job_id, logs)
            watch.task = self._tasks.start(self._follow(watch), f"follow-{job_id[:8]}")
        watch.count += 1
        try:
            await watch.join(listener, known)
            yield watch
        finally:
            watch.listeners.discard(listener)
            watch.count -= 1
            if not watch.count:
                del self._watches[job_id]
                if watch.task is not None:
                    watch.task.cancel()

    async def _follow(self, watch: _Watch) -> None:
        pause = self.interval
        while True:
            await asyncio.sleep(pause)
            try:
                found = await watch.look()
            except OSError as error:
                logger.warning("the log of job %s cannot be read at the moment: %s", watch.job_id, error)
                found = False
            pause = self.interval if found else min(self.slowest, pause * 1.5)

    def interrupt(self) -> None:
        """End the open streams; clients reconnect to the current leader."""
        for listener in list(self._streams):
            listener.end()

    async def close(self) -> None:
        self._closed = True
        for listener in self._streams:
            listener.end()
        await self._tasks.close()


class _Watch:
    """A job with listeners."""

    def __init__(self, job_id: JobID, logs: JobLogs) -> None:
        self.job_id = job_id
        self.listeners: set[Listener] = set()
        self.count = 0
        """The number of listeners, including those that are about to join."""
        self.task: asyncio.Task[None] | None = None
        self._logs = logs
        self._tail = JobTail(logs, job_id)
        self._turn = asyncio.Lock()
        self._begun = False

    async def join(self, listener: Listener, known: Mapping[str, Any]) -> None:
        async with self._turn:
            if not self._begun:
                await self._logs.refresh(self.job_id)
                await asyncio.to_thread(self._tail.begin)
                self._begun = True
            news = await asyncio.to_thread(self._tail.recent) if listener.wants_logs else []
            if self._tail.shown and self._tail.shown != known:
                news.append(Progress(self._tail.shown))
            _tell(self._events(news), [listener])
            self.listeners.add(listener)

    async def look(self, *, over: bool = False) -> bool:
        """Offer new events to all listeners; returns whether there were any."""
        async with self._turn:
            if not self._begun:
                return False
            await self._logs.refresh(self.job_id)
            news = await asyncio.to_thread(self._tail.news, over=over)
            _tell(self._events(news), self.listeners)
            return bool(news)

    def _events(self, news: Iterable[News]) -> list[JobEvent]:
        now = time.time()
        return [_event(self.job_id, n, now) for n in news]


def _tell(events: Iterable[JobEvent], listeners: Iterable[Listener]) -> None:
    waiting = list(listeners)
    for event in events:
        for listener in waiting:
            listener.offer(event)


def _event(job_id: JobID, news: News, now: float) -> JobEvent:
    match news:
        case Progress():
            return JobEvent(PROGRESS, job_id, now, {"progress": news.view})
        case Lines():
            return JobEvent(LOG, job_id, now, {"attempt": news.attempt, "stream": news.stream, "lines": news.lines})


def _size(event: JobEvent) -> int:
    return sum(len(line) + 1 for line in event.data["lines"])
