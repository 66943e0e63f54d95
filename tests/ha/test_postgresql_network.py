"""The network between a node and PostgreSQL: frozen, cut, flapping, slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from tests.ha.postgresql_nodes import a_cluster, lead, node
from tests.support.postgresql import PostgreSqlServer, url_of
from tests.support.tcp_proxy import TO_CLIENT, TcpProxy

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.protocols import NEW, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.testing.ha_contract.harness import Recorder, eventually

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]


@pytest.fixture
def proxy(postgresql: PostgreSqlServer) -> Iterator[TcpProxy]:
    with TcpProxy(("127.0.0.1", postgresql.port)) as made:
        yield made


def test_leader_that_is_cut_off_stops_before_another_one_leads(postgresql: PostgreSqlServer, proxy: TcpProxy) -> None:
    """Nothing passes, and no connection breaks: only its own clock tells it."""

    async def main() -> None:
        cluster_id = a_cluster()
        async with (
            node(url_of(proxy.port), lease=4.0, cluster_id=cluster_id) as one,
            node(postgresql.url, lease=4.0, cluster_id=cluster_id) as other,
        ):
            driver, old, stale = await lead(one)
            new = Recorder()
            await other.election("heir").start(new)
            proxy.freeze()

            async def replaced() -> bool:
                assert not (new.epochs and driver.holds(stale))
                return bool(new.epochs)

            await eventually(replaced)
            assert old.events == ["grant", "revoke"]
            with pytest.raises(StoreUnavailableError):
                await one.store.put("a", b"stale", epoch=stale)
            proxy.thaw()

            async def refused() -> bool:
                try:
                    await one.store.put("a", b"stale", epoch=stale)
                except StoreUnavailableError:
                    return False
                except FencingError:
                    return True
                raise AssertionError("a leader of the past has written")

            await eventually(refused)
            assert await other.store.get("a") is None
            assert new.events == ["grant"]

    asyncio.run(main())


def test_connection_that_is_silent_for_a_while_does_not_cost_the_lease(proxy: TcpProxy) -> None:
    async def main() -> None:
        async with node(url_of(proxy.port), lease=20.0) as services:
            driver, listener, epoch = await lead(services)
            proxy.freeze()
            with pytest.raises(StoreUnavailableError, match="no answer"):
                await services.store.put("a", b"", epoch=epoch)
            proxy.thaw()
            await services.store.put("a", b"", epoch=epoch)
            assert driver.holds(epoch)
            assert listener.events == ["grant"]

    asyncio.run(main())


def test_write_whose_answers_are_lost_is_of_unknown_outcome_and_ends_once(proxy: TcpProxy) -> None:
    async def main() -> None:
        async with node(url_of(proxy.port), lease=8.0) as services:
            _, _, epoch = await lead(services)
            store = RetryingStore(services.store, Backoff(0.05, 0.2))
            writing = asyncio.create_task(store.put("a", b"once", epoch=epoch, expected=NEW))
            proxy.freeze(TO_CLIENT)

            async def given_up() -> bool:
                return proxy.accepted > 2 or writing.done()  # it has connected anew

            await eventually(given_up)
            proxy.thaw()
            version = await writing
            assert await services.store.get("a") == Stored(b"once", version)

    asyncio.run(main())


def test_flapping_connections_lose_and_double_nothing(proxy: TcpProxy) -> None:
    async def main() -> None:
        async with node(url_of(proxy.port), lease=60.0) as services:
            _, listener, epoch = await lead(services)
            store = RetryingStore(services.store, Backoff(0.02, 0.2))
            done: dict[str, int] = {}
            ended = asyncio.Event()

            async def hand(name: int) -> None:
                n = 0
                while not ended.is_set():
                    path = f"a/{name}-{n}"
                    done[path] = await store.put(path, path.encode(), epoch=epoch, expected=NEW)
                    if n % 5 == 4:
                        assert await store.delete(path, epoch=epoch, expected=done.pop(path))
                    n += 1

            hands = [asyncio.create_task(hand(name)) for name in range(8)]
            for turn in range(20):
                await asyncio.sleep(0.1)
                if turn % 3 == 2:
                    await asyncio.to_thread(proxy.cut)
                    await asyncio.sleep(0.05)
                    await asyncio.to_thread(proxy.restore)
                else:
                    await asyncio.to_thread(proxy.drop)
            ended.set()
            await asyncio.gather(*hands)
            assert proxy.accepted > 20
            stored = await store.list("a")
            assert {path: value.version for path, value in stored.items()} == done
            assert listener.events == ["grant"]

    asyncio.run(main())


def test_slow_network_is_no_reason_to_lose_the_lease(proxy: TcpProxy) -> None:
    async def main() -> None:
        async with node(url_of(proxy.port), lease=10.0) as services:
            driver, listener, epoch = await lead(services)
            proxy.delay(0.1)  # a fifth of a second there and back
            until = time.monotonic() + 11
            while time.monotonic() < until:
                await services.store.put("a", b"", epoch=epoch)
                assert driver.holds(epoch)
            assert listener.events == ["grant"]

    asyncio.run(main())
