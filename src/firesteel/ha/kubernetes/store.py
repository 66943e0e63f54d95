"""The fenced store in ConfigMaps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from firesteel.concurrency import OwnedTasks
from firesteel.errors import FencingError, StoreBrokenError, StoreError, StoreUnavailableError, VersionConflictError
from firesteel.ha.kubernetes.api import CONFIG_MAP, Api, ConflictError
from firesteel.ha.kubernetes.names import SHARD, Names
from firesteel.ha.kubernetes.root import Root, Roots
from firesteel.ha.kubernetes.shard import SMALL, Shard, ShardBatch, ShardEntry, ShardFullError
from firesteel.ha.kubernetes.values import Bulky, ShardValues
from firesteel.ha.kubernetes.writer import ShardMissingError, ShardWriter
from firesteel.ha.protocols import Epoch, Stored
from firesteel.ha.rules import NEVER, check_epoch, check_path
from firesteel.ha.storage import DamagedValueError

T = TypeVar("T")
logger = logging.getLogger(__name__)

CLAIMS_AT_ONCE = 16
_REFUSED = (FencingError, VersionConflictError, ShardFullError, ShardMissingError)
"""Errors after which nothing was written."""


class KubernetesStateStore:
    """Reads see every write that was acknowledged before they began, by any process."""

    def __init__(self, api: Api, names: Names, root: Root, values: ShardValues) -> None:
        self._api = api
        self._names = names
        self._roots = Roots(api, names)
        self._root = root
        """The root when this node opened it: instance and number of shards never change."""
        self._values = values
        self._tasks = OwnedTasks("kubernetes-store", lambda _: None)
        self._writers = {name: ShardWriter(api, names, name, self._tasks) for name in names.shards(root.shards)}
        self._closed = False
        self.on_fenced: Callable[[Epoch], None] = lambda _: None
        """Called with the epoch of each write that was refused because of its epoch."""

    # The StateStore protocol.

    async def get(self, path: str) -> Stored | None:
        self._check(path)
        entry = await self._entry(path)
        return await self._stored(path, entry) if entry is not None else None

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        self._check(prefix)
        entries = await self._below(prefix)
        listed: dict[str, Stored | None] = await asyncio.to_thread(self._inline, entries)
        elsewhere = [(path, entry) for path, entry in entries if listed[path] is None]
        read = await asyncio.gather(*(self._stored(path, entry) for path, entry in elsewhere))
        listed |= {path: stored for (path, _), stored in zip(elsewhere, read, strict=True)}
        return {path: stored for path, stored in listed.items() if stored is not None}

    async def paths(self, prefix: str) -> Sequence[str]:
        self._check(prefix)
        return [path for path, _ in await self._below(prefix)]

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        self._check(path)
        try:
            return await self._put(path, value, epoch, expected)
        except ShardFullError:
            if len(value) < SMALL:  # a pointer would be no shorter
                raise
            return await self._put(path, Bulky(value), epoch, expected)

    async def _put(self, path: str, value: bytes, epoch: Epoch, expected: int | None) -> int:
        if self._values.is_large(value):  # no file for a value that would be refused anyway
            await self._write(path, epoch, lambda batch: batch.check(path, epoch, expected))
        async with self._values.packed(value, epoch, refused=_REFUSED) as record:
            return await self._write(path, epoch, lambda batch: batch.put(path, record, epoch, expected))

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        self._check(path)
        return await self._write(path, epoch, lambda batch: batch.delete(path, epoch, expected))

    async def close(self) -> None:
        """Finish pending writes, then end."""
        self._closed = True
        for writer in self._writers.values():
            await writer.drain()
        await self._tasks.close()
        await self._values.close()

    # For leaders.

    async def newest_epoch(self) -> Epoch:
        """The newest epoch that a contender began to claim, according to the root."""
        root = await self._roots.read()
        return root.epoch if root is not None else await self._newest_in_shards()

    async def claim(self, epoch: Epoch, holder: str) -> None:
        """Make `epoch` the only one that can write, in every shard, once this has returned.

        A partial claim does no harm: the next contender claims with a newer epoch, and until then no one writes to the
        claimed shards, and the earlier leader writes to the others.

        Raises:
            ClaimRefusedError: Another contender claims this epoch or a newer one.
            StoreBrokenError: A shard was deleted.
        """
        self._check_open()
        root = await self._roots.open_epoch(epoch, holder)
        if (root.instance, root.shards) != (self._root.instance, self._root.shards):
            raise StoreBrokenError(
                f"the state of cluster '{self._names.cluster_id}' was deleted and recreated while this node was running; "
                "restart all nodes of the cluster"
            )
        found = {shard.name: shard for shard in await self._roots.shards()}
        if root.complete:
            self._check_complete(found)
        if strangers := sorted(name for name, shard in found.items() if shard.instance != root.instance):
            raise StoreBrokenError(
                f"{', '.join(strangers)} in namespace '{self._names.namespace}' does not belong to the same state as ConfigMap "
                f"'{self._names.root}'; delete what was restored by mistake, and restore a consistent set"
            )
        limit = asyncio.Semaphore(CLAIMS_AT_ONCE)

        async def claim(name: str, writer: ShardWriter) -> None:
            async with limit:
                await self._claim_one(writer, name, found.get(name), epoch, holder)

        ended = await asyncio.gather(*(claim(*one) for one in self._writers.items()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
        if not root.complete:
            await self._roots.completed(epoch, holder)

    async def _claim_one(self, writer: ShardWriter, name: str, found: Shard | None, epoch: Epoch, holder: str) -> None:
        if found is None:
            instance, shards = self._root.instance, self._root.shards
            made = Shard.made(self._names, name, instance=instance, shards=shards, epoch=epoch, holder=holder)
            try:
                writer.made(Shard.of(await self._api.create(CONFIG_MAP, made.raw())))
                return
            except ConflictError:
                pass  # made by a claim that was not completed; it is claimed like any other
        else:
            writer.keep(found)
        await writer.submit(lambda batch: batch.claim(epoch, holder))

    async def collect(self, epoch: Epoch) -> int:
        """Delete orphaned files of large values; for a leader whose claim is complete."""

        async def records() -> Sequence[bytes]:
            shards = await self._all_shards()
            return await asyncio.to_thread(lambda: [e.decoded() for shard in shards for e in shard.entries.values()])

        return await self._values.collect(epoch, records)

    # Helpers.

    def _check(self, path: str) -> None:
        check_path(path)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store of cluster '{self._names.cluster_id}' in Kubernetes is closed; open it again")

    async def _write(self, path: str, epoch: Epoch, action: Callable[[ShardBatch], T]) -> T:
        name = self._names.shard_of(path, self._root.shards)
        try:
            return await self._writers[name].submit(action)
        except FencingError:
            self.on_fenced(epoch)
            raise
        except ShardMissingError as error:
            if await self._check_missing([name]):
                raise StoreUnavailableError(f"ConfigMap '{name}' has only just been created; try again") from error
            check_epoch(epoch, NEVER, f"a write of '{path}'")
            raise

    async def _entry(self, path: str) -> ShardEntry | None:
        name = self._names.shard_of(path, self._root.shards)
        raw = await self._api.read(CONFIG_MAP, name)
        if raw is None:
            await self._check_missing([name])
            return None
        self._names.check_ours(raw, SHARD)
        return Shard.of(raw).entries.get(path)

    async def _stored(self, path: str, entry: ShardEntry) -> Stored | None:
        """The value of `entry`, or the current one if its file was replaced and collected since it was read."""
        while True:
            record = entry.decoded()
            try:
                return Stored(await self._values.unpack(record), entry.version)
            except DamagedValueError as error:
                now = await self._entry(path)
                if now is None:
                    return None
                if now == entry:
                    # One unreadable record must not hide the others; decoding it will raise the error.
                    logger.error("'%s' cannot be read: %s", path, error)
                    return Stored(record, entry.version)
                entry = now

    def _inline(self, entries: Sequence[tuple[str, ShardEntry]]) -> dict[str, Stored | None]:
        """The value in the record itself; None when it is in a file."""
        values = ((path, self._values.inline(entry.decoded()), entry.version) for path, entry in entries)
        return {path: Stored(value, version) if value is not None else None for path, value, version in values}

    async def _below(self, prefix: str) -> Sequence[tuple[str, ShardEntry]]:
        shards = await self._all_shards()
        return await asyncio.to_thread(lambda: sorted(_below(shards, prefix), key=lambda item: item[0]))

    async def _all_shards(self) -> Sequence[Shard]:
        shards = await self._roots.shards()
        if missing := self._missing(shards):
            await self._check_missing(missing)
        return shards

    async def _newest_in_shards(self) -> Epoch:
        return max((shard.epoch for shard in await self._roots.shards()), default=NEVER)

    def _missing(self, shards: Sequence[Shard]) -> Sequence[str]:
        return sorted(self._writers.keys() - {shard.name for shard in shards})

    async def _check_missing(self, names: Sequence[str]) -> bool:
        """Raise an error if missing shards were deleted. Returns whether they exist by now."""
        root = await self._roots.read()
        if root is None or not root.complete:
            return False
        # All have been made by now, but perhaps not yet when they were read.
        self._check_complete({shard.name: shard for shard in await self._roots.shards()}, names)
        return True

    def _check_complete(self, found: Mapping[str, Shard], names: Sequence[str] = ()) -> None:
        if missing := sorted((set(names) or self._writers.keys()) - found.keys()):
            raise StoreBrokenError(
                f"{', '.join(missing)} in namespace '{self._names.namespace}' was deleted, and with it a part of the state of "
                f"cluster '{self._names.cluster_id}'; restore the ConfigMap from a backup, or, to continue without its "
                f"content, delete ConfigMap '{self._names.root}' as well and restart all nodes"
            )


def _below(shards: Sequence[Shard], prefix: str) -> list[tuple[str, ShardEntry]]:
    return [item for shard in shards for item in shard.below(prefix)]
