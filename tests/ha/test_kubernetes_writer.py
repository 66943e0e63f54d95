"""Group commit on one shard: few updates, in order, and never an answer from what is only remembered."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from firesteel.concurrency import OwnedTasks
from firesteel.errors import (
    FencingError,
    StoreBrokenError,
    StoreUnavailableError,
    VersionConflictError,
)
from firesteel.ha.kubernetes.api import CONFIG_MAP, Api, ConflictError, ObjectKind
from firesteel.ha.kubernetes.names import Names
from firesteel.ha.kubernetes.shard import Shard
from firesteel.ha.kubernetes.writer import ShardMissingError, ShardWriter
from firesteel.ha.protocols import NEW, Epoch

NAMES = Names("space", "test")
NAME = NAMES.shard(0)
ONE, TWO = Epoch(1), Epoch(2)


class MemoryApi(Api):
    """One object, with the server's rules; a test may come between."""

    def __init__(self) -> None:
        self.found: dict[str, Any] | None = None
        self.reads = self.updates = 0
        self.before: Callable[[], Awaitable[None]] | None = None
        """Done once, before the next update is looked at."""
        self.after: Callable[[], Awaitable[None]] | None = None
        """Done once, after the next update was carried out; what it raises is the answer."""
        self._versions = itertools.count(1)

    async def read(self, kind: ObjectKind, name: str) -> dict[str, Any] | None:
        self.reads += 1
        await asyncio.sleep(0)
        return copy.deepcopy(self.found)

    async def create(self, kind: ObjectKind, made: Mapping[str, Any]) -> dict[str, Any]:
        if self.found is not None:
            raise ConflictError
        return self._store(made, f"uid-{next(self._versions)}")

    async def replace(self, kind: ObjectKind, made: Mapping[str, Any]) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        if self.found is None:
            return None
        mine, theirs = made["metadata"], self.found["metadata"]
        if (mine["uid"], mine["resourceVersion"]) != (theirs["uid"], theirs["resourceVersion"]):
            raise ConflictError
        self.updates += 1
        written = self._store(made, theirs["uid"])
        if self.after is not None:
            after, self.after = self.after, None
            await after()
        return written

    def _store(self, made: Mapping[str, Any], uid: str) -> dict[str, Any]:
        metadata = {**made["metadata"], "uid": uid, "resourceVersion": str(next(self._versions))}
        self.found = copy.deepcopy({**made, "metadata": metadata})
        return copy.deepcopy(self.found)

    def touch(self) -> None:
        """Somebody puts a label on it."""
        assert self.found is not None
        self._store(self.found, self.found["metadata"]["uid"])


class Fixture:
    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self._tasks = OwnedTasks("test", lambda _: None)
        self.writer = ShardWriter(api, NAMES, NAME, self._tasks)

    async def put(self, path: str, value: bytes, epoch: Epoch = ONE, expected: int | None = None) -> int:
        return await self.writer.submit(lambda batch: batch.put(path, value, epoch, expected))

    async def delete(self, path: str, epoch: Epoch = ONE) -> bool:
        return await self.writer.submit(lambda batch: batch.delete(path, epoch, None))

    async def claim(self, epoch: Epoch) -> None:
        await self.writer.submit(lambda batch: batch.claim(epoch, "somebody"))

    def another(self) -> Fixture:
        """Of another node."""
        return Fixture(self.api)


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        api = MemoryApi()
        await api.create(CONFIG_MAP, Shard.made(NAMES, NAME, instance="i", shards=1, epoch=ONE, holder="me").raw())
        await test(Fixture(api))

    asyncio.run(main())


def test_what_queued_up_is_one_update_and_none_needs_a_read() -> None:
    async def test(f: Fixture) -> None:
        await f.put("first", b"")
        reads, updates = f.api.reads, f.api.updates
        versions = await asyncio.gather(*(f.put(f"p{n}", b"x") for n in range(100)))
        assert list(versions) == list(range(2, 102))
        assert f.api.updates - updates == 1
        assert f.api.reads == reads

    run(test)


def test_refusal_is_never_told_from_what_is_only_remembered() -> None:
    async def test(f: Fixture) -> None:
        version = await f.put("a", b"1")
        other = f.another()
        assert await other.delete("a")
        # By what this node remembers, 'a' is there.
        assert await f.put("a", b"2", expected=NEW) > version
        await other.put("b", b"1")
        assert await f.delete("b") is True
        await other.claim(TWO)
        with pytest.raises(FencingError):
            await f.put("a", b"3", expected=99)  # not a conflict of versions, which is what is remembered

    run(test)


