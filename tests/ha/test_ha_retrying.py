"""Waiting out a store that is out of reach, without mistaking our own write for somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, StoreBrokenError, StoreUnavailableError, VersionConflictError
from firesteel.ha.memory import MemoryHighAvailabilityServices, MemoryStateStore
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.testing.ha_contract.harness import Recorder

BACKOFF = Backoff(0.001, 0.002)


class FlakyStore:
    """Loses requests or answers: each call takes one letter of its script, and `.` when that is used up.

    `r` the request is lost, `a` it is carried out and the answer is lost, `.` all is well.
    """

    def __init__(self, inner: MemoryStateStore) -> None:
        self.inner = inner
        self.script = ""
        self.error: Exception | None = None

    async def _call(self, action: Awaitable[object]) -> None:
        fate, self.script = (self.script or ".")[0], self.script[1:]
        if fate == "r":
            asyncio.ensure_future(action).cancel()
            raise StoreUnavailableError("request lost")
        if self.error:
            asyncio.ensure_future(action).cancel()
            raise self.error
        self.result = await action
        if fate == "a":
            raise StoreUnavailableError("answer lost")

    async def get(self, path: str) -> Stored | None:
        await self._call(self.inner.get(path))
        assert self.result is None or isinstance(self.result, Stored)
        return self.result

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        await self._call(self.inner.list(prefix))
        assert isinstance(self.result, dict)
        return self.result

    async def paths(self, prefix: str) -> Sequence[str]:
        await self._call(self.inner.paths(prefix))
        assert isinstance(self.result, Sequence)
        return self.result

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        await self._call(self.inner.put(path, value, epoch=epoch, expected=expected))
        assert isinstance(self.result, int)
        return self.result

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        await self._call(self.inner.delete(path, epoch=epoch, expected=expected))
        assert isinstance(self.result, bool)
        return self.result

    async def close(self) -> None:
        await self.inner.close()


def on_flaky(test: Callable[[RetryingStore, FlakyStore, Epoch], Awaitable[None]]) -> None:
    async def main() -> None:
        services = MemoryHighAvailabilityServices()
        listener = Recorder()
        await services.election("node").start(listener)
        flaky = FlakyStore(services.store)
        await test(RetryingStore(flaky, BACKOFF), flaky, await listener.granted())

    asyncio.run(main())


def test_reads_are_repeated() -> None:
    async def test(store: RetryingStore, flaky: FlakyStore, epoch: Epoch) -> None:
        version = await store.put("a/b", b"1", epoch=epoch)
        for call, result in (
            (store.get("a/b"), Stored(b"1", version)),
            (store.list("a"), {"a/b": Stored(b"1", version)}),
            (store.paths("a"), ["a/b"]),
        ):
            flaky.script = "rar"
            assert await call == result
            assert flaky.script == ""

    on_flaky(test)


@pytest.mark.parametrize("script", ["r", "a", "ra", "ar", "rrar", "a.r", "a.a"])
@pytest.mark.parametrize("there", [False, True])
def test_put_that_was_carried_out_unheard_is_no_conflict(script: str, there: bool) -> None:
    async def test(store: RetryingStore, flaky: FlakyStore, epoch: Epoch) -> None:
        expected = await store.put("a", b"old", epoch=epoch) if there else NEW
        flaky.script = script
        version = await store.put("a", b"new", epoch=epoch, expected=expected)
        assert await store.get("a") == Stored(b"new", version)

    on_flaky(test)


@pytest.mark.parametrize("script", ["r", "a", "ra", "ar", "a.r"])
def test_delete_that_was_carried_out_unheard_succeeded(script: str) -> None:
    async def test(store: RetryingStore, flaky: FlakyStore, epoch: Epoch) -> None:
        for guarded in (True, False):
            version = await store.put("a", b"old", epoch=epoch)
            flaky.script = script
            assert await store.delete("a", epoch=epoch, expected=version if guarded else None) is True
            assert await store.get("a") is None

    on_flaky(test)


@pytest.mark.parametrize("script", ["", "r", "rr"])
def test_conflict_with_somebody_else_stays_one(script: str) -> None:
    async def test(store: RetryingStore, flaky: FlakyStore, epoch: Epoch) -> None:
        version = await store.put("a", b"theirs", epoch=epoch)
        flaky.script = script
        with pytest.raises(VersionConflictError):
            await store.put("a", b"ours", epoch=epoch, expected=NEW)
        flaky.script = script
        with pytest.raises(VersionConflictError):
            await store.delete("a", epoch=epoch, expected=version + 1)
        assert await store.get("a") == Stored(b"theirs", version)

    on_flaky(test)


def test_equal_value_of_somebody_else_is_a_conflict_when_every_answer_was_heard() -> None:
    async def test(store: RetryingStore, flaky: FlakyStore, epoch: Epoch) -> None:
        await store.put("a", b"same", epoch=epoch)
        with pytest.raises(VersionConflictError):
            await store.put("a", b"same", epoch=epoch, expected=NEW)
        assert await store.delete("nothing", epoch=epoch) is False

    on_flaky(test)


@pytest.mark.parametrize("error", [FencingError("x"), StoreBrokenError("x")])
def test_other_errors_pass_through(error: Exception) -> None:
    async def test(store: RetryingStore, flaky: FlakyStore, epoch: Epoch) -> None:
        flaky.script, flaky.error = "rr", error
        with pytest.raises(type(error)):
            await store.put("a", b"", epoch=epoch)

    on_flaky(test)
