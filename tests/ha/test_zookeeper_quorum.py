"""An ensemble of three: one that dies, one that falls silent, and none that could decide."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.ha.zookeeper_nodes import ZooKeeperCluster
from tests.support.zookeeper import ZooKeeperQuorum, ZooKeeperServer

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.protocols import NEW, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.ha.zookeeper.backend import ZooKeeperHighAvailabilityServices
from firesteel.testing.ha_contract.harness import contend, eventually, leading, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper")]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperQuorum]:
    with ZooKeeperQuorum(tmp_path_factory.mktemp("quorum")) as quorum:
        yield quorum


@pytest.fixture
def quorum(servers: ZooKeeperQuorum) -> Iterator[ZooKeeperQuorum]:
    """All three, whatever the last test did to them."""
    servers.start()
    yield servers
    for server in servers.servers:
        if server.running:
            server.resume()


@pytest.fixture
def cluster(quorum: ZooKeeperQuorum, tmp_path: Path) -> ZooKeeperCluster:
    return ZooKeeperCluster(quorum.hosts, tmp_path)


async def when(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return condition()

    await eventually(look)


def server_of(
    cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, quorum: ZooKeeperQuorum
) -> ZooKeeperServer:
    """The one that a node is connected to."""
    connected = [bool(proxy.open_connections) for proxy in cluster.network(services).proxies]
    assert connected.count(True) == 1
    return quorum.servers[connected.index(True)]


@pytest.mark.parametrize("mode", ["leader", "follower"])
def test_death_of_one_server_costs_no_leadership_and_no_write(
    cluster: ZooKeeperCluster, quorum: ZooKeeperQuorum, mode: str
) -> None:
    async def test(_: object) -> None:
        services, other = await cluster.open(lease=20.0), await cluster.open(lease=20.0)
        driver, listener, epoch = await leading(services)
        _, waiting = await contend(other)
        store = RetryingStore(services.store, Backoff(0.05, 0.5))
        versions = [await store.put("a", b"0", epoch=epoch)]
        victim = (await asyncio.to_thread(quorum.of_mode, mode))[0]
        victim.kill()
        for n in range(1, 20):
            versions.append(await store.put("a", str(n).encode(), epoch=epoch, expected=versions[-1]))
        assert versions == sorted(set(versions))
        assert listener.events == ["grant"]
        assert waiting.events == []
        assert driver.holds(epoch)
        assert await RetryingStore(other.store, Backoff(0.05, 0.5)).get("a") == Stored(b"19", versions[-1])

    run(cluster, test)


def test_server_that_falls_silent_costs_no_leadership(cluster: ZooKeeperCluster, quorum: ZooKeeperQuorum) -> None:
    """Its connections stay open and nothing answers: the others are tried before the lease is over."""

    async def test(_: object) -> None:
        services = await cluster.open(lease=15.0)
        driver, listener, epoch = await leading(services)
        silent = server_of(cluster, services, quorum)
        silent.pause()
        store = RetryingStore(services.store, Backoff(0.05, 0.5))
        await store.put("a", b"", epoch=epoch)
        assert listener.events == ["grant"]
        assert driver.holds(epoch)
        silent.resume()

    run(cluster, test)


def test_without_a_quorum_nobody_leads_and_nothing_is_written_until_it_is_back(
    cluster: ZooKeeperCluster, quorum: ZooKeeperQuorum
) -> None:
    async def test(_: object) -> None:
        options = {"client__connection_timeout": "1 s"}
        nodes = [await cluster.open(lease=4.0, **options), await cluster.open(lease=4.0, **options)]
        driver, listener, epoch = await leading(nodes[0])
        _, waiting = await contend(nodes[1])
        version = await nodes[0].store.put("a", b"before", epoch=epoch)
        for server in quorum.servers[:2]:
            server.kill()
        await listener.until(lambda: listener.events == ["grant", "revoke"])
        assert not driver.holds(epoch)
        for node in nodes:
            with pytest.raises(StoreUnavailableError):
                await node.store.put("a", b"without", epoch=epoch)
            with pytest.raises(StoreUnavailableError):
                await node.store.get("a")
            with pytest.raises(StoreUnavailableError):
                await node.election("looks").leader()
        assert waiting.events == []
        assert listener.events == ["grant", "revoke"]
        await asyncio.to_thread(quorum.start)
        await when(lambda: bool(listener.leading or waiting.leading))
        leader, node = (listener, nodes[0]) if listener.leading else (waiting, nodes[1])
        newest = leader.epochs[-1]
        assert newest > epoch
        assert leader.errors == []
        store = RetryingStore(node.store, Backoff(0.05, 0.5))
        # What was tried without a quorum may be there: it was sent before the end was noticed. Never more than that.
        found = await store.get("a")
        assert found is not None
        assert found == Stored(b"before", version) or found.value == b"without"
        with pytest.raises(FencingError):
            await RetryingStore(nodes[0].store, Backoff(0.05, 0.5)).put("a", b"stale", epoch=epoch)
        await store.put("b", b"after", epoch=newest, expected=NEW)

    run(cluster, test)


def test_reads_see_what_was_acknowledged_by_another_server(cluster: ZooKeeperCluster, quorum: ZooKeeperQuorum) -> None:
    """Above all at the leader of the ensemble, which may do a write after the server that acknowledged it."""

    async def test(_: object) -> None:
        writer, *readers = [await cluster.open(lease=20.0) for _ in range(3)]
        followers = await asyncio.to_thread(lambda: quorum.followers)
        await bind(writer, followers[0])
        for reader, server in zip(readers, (quorum.leader, followers[1]), strict=True):
            await bind(reader, server)
        _, _, epoch = await leading(writer)
        for n in range(150):
            version = await writer.store.put("a", str(n).encode(), epoch=epoch)
            stored = Stored(str(n).encode(), version)
            assert await asyncio.gather(*(reader.store.get("a") for reader in readers)) == [stored] * len(readers)

    async def bind(services: ZooKeeperHighAvailabilityServices, server: ZooKeeperServer) -> None:
        """Let a node reach one server only."""
        proxies = dict(zip(quorum.servers, cluster.network(services).proxies, strict=True))
        for each, proxy in proxies.items():
            if each is not server:
                proxy.cut()
        await when(lambda: proxies[server].open_connections == 1)
        await RetryingStore(services.store, Backoff(0.05, 0.5)).get("a")

    run(cluster, test)
