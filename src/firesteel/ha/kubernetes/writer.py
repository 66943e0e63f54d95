"""Group commit: what has queued up for a shard while an update of it was under way becomes durable with the next one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from firesteel.concurrency import OwnedTasks
from firesteel.errors import StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.kubernetes.api import CONFIG_MAP, Api, ConflictError
from firesteel.ha.kubernetes.names import SHARD, Names
from firesteel.ha.kubernetes.root import TRIES
from firesteel.ha.kubernetes.shard import Shard, ShardBatch
from firesteel.ha.outcomes import WriteOutcome, WriteRequest, resolve

T = TypeVar("T")
logger = logging.getLogger(__name__)


class ShardMissingError(Exception):
    """There is no such ConfigMap."""


class ShardWriter:
    """Does requests to one shard in the order in which they were submitted. Belongs to one event loop.

    It keeps the shard as it was after the last update, and so writes without reading first. What it keeps may be old: then
    the server refuses the update, and it is worked out again on what is there. A request that comes to nothing on what is
    kept (refused, or nothing to change) is told so only after the shard was read anew.
    """

    def __init__(self, api: Api, names: Names, name: str, tasks: OwnedTasks) -> None:
        self._api = api
        self._names = names
        self._name = name
        self._tasks = tasks
        self._queue: deque[WriteRequest[ShardBatch]] = deque()
        self._working: asyncio.Task[None] | None = None
        self._kept: Shard | None = None
        self._uid: str | None = None
        """Of the ConfigMap that we have been writing to; another of the same name is not ours to go on with."""

    async def submit(self, action: Callable[[ShardBatch], T]) -> T:
        """The result of `action`, once it is durable; what it raises is raised here, and must come before any change.

        Raises ShardMissingError when there is no shard.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(WriteRequest(action, future))
        if self._working is None:
            self._working = self._tasks.start(self._work(), self._name)
        return await future

    def keep(self, shard: Shard) -> None:
        """`shard` was read just now; the next update is tried on it."""
        uid = shard.metadata["uid"]
        if self._uid not in {None, uid}:
            raise StoreBrokenError(
                f"ConfigMap '{self._name}' was deleted and made again while this node was running; "
                "restart every node of the cluster"
            )
        self._uid, self._kept = uid, shard

    def made(self, shard: Shard) -> None:
        """`shard` was made just now, by us."""
        self._uid = None
        self.keep(shard)

    async def drain(self) -> None:
        """Wait until all that was submitted is done."""
        if self._working is not None:
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        try:
            while self._queue:
                # One whose caller has gone away need not be done; it would not be missed if the process had died here.
                group = [request for request in self._queue if not request.future.cancelled()]
                self._queue.clear()
                if group:
                    resolve(await self._do(group))
        finally:
            self._working = None
            while self._queue:
                self._queue.popleft().future.cancel()

    async def _do(self, group: Sequence[WriteRequest[ShardBatch]]) -> list[WriteOutcome]:
        try:
            return await self._commit(group)
        except asyncio.CancelledError:
            for request in group:
                request.future.cancel()
            raise
        except Exception as error:
            self._kept = None
            if not isinstance(error, StoreError | ShardMissingError):
                logger.exception("an update of ConfigMap '%s' failed in an unforeseen way", self._name)
            return [request.failed(error) for request in group]

    async def _commit(self, group: Sequence[WriteRequest[ShardBatch]]) -> list[WriteOutcome]:
        sent: tuple[Shard, list[WriteOutcome]] | None = None
        for turn in range(TRIES):
            kept, self._kept = self._kept, None
            shard = kept or await self._read()
            if sent is not None and shard.same_content(sent[0]):
                # Ours after all: the HTTP client sends an update again when a connection breaks before the answer.
                self._kept = shard
                return sent[1]
            batch = ShardBatch(shard)
            outcomes = [request.attempt(batch) for request in group]
            if kept is not None and batch.changes < len(group):
                continue
            if not batch.changes:
                self._kept = shard
                return outcomes
            sent = (batch.result(), outcomes)
            try:
                raw = await self._api.replace(CONFIG_MAP, sent[0].raw())
            except ConflictError:
                await asyncio.sleep(random.uniform(0, min(0.005 * turn, 0.1)))  # noqa: S311 - spreads load, guards nothing
                continue
            if raw is None:
                continue  # deleted meanwhile, which reading says
            self._kept = sent[0].stored(raw["metadata"])
            return outcomes
        raise StoreUnavailableError(f"ConfigMap '{self._name}' is changed by others all the time; try again later")

    async def _read(self) -> Shard:
        raw = await self._api.read(CONFIG_MAP, self._name)
        if raw is None:
            raise ShardMissingError(self._name)
        self._names.check_ours(raw, SHARD)
        shard = Shard.of(raw)
        self.keep(shard)
        self._kept = None
        return shard
