"""What the server does to writes: restarts in the middle of them, deadlocks, a full disk; and what their callers are told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from tests.ha.postgresql_nodes import database_of, lead, node
from tests.small_disk import small_disk
from tests.support.postgresql import PostgreSqlServer, owner, url_of

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.ha.sql.batch import Batch
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import eventually

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]


@contextlib.asynccontextmanager
async def session(server: PostgreSqlServer) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Somebody else's."""
    async with await psycopg.AsyncConnection.connect(server.url) as connection:
        yield connection


async def waits_for_a_lock(server: PostgreSqlServer, who: str) -> None:
    async def waiting() -> bool:
        query = f"SELECT count(*) > 0 FROM pg_stat_activity WHERE {who} AND wait_event_type = 'Lock'"
        return server.sql(query) == ["t"]

    await eventually(waiting)


@pytest.mark.parametrize("stop", ["stop", "stop_immediately", "kill"])
def test_server_that_restarts_in_the_middle_of_writes(postgresql: PostgreSqlServer, stop: str) -> None:
    """Each write happened or did not; what was acknowledged did, and is there after a crash; what repeats itself ends once."""

    async def main() -> None:
        async with node(postgresql.url) as services:
            _, listener, epoch = await lead(services)
            acknowledged: dict[str, int] = {}
            told: list[StoreError] = []
            ended = asyncio.Event()

            async def plain(hand: int) -> None:
                for n in range(100_000):
                    path = f"plain/{hand}-{n}"
                    try:
                        acknowledged[path] = await services.store.put(path, path.encode() * 50, epoch=epoch)
                    except StoreError as error:
                        told.append(error)
                        await asyncio.sleep(0.01)
                    if ended.is_set():
                        return

            async def repeating(hand: int) -> None:
                store = RetryingStore(services.store, Backoff(0.01, 0.1))
                version = NEW
                for n in range(100_000):
                    version = await store.put(f"repeating/{hand}", str(n).encode(), epoch=epoch, expected=version)
                    if ended.is_set():
                        assert await store.get(f"repeating/{hand}") == Stored(str(n).encode(), version)
                        return

            hands = [asyncio.create_task(work(hand)) for hand in range(8) for work in (plain, repeating)]

            async def many() -> bool:
                return len(acknowledged) >= 200

            await eventually(many)
            await asyncio.to_thread(getattr(postgresql, stop))
            await asyncio.to_thread(postgresql.start)
            after = len(acknowledged)

            async def many_more() -> bool:
                return len(acknowledged) >= after + 50

            await eventually(many_more)
            ended.set()
            await asyncio.gather(*hands)
            assert told
            assert all(isinstance(error, StoreUnavailableError) for error in told), told
            stored = await services.store.list("plain")
            assert acknowledged.items() <= {path: value.version for path, value in stored.items()}.items()
            assert all(value.value == path.encode() * 50 for path, value in stored.items())
            assert listener.events == ["grant"]

    asyncio.run(main())


def test_idle_connections_that_a_restart_has_ended_are_no_error(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url) as services:
            _, _, epoch = await lead(services)
            for n in range(3):
                version = await services.store.put("a", b"", epoch=epoch)
                await asyncio.gather(*(services.store.get("a") for _ in range(4)))
                await asyncio.to_thread(postgresql.restart)
                if n % 2:
                    assert await services.store.get("a") == Stored(b"", version)

    asyncio.run(main())


