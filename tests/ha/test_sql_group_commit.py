"""Many writes, one commit; and what goes wrong with one stays with one."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from firesteel.errors import FencingError, StoreError, StoreUnavailableError, VersionConflictError
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.ha.sql import sqlite as database_module
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.ha.sql.sqlite import SqliteDatabase as Database
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder


@contextlib.asynccontextmanager
async def led(directory: Path) -> AsyncIterator[tuple[SqlHighAvailabilityServices, Epoch]]:
    url = f"sqlite:///{directory / 'cluster.db'}"
    services = await SqlHighAvailabilityServices.open(url, cluster_id="test", lease_duration=LONG_LEASE)
    try:
        listener = Recorder()
        await services.election("node").start(listener)
        yield services, await listener.granted()
    finally:
        await services.close()


def on_led(directory: Path, test: Callable[[SqlHighAvailabilityServices, Epoch], Awaitable[None]]) -> None:
    async def main() -> None:
        async with led(directory) as (services, epoch):
            await test(services, epoch)

    asyncio.run(main())


@contextlib.contextmanager
def held(services: SqlHighAvailabilityServices) -> Iterator[None]:
    """The writer waits inside its first commit until the block ends, so that what is submitted there is one group."""
    release = threading.Event()

    def wait(_: Any) -> None:
        assert release.wait(10)

    asyncio.get_running_loop().create_task(services._writer.submit(wait))
    try:
        yield
    finally:
        release.set()


def writing(services: SqlHighAvailabilityServices) -> Engine:
    assert isinstance(services._database, Database)
    return services._database._writing


def commits(services: SqlHighAvailabilityServices) -> list[None]:
    """Grows with each commit of the writer."""
    seen: list[None] = []
    event.listen(writing(services), "commit", lambda _: seen.append(None))
    return seen


def test_what_queued_up_is_one_commit(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        counted = commits(services)
        with held(services):
            await asyncio.sleep(0)
            puts = [asyncio.create_task(services.store.put(f"a/{n}", b"x", epoch=epoch)) for n in range(700)]
            await asyncio.sleep(0)
        versions = await asyncio.gather(*puts)
        assert len(counted) <= 2
        assert len(set(versions)) == 700
        assert len(await services.store.paths("a")) == 700

    on_led(tmp_path, test)


def test_refused_writes_do_not_spoil_their_group(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        there = await store.put("there", b"1", epoch=epoch)
        counted = commits(services)
        with held(services):
            await asyncio.sleep(0)
            calls: list[Awaitable[Any]] = [
                store.put("a", b"a1", epoch=epoch, expected=NEW),
                store.put("a", b"a2", epoch=epoch, expected=NEW),  # conflicts with the one before, in the same group
                store.put("b", b"b", epoch=Epoch(epoch - 1)),
                store.put("there", b"2", epoch=epoch, expected=there),
                store.put("there", b"3", epoch=epoch, expected=there),
                store.put("gone", b"", epoch=epoch),
                store.delete("gone", epoch=epoch),
                store.delete("gone", epoch=epoch),
                services._writer.submit(lambda _: 1 // 0),
                store.put("last", b"", epoch=epoch),
            ]
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0)
        results: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(r) for r in results] == [
            int,
            VersionConflictError,
            FencingError,
            int,
            VersionConflictError,
            int,
            bool,
            bool,
            ZeroDivisionError,
            int,
        ]
        assert results[6:8] == [True, False]
        assert len(counted) <= 2
        assert await store.get("a") == Stored(b"a1", results[0])
        assert await store.get("b") is None
        assert await store.get("there") == Stored(b"2", results[3])
        assert await store.get("gone") is None
        assert await store.get("last") == Stored(b"", results[9])

    on_led(tmp_path, test)


def test_value_that_the_database_refuses_fails_alone(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        with contextlib.closing(writing(services).raw_connection()) as raw:
            assert isinstance(raw.dbapi_connection, sqlite3.Connection)
            raw.dbapi_connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        with held(services):
            await asyncio.sleep(0)
            sizes = [10, 20_000, 20]
            tasks = [
                asyncio.create_task(services.store.put(f"a/{n}", bytes(n), epoch=epoch, expected=NEW)) for n in sizes
            ]
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(r) for r in results] == [int, StoreError, int]
        assert "smaller" in str(results[1])
        assert list(await services.store.paths("a")) == ["a/10", "a/20"]

    on_led(tmp_path, test)


def test_cancelled_caller_disturbs_nobody(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        with held(services):
            await asyncio.sleep(0)
            first, second = (asyncio.create_task(services.store.put(p, b"", epoch=epoch)) for p in ("a", "b"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
        assert isinstance(await second, int)
        assert first.cancelled()
        assert await services.store.get("b") is not None

    on_led(tmp_path, test)


def test_caller_cancelled_during_the_commit_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        entered, release = threading.Event(), threading.Event()

        def slow(_: Any) -> None:
            entered.set()
            assert release.wait(10)

        with held(services):
            await asyncio.sleep(0)
            first = asyncio.create_task(services._writer.submit(slow))
            second = asyncio.create_task(services.store.put("b", b"", epoch=epoch))
            await asyncio.sleep(0)
        assert await asyncio.to_thread(entered.wait, 10)
        first.cancel()
        await asyncio.sleep(0)
        release.set()
        async with asyncio.timeout(10):
            assert isinstance(await second, int)

    on_led(tmp_path, test)


def test_commits_are_forced_to_the_disk(tmp_path: Path) -> None:
    """The loss of power cannot be tried here; that SQLite was told to expect it can."""

    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        with contextlib.closing(writing(services).raw_connection()) as raw:
            settings = [
                raw.cursor().execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
            ]
        assert settings == [2, "wal"]

    on_led(tmp_path, test)


def test_writer_outlives_a_loop_that_went_away(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        released = threading.Event()

        async def put_and_go() -> None:
            asyncio.get_running_loop().create_task(services._writer.submit(lambda _: released.wait(10)))
            asyncio.get_running_loop().create_task(services.store.put("lost", b"", epoch=epoch))
            await asyncio.sleep(0)

        def other_loop() -> None:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)
            loop.run_until_complete(put_and_go())
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # that is what this test is about
            loop.close()

        await asyncio.to_thread(other_loop)
        released.set()
        await services.store.put("after", b"", epoch=epoch)
        assert await services.store.get("after") is not None

    on_led(tmp_path, test)


def test_close_finishes_what_was_submitted(tmp_path: Path) -> None:
    async def main() -> None:
        async with led(tmp_path) as (services, epoch):
            puts = [asyncio.create_task(services.store.put(f"a/{n}", b"x", epoch=epoch)) for n in range(100)]
            await asyncio.sleep(0)
            await services.store.close()
            assert len(await asyncio.gather(*puts)) == 100

    asyncio.run(main())


def test_locked_database_is_unavailable_and_the_loop_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT", 0.3)

    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        before = await services.store.put("a", b"before", epoch=epoch)
        stalls: list[float] = []

        async def watch() -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.005)
                stalls.append(time.monotonic() - began)

        watching = asyncio.create_task(watch())
        other = sqlite3.connect(tmp_path / "cluster.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match=r"cluster\.db is locked"):
            await services.store.put("a", b"after", epoch=epoch)
        assert await services.store.get("a") == Stored(b"before", before)  # readers need no lock
        other.execute("ROLLBACK")
        other.close()
        watching.cancel()
        assert len(stalls) > 10
        assert max(stalls) < 0.25
        assert await services.store.put("a", b"after", epoch=epoch) > before

    on_led(tmp_path, test)


def test_clusters_of_one_database_know_nothing_of_each_other(tmp_path: Path) -> None:
    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        await services.store.put("a/b", b"", epoch=epoch)
        url = f"sqlite:///{tmp_path / 'cluster.db'}"
        other = await SqlHighAvailabilityServices.open(url, cluster_id="other", lease_duration=LONG_LEASE)
        try:
            assert await other.store.get("a/b") is None
            assert list(await other.store.paths("a")) == []
            with pytest.raises(FencingError):
                await other.store.put("a/b", b"", epoch=epoch)
            listener = Recorder()
            await other.election("node").start(listener)
            assert await listener.granted() == 1
            await other.store.put("a/b", b"other", epoch=Epoch(1))
            stored = await services.store.get("a/b")
            assert stored is not None
            assert stored.value == b""
        finally:
            await other.close()

    on_led(tmp_path, test)


def test_many_writes_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 hands with 2 KB each: what makes them fast is that they are synced together."""
    commits = 0
    original = Database.write

    @contextlib.contextmanager
    def write(self: Database) -> Iterator[Any]:
        nonlocal commits
        commits += 1
        with original(self) as connection:
            yield connection

    monkeypatch.setattr(Database, "write", write)

    async def test(services: SqlHighAvailabilityServices, epoch: Epoch) -> None:
        numbers = iter(range(2000))

        async def hand() -> None:
            for n in numbers:
                await services.store.put(f"graphs/{n}", bytes(2048), epoch=epoch)

        await asyncio.gather(*(hand() for _ in range(64)))
        assert len(await services.store.paths("graphs")) == 2000
        assert commits < 2000 / 4

    on_led(tmp_path, test)
