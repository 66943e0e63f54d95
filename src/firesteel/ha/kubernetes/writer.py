"""Group commit: requests that queued up for a shard during an update become durable with the next one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from firesteel.concurrency import OwnedTasks
from firesteel.errors import StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.group_commit import GroupCommit, WriteOutcome, WriteRequest
from firesteel.ha.kubernetes.api import CONFIG_MAP, Api, ConflictError
from firesteel.ha.kubernetes.names import SHARD, Names
from firesteel.ha.kubernetes.root import TRIES
from firesteel.ha.kubernetes.shard import Shard, ShardBatch

T = TypeVar("T")


class ShardMissingError(Exception):
    """There is no such ConfigMap."""


class ShardWriter:
    """Carries out requests to one shard in the order in which they were submitted. Belongs to one event loop.

    It caches the shard as it was after the last update, and so writes without reading first. The cache may be stale: then
    the server refuses the update, and it is computed again on the current shard. A request that has no effect on the cached
    shard (refused, or nothing to change) is only answered after the shard was read anew.
    """

    def __init__(self, api: Api, names: Names, name: str, tasks: OwnedTasks) -> None:
        self._api = api
        self._names = names
        self._name = name
        self._group: GroupCommit[WriteRequest[ShardBatch]] = GroupCommit(
            f"ConfigMap '{name}'", self._commit, tasks=tasks, expected=(StoreError, ShardMissingError)
        )
        self._kept: Shard | None = None
        self._uid: str | None = None
        """The uid of the ConfigMap that we write to; another one of the same name must not be used."""

    async def submit(self, action: Callable[[ShardBatch], T]) -> T:
        """Return the result of `action` once it is durable. Its errors are raised here; it must raise before any change.

        Raises ShardMissingError when there is no shard.
        """
        done: T = await self._group.submit(WriteRequest(asyncio.get_running_loop().create_future(), action))
        return done

    def keep(self, shard: Shard) -> None:
        """Cache `shard`, which was just read, as the base of the next update."""
        uid = shard.metadata["uid"]
        if self._uid not in {None, uid}:
            raise StoreBrokenError(
                f"ConfigMap '{self._name}' was deleted and recreated while this node was running; "
                "restart all nodes of the cluster"
            )
        self._uid, self._kept = uid, shard

    def made(self, shard: Shard) -> None:
        """Cache `shard`, which we have just made."""
        self._uid = None
        self.keep(shard)

    async def drain(self) -> None:
        """Wait until all submitted requests are done."""
        await self._group.drain()

    async def _commit(self, group: Sequence[WriteRequest[ShardBatch]]) -> list[WriteOutcome]:
        sent: tuple[Shard, list[WriteOutcome]] | None = None
        for turn in range(TRIES):
            kept, self._kept = self._kept, None
            shard = kept or await self._read()
            if sent is not None and shard.same_content(sent[0]):
                # It was our own write: the HTTP client repeats an update when a connection breaks before the answer.
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
                continue  # deleted meanwhile, which the next read reports
            self._kept = sent[0].stored(raw["metadata"])
            return outcomes
        raise StoreUnavailableError(f"ConfigMap '{self._name}' is constantly changed by other clients; try again later")

    async def _read(self) -> Shard:
        raw = await self._api.read(CONFIG_MAP, self._name)
        if raw is None:
            raise ShardMissingError(self._name)
        self._names.check_ours(raw, SHARD)
        shard = Shard.of(raw)
        self.keep(shard)
        self._kept = None
        return shard