def test_deadlock_with_another_session_is_tried_again(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url) as services, session(postgresql) as other:
            _, _, epoch = await lead(services)
            version = await services.store.put("a", b"1", epoch=epoch)
            entered, release, tries = threading.Event(), threading.Event(), 0

            def put(batch: Batch) -> int:
                """As the store does, but with a pause while the row of the cluster is locked."""
                nonlocal tries
                tries += 1
                entered.set()
                assert release.wait(10)
                return batch.put("a", b"2", epoch, version)

            await other.execute("SET deadlock_timeout = '60s'")  # so that it is ours that ends
            await other.commit()
            await other.execute("UPDATE firesteel_state SET value = 'x' WHERE cluster_id = %s", [services._cluster_id])
            writing = asyncio.create_task(services._writer.submit(put, "a"))
            assert await asyncio.to_thread(entered.wait, 10)
            locking = asyncio.create_task(
                other.execute(
                    "UPDATE firesteel_leadership SET address = 'x' WHERE cluster_id = %s", [services._cluster_id]
                )
            )
            await waits_for_a_lock(postgresql, f"pid = {other.info.backend_pid}")
            release.set()  # each waits for the other now, and ours is told
            await locking
            await other.commit()
            assert await writing > version
            assert tries == 2
            assert "deadlock detected" in postgresql.log

    asyncio.run(main())


def test_row_that_stays_locked_makes_writes_unavailable_and_reads_go_on(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url, lease=6.0) as services, session(postgresql) as other:
            _, _, epoch = await lead(services)
            version = await services.store.put("a", b"1", epoch=epoch)
            await other.execute("UPDATE firesteel_state SET value = 'x' WHERE cluster_id = %s", [services._cluster_id])
            with pytest.raises(StoreUnavailableError, match=r"locked by another session|did not do it in time"):
                await services.store.put("a", b"2", epoch=epoch)
            assert await services.store.get("a") == Stored(b"1", version)
            await other.rollback()
            assert await services.store.put("a", b"2", epoch=epoch) > version

    asyncio.run(main())


def test_paused_server_is_unavailable_and_keeps_no_thread(postgresql: PostgreSqlServer) -> None:
    """Its connections stand and its kernel answers; only our own patience ends it."""

    async def main() -> None:
        async with node(postgresql.url, lease=6.0) as services:
            _, listener, epoch = await lead(services)
            version = await services.store.put("a", b"1", epoch=epoch)
            await services.store.get("a")
            await asyncio.to_thread(postgresql.pause)
            try:
                calls = [services.store.put("a", b"2", epoch=epoch), services.store.get("a"), services.store.paths("b")]
                results = await asyncio.gather(*calls, return_exceptions=True)
                assert [type(result) for result in results] == [StoreUnavailableError] * 3
                assert "no answer" in str(results)
                # Also those that would need a new connection, to a server that takes it and says nothing.
                with pytest.raises(StoreUnavailableError):
                    await services.store.get("a")
                await listener.until(lambda: "revoke" in listener.events)
            finally:
                await asyncio.to_thread(postgresql.resume)
            again = await listener.granted()
            assert again > epoch
            found = await services.store.get("a")
            assert found is not None
            assert found.version >= version
            assert await services.store.put("a", b"3", epoch=again) > found.version
            assert "error" not in listener.events

    asyncio.run(main())


def test_value_that_is_refused_fails_alone(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url) as services:
            _, _, epoch = await lead(services)
            paths = ["a/1", "a/" + "x" * 2000, "a/2"]
            puts = [asyncio.create_task(services.store.put(path, b"", epoch=epoch)) for path in paths]
            results = await asyncio.gather(*puts, return_exceptions=True)
            assert [type(result) for result in results] == [int, StoreError, int]
            assert "refused a value" in str(results[1])
            assert list(await services.store.paths("a")) == ["a/1", "a/2"]

    asyncio.run(main())


def test_full_disk_refuses_and_is_well_again_with_space(postgresql: PostgreSqlServer) -> None:
    with small_disk() as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk")
        shutil.chown(disk, *owner())

        async def main(url: str) -> None:
            async with node(url) as services:
                _, listener, epoch = await lead(services)
                postgresql.sql("ALTER TABLE firesteel_state SET TABLESPACE small", database="filled")
                acknowledged: list[str] = []

                async def put_until_full() -> None:
                    for n in range(500):
                        await services.store.put(f"a/{n}", os.urandom(8000), epoch=epoch)
                        acknowledged.append(f"a/{n}")

                with pytest.raises(StoreFailingError, match=r"its disk is full; free space"):
                    await put_until_full()
                assert acknowledged
                assert set(await services.store.paths("a")) == set(acknowledged)
                postgresql.sql("ALTER TABLE firesteel_state SET TABLESPACE pg_default", database="filled")
                await services.store.put("b", os.urandom(8000), epoch=epoch)
                assert listener.events == ["grant"]

        with postgresql.database("filled") as url:
            postgresql.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
            asyncio.run(main(url))
        postgresql.sql("DROP TABLESPACE small")


