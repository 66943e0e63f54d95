"""Group commit: one thread does all writes, and those that queued up meanwhile become durable in one transaction."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from firesteel.errors import StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.group_commit import WriteOutcome, WriteRequest, resolve, still_wanted
from firesteel.ha.sql.batch import Batch
from firesteel.ha.sql.database import Database, repeated

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Request(WriteRequest[Batch]):
    path: str | None
    """The path that it reads or changes."""


class GroupWriter:
    """Carries out requests in the order in which they were submitted. No failed request ends it.

    Unlike GroupCommit it has a thread: a database blocks, and the next transaction need not wait for the event loop.
    """

    def __init__(self, database: Database, cluster_id: str) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Nothing is queued behind the None that ends the thread."""
        self._closed = False
        # A daemon, because a process that is told to exit must not hang on a store that was not closed.
        self._thread = threading.Thread(target=self._work, name="ha-sql-writer", daemon=True)
        self._thread.start()

    async def submit(self, action: Callable[[Batch], T], path: str | None = None) -> T:
        """Return the result of `action` once it is durable.

        Args:
            action: Works on the batch; it must raise before it changes anything, and its errors are raised here.
            path: The path that it reads or changes.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closed:
                raise StoreError(f"{self._database.where} is closed; open it again")
            self._queue.put(_Request(future, action, path))
        return await future

    async def close(self) -> None:
        """Finish the submitted requests, then end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        open_ = True
        while open_:
            taken = [self._queue.get()]
            while True:
                try:
                    taken.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            open_ = None not in taken
            if group := still_wanted(request for request in taken if request is not None):
                _deliver(self._do(group))

    def _do(self, group: Sequence[_Request]) -> list[WriteOutcome]:
        try:
            return repeated(partial(self._commit, group))
        except (StoreBrokenError, StoreUnavailableError) as error:
            return [request.failed(error) for request in group]
        except Exception as error:
            # One of the values is to blame, and nothing was committed. Done one by one, only that one fails.
            if len(group) > 1:
                return [outcome for request in group for outcome in self._do([request])]
            if not isinstance(error, StoreError):
                logger.exception("a write to %s failed unexpectedly", self._database.where)
            return [group[0].failed(error)]

    def _commit(self, group: Sequence[_Request]) -> list[WriteOutcome]:
        with self._database.write() as connection:
            found, next_epoch = self._database.lock(connection, self._cluster_id)
            paths = {request.path for request in group if request.path is not None}
            batch = Batch(found, self._database.versions(connection, self._cluster_id, paths), next_epoch)
            outcomes = [request.attempt(batch) for request in group]
            self._database.carry_out(connection, self._cluster_id, batch)
        return outcomes


def _deliver(outcomes: Sequence[WriteOutcome]) -> None:
    """Deliver results to the event loops of the callers, waking each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteOutcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.future.get_loop(), []).append(outcome)
    for loop, its in by_loop.items():
        try:
            loop.call_soon_threadsafe(resolve, its)
        except RuntimeError:  # the loop is closed, so nothing waits any more
            pass
