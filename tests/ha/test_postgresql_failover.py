"""The database itself fails over: from a primary that is killed to its standby, which is promoted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from tests.ha.postgresql_nodes import a_cluster, lead, node
from tests.support.postgresql import PostgreSqlServer, servers, url_of

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.protocols import NEW, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.ha.sql.postgresql.lease import EPOCHS_THAT_MAY_BE_LOST
from firesteel.testing.ha_contract.harness import DEADLINE, Recorder, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("postgresql")]


@contextlib.contextmanager
def pair() -> Iterator[tuple[PostgreSqlServer, PostgreSqlServer]]:
    """A primary and its standby, for one failover."""
    with servers() as primary, contextlib.closing(primary.standby("standby")) as standby:
        yield primary, standby


def url(*of: PostgreSqlServer) -> str:
    return url_of(*(server.port for server in of))


@pytest.fixture(autouse=True)
def _needs_a_server(postgresql: PostgreSqlServer) -> None:
    """Says how to get one if there is none."""


def test_synchronous_standby_has_all_that_was_acknowledged_and_the_same_leader_goes_on() -> None:
    async def main(primary: PostgreSqlServer, standby: PostgreSqlServer) -> None:
        # The standby is named first: of several hosts it is not the first that counts, but the one that can be written to.
        async with node(url(standby, primary), lease=30.0) as services:
            driver, listener, epoch = await lead(services)
            store = RetryingStore(services.store, Backoff(0.05, 0.5))
            acknowledged: dict[str, int] = {}
            ended = asyncio.Event()

            async def hand(name: int) -> None:
                n = 0
                while not ended.is_set():
                    path = f"a/{name}-{n}"
                    acknowledged[path] = await store.put(path, path.encode(), epoch=epoch, expected=NEW)
                    n += 1

            hands = [asyncio.create_task(hand(name)) for name in range(8)]

            async def many() -> bool:
                return len(acknowledged) >= 100

            await eventually(many)
            await asyncio.to_thread(primary.kill)
            before = dict(acknowledged)
            await asyncio.to_thread(standby.promote)

            async def many_more() -> bool:
                return len(acknowledged) >= len(before) + 50

            await eventually(many_more)
            ended.set()
            await asyncio.gather(*hands)
            stored = await services.store.list("a")
            assert {path: value.version for path, value in stored.items()} == acknowledged
            assert listener.events == ["grant"]
            assert driver.holds(epoch)

    with pair() as (primary, standby):
        primary.set("synchronous_standby_names", "standby")  # the standby itself waits for none
        asyncio.run(main(primary, standby))


def test_epochs_that_a_failover_loses_are_not_granted_again() -> None:
    """The standby was behind: it knows nothing of the newest leader. That one must not write there, nor anybody as it."""

    async def main(primary: PostgreSqlServer, standby: PostgreSqlServer) -> None:
        cluster_id = a_cluster()
        both = url(primary, standby)
        async with node(both, lease=4.0, cluster_id=cluster_id) as one:
            driver, _, first = await lead(one)
            kept = await one.store.put("a", b"kept", epoch=first)

            async def has_it() -> bool:
                return standby.sql("SELECT count(*) FROM firesteel_state") == ["1"]

            await eventually(has_it)
            await asyncio.to_thread(standby.stop)
            # What comes now does not reach it, also not later: the primary will be no more when it is back.
            await driver.close()
            lost_driver, lost_listener, lost = await lead(one, "lost")
            assert lost == first + 1
            await one.store.put("a", b"lost", epoch=lost)
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.start)
            await asyncio.to_thread(standby.promote)
            assert isinstance(lost_driver, LeaseElectionDriver)
            lost_driver._tasks.cancel()  # it is stopped, and has not been told

            async def refused() -> bool:
                try:
                    await one.store.put("a", b"stale", epoch=lost)
                except FencingError:
                    return True
                except StoreUnavailableError:
                    return False
                raise AssertionError("a leader that the database does not know has written")

            await eventually(refused)
            async with node(both, lease=4.0, cluster_id=cluster_id) as other:
                listener = Recorder()
                await other.election("next").start(listener)
                epoch = await listener.granted()
                assert epoch == first + EPOCHS_THAT_MAY_BE_LOST
                assert await refused()
                assert await other.store.get("a") == Stored(b"kept", kept)
                assert lost_listener.events == ["grant"]

    with pair() as (primary, standby):
        asyncio.run(main(primary, standby))


def test_standby_alone_is_nothing_to_lead_by_until_it_is_promoted() -> None:
    async def main(primary: PostgreSqlServer, standby: PostgreSqlServer) -> None:
        async with node(url(primary, standby), lease=3.0) as services:
            driver, listener, epoch = await lead(services)
            await asyncio.to_thread(primary.stop)
            with pytest.raises(StoreUnavailableError, match="read-only now"):
                await services.store.put("a", b"", epoch=epoch)
            await listener.until(lambda: "revoke" in listener.events)
            assert not driver.holds(epoch)
            with pytest.raises(StoreUnavailableError):
                await services.store.get("a")  # it may be behind
            await asyncio.to_thread(standby.promote)
            async with asyncio.timeout(2 * DEADLINE):
                assert await listener.granted() > epoch
            assert listener.events == ["grant", "revoke", "grant"]

    with pair() as (primary, standby):
        asyncio.run(main(primary, standby))


def test_server_that_turns_read_only_is_left_for_the_one_that_can_be_written_to() -> None:
    """Its sessions go on, and would be refused for ever."""

    async def main(old: PostgreSqlServer, new: PostgreSqlServer) -> None:
        async with node(url(old, new), lease=30.0) as services:
            _, listener, epoch = await lead(services)

            async def has_it() -> bool:
                return new.sql("SELECT max(epoch) FROM firesteel_leadership") == [str(epoch)]

            await eventually(has_it)
            await asyncio.to_thread(new.promote)
            await asyncio.to_thread(old.set, "default_transaction_read_only", "on")
            await RetryingStore(services.store, Backoff(0.05, 0.5)).put("a", b"new", epoch=epoch)
            assert new.sql("SELECT convert_from(value, 'UTF8') FROM firesteel_state") == ["new"]
            assert await services.store.get("a") is not None  # readers have gone with it
            assert listener.events == ["grant"]

    with pair() as (old, new):
        asyncio.run(main(old, new))