def test_password_that_changes_while_running_is_waited_for(postgresql: PostgreSqlServer) -> None:
    """It was right once; a node that ended itself would have to be started again."""

    async def main() -> None:
        async with node(url_of(postgresql.port, user="rotated", password="first"), lease=6.0) as services:
            _, listener, epoch = await lead(services)
            postgresql.sql("ALTER ROLE rotated PASSWORD 'second'")
            await services.store.put("a", b"", epoch=epoch)  # by the connection that is there
            postgresql.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rotated'")
            with pytest.raises(StoreUnavailableError, match="set the right user and password"):
                await services.store.get("a")
            postgresql.sql("ALTER ROLE rotated PASSWORD 'first'")

            async def works() -> bool:
                with contextlib.suppress(StoreUnavailableError):
                    return await services.store.get("a") is not None
                return False

            await eventually(works)
            assert "error" not in listener.events

    postgresql.sql("CREATE ROLE rotated LOGIN SUPERUSER PASSWORD 'first'")
    try:
        asyncio.run(main())
    finally:
        postgresql.sql("DROP ROLE rotated")


def test_what_queued_up_is_one_commit(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url) as services:
            _, _, epoch = await lead(services)
            entered, release = threading.Event(), threading.Event()

            def hold(_: Any) -> None:
                entered.set()
                assert release.wait(10)

            holding = asyncio.create_task(services._writer.submit(hold))
            assert await asyncio.to_thread(entered.wait, 10)
            before = int(postgresql.sql("SELECT pg_current_xact_id()")[0])
            puts = [asyncio.create_task(services.store.put(f"a/{n}", b"x", epoch=epoch)) for n in range(700)]
            await asyncio.sleep(0)
            release.set()
            await asyncio.gather(holding, *puts)
            spent = int(postgresql.sql("SELECT pg_current_xact_id()")[0]) - before
            assert len(await services.store.paths("a")) == 700
            assert spent < 20

    asyncio.run(main())


def test_close_does_not_wait_for_a_server_that_is_away(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        services = await SqlHighAvailabilityServices.open(postgresql.url, cluster_id="closing", lease_duration=4.0)
        await lead(services)
        await asyncio.to_thread(postgresql.pause)
        try:
            async with asyncio.timeout(30):
                await services.close()
        finally:
            await asyncio.to_thread(postgresql.resume)

        async def threads_are_gone() -> bool:
            return not [t for t in threading.enumerate() if t.name.startswith("ha-sql")]

        await eventually(threads_are_gone)

    asyncio.run(main())


def test_write_that_meets_a_take_over_waits_for_it_and_is_refused(postgresql: PostgreSqlServer) -> None:
    """I7. Check and write are one: no other leader comes in between."""

    async def main() -> None:
        async with node(postgresql.url) as services, session(postgresql) as other:
            _, _, epoch = await lead(services)
            # As another node that is about to commit its take-over.
            await other.execute(
                "UPDATE firesteel_leadership SET epoch = 7, holder = 'other' WHERE cluster_id = %s",
                [services._cluster_id],
            )
            writing = asyncio.create_task(services.store.put("a", b"stale", epoch=epoch))
            await waits_for_a_lock(postgresql, f"application_name = '{database_of(services)._target.session}'")
            await other.commit()
            with pytest.raises(FencingError, match="newest epoch is 7"):
                await writing
            assert await services.store.get("a") is None
            assert await services.store.put("a", b"", epoch=Epoch(7))

    asyncio.run(main())