def test_refused_ones_do_not_spoil_the_rest_of_their_update() -> None:
    async def test(f: Fixture) -> None:
        results = await asyncio.gather(
            f.put("a", b"1"),
            f.put("a", b"2", expected=NEW),
            f.put("b", b"3", TWO),
            f.put("c", b"4"),
            return_exceptions=True,
        )
        assert results[0] == 1
        assert isinstance(results[1], VersionConflictError)
        assert isinstance(results[2], FencingError)
        assert results[3] == 2

    run(test)


def test_claim_by_another_node_between_read_and_update_fences_this_one() -> None:
    """The point of it all: no write of the old epoch gets in, however late it comes."""

    async def test(f: Fixture) -> None:
        await f.put("a", b"old")
        other = f.another()

        async def claim() -> None:
            await other.claim(TWO)

        f.api.before = claim
        with pytest.raises(FencingError):
            await f.put("a", b"stale")
        with pytest.raises(FencingError):
            await f.delete("a")
        assert await other.put("a", b"new", TWO, expected=1) == 2

    run(test)


def test_changes_of_others_that_are_none_of_ours_cost_a_try() -> None:
    async def test(f: Fixture) -> None:
        async def touch() -> None:
            f.api.touch()

        await f.put("a", b"1")
        f.api.before = touch
        assert await f.put("a", b"2") == 2

    run(test)


def test_update_that_others_always_come_before_ends_as_unavailable() -> None:
    async def test(f: Fixture) -> None:
        async def touch() -> None:
            f.api.touch()
            f.api.before = touch

        f.api.before = touch
        with pytest.raises(StoreUnavailableError, match="constantly changed"):
            await f.put("a", b"1")
        f.api.before = None
        assert await f.put("a", b"1", expected=NEW) == 1

    run(test)


def test_update_that_was_sent_twice_is_known_again_as_our_own() -> None:
    """An HTTP client repeats a PUT when a connection breaks; the second finds a version that the first has made."""

    async def test(f: Fixture) -> None:
        async def conflict() -> None:
            raise ConflictError

        await f.put("z", b"")
        f.api.after = conflict
        results = await asyncio.gather(f.put("a", b"1", expected=NEW), f.delete("z"))
        assert [*results] == [2, True]
        assert f.api.updates == 2

    run(test)


def test_unanswered_update_fails_all_in_it_and_what_is_there_is_read_before_the_next() -> None:
    async def test(f: Fixture) -> None:
        async def lost() -> None:
            raise StoreUnavailableError("no answer")

        f.api.after = lost
        results = await asyncio.gather(f.put("a", b"1"), f.put("b", b"1", TWO), return_exceptions=True)
        assert all(isinstance(r, StoreUnavailableError) for r in results)
        with pytest.raises(VersionConflictError):  # it was carried out
            await f.put("a", b"2", expected=NEW)
        assert await f.put("a", b"2", expected=1) == 2

    run(test)


def test_shard_that_is_gone_or_another_one_is_not_written_to() -> None:
    async def test(f: Fixture) -> None:
        await f.put("a", b"1")
        f.api.found = None
        with pytest.raises(ShardMissingError):
            await f.put("a", b"2")
        made = Shard.made(NAMES, NAME, instance="i", shards=1, epoch=ONE, holder="me")
        await f.api.create(CONFIG_MAP, made.raw())
        with pytest.raises(StoreBrokenError, match="deleted and recreated"):
            await f.put("a", b"2")
        assert await f.another().put("a", b"2") == 1

    run(test)


def test_one_whose_caller_has_gone_is_not_done_if_it_was_not_begun() -> None:
    async def test(f: Fixture) -> None:
        first = asyncio.create_task(f.put("a", b"1"))
        await asyncio.sleep(0)
        second = asyncio.create_task(f.put("b", b"1"))
        third = asyncio.create_task(f.put("c", b"1"))
        await asyncio.sleep(0)
        second.cancel()
        assert [await first, await third] == [1, 2]
        await f.writer.drain()
        assert await f.delete("b") is False

    run(test)


def test_object_of_somebody_else_under_our_name_is_left_alone() -> None:
    async def test(f: Fixture) -> None:
        assert f.api.found is not None
        f.api.found["metadata"]["labels"] = {"app": "other"}
        with pytest.raises(StoreBrokenError, match=r"not belong to this cluster.*app=firesteel"):
            await f.put("a", b"1")

    run(test)
