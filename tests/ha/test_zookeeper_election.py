"""Leadership over a network that fails: when it is kept, when it is lost, and who is next."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.ha.zookeeper_nodes import ZooKeeperCluster
from tests.support.marks import samples
from tests.support.tcp_proxy import TO_SERVER
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

from firesteel.concurrency import Backoff, retry
from firesteel.errors import FencingError, StoreBrokenError, StoreUnavailableError
from firesteel.ha.protocols import Epoch, LeaderElectionDriver, LeaderInformation
from firesteel.ha.retrieval import LeaderRetrieval, TellsOfChanges
from firesteel.ha.retrying import RetryingStore
from firesteel.ha.zookeeper import election, layout
from firesteel.ha.zookeeper.election import ZooKeeperLeaderElectionDriver
from firesteel.testing.ha_contract.harness import (
    DEADLINE,
    LONG_LEASE,
    SHORT_LEASE,
    Recorder,
    contend,
    eventually,
    leading,
    run,
)

pytestmark = pytest.mark.xdist_group("zookeeper")
CHILD = Path(__file__).with_name("zookeeper_child.py")


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> ZooKeeperCluster:
    return ZooKeeperCluster(zookeeper.hosts, tmp_path)


def on(cluster: ZooKeeperCluster, test: Callable[[ZooKeeperCluster], Awaitable[None]]) -> None:
    run(cluster, lambda _: test(cluster))


async def when(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return condition()

    await eventually(look)


def latches(cluster: ZooKeeperCluster) -> list[str]:
    with cluster.client() as client:
        return sorted(client.get_children(f"{cluster.path}/election"))


class Clock(Recorder):
    """Remembers when it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, float] = {}

    def _add(self, event: str) -> None:
        self.times[event] = time.monotonic()
        super()._add(event)


class Watchman:
    """Asks in a thread of its own, again and again, whether an epoch is held; knows when it was last."""

    def __init__(self, driver: LeaderElectionDriver, epoch: Epoch) -> None:
        self.last_held = 0.0
        self._driver, self._epoch = driver, epoch
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchman")

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            asked = time.monotonic()
            if self._driver.holds(self._epoch):
                self.last_held = asked

    def __enter__(self) -> Watchman:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_leader_whose_session_expired_is_revoked_and_contends_anew(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        driver, listener, epoch = await leading(services)
        await driver.publish(epoch, "http://old")
        known = services.session.id_and_password
        assert known is not None
        await asyncio.to_thread(ZooKeeperServer.expire, _server(cluster), *known)
        await listener.until(lambda: listener.events == ["grant", "revoke", "grant"])
        assert listener.epochs == [epoch, epoch + 1]
        assert not driver.holds(epoch)
        assert driver.holds(Epoch(epoch + 1))
        with pytest.raises(FencingError):
            await services.store.put("a", b"", epoch=epoch)
        await services.store.put("a", b"", epoch=Epoch(epoch + 1))
        assert await driver.leader() == LeaderInformation(Epoch(epoch + 1), "")
        assert len(latches(cluster)) == 1

    on(cluster, test)


def _server(cluster: ZooKeeperCluster) -> ZooKeeperServer:
    return ZooKeeperServer(cluster.directory, client_port=int(cluster.hosts.rpartition(":")[2]))


def test_connection_that_comes_back_in_time_changes_nothing(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        one, other = await cluster.open(), await cluster.open()
        driver, listener, epoch = await leading(one)
        _, waiting = await contend(other)
        network = cluster.network(one)
        network.cut()
        await when(lambda: not one.session.connected)
        assert driver.holds(epoch)
        network.restore()
        await one.store.put("a", b"", epoch=epoch)
        assert driver.holds(epoch)
        assert listener.events == ["grant"]
        assert waiting.events == []
        await driver.close()  # the watch of the next one has outlived it all
        assert await waiting.granted() == epoch + 1

    on(cluster, test)


def test_many_connections_that_break_change_nothing_and_leave_nothing(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        one, other = await cluster.open(), await cluster.open()
        driver, listener, epoch = await leading(one)
        _, waiting = await contend(other)
        threads = threading.active_count()
        for n in range(15):
            for services in (one, other):
                before = cluster.network(services).accepted
                cluster.network(services).drop()
                await when(lambda s=services, b=before: cluster.network(s).accepted > b)  # type: ignore[misc]
            await one.store.put("a", str(n).encode(), epoch=epoch)
        assert listener.events == ["grant"]
        assert waiting.events == []
        assert driver.holds(epoch)
        assert threading.active_count() <= threads
        for services in (one, other):
            watchers = services.session._client._data_watchers
            assert sum(len(each) for each in watchers.values()) <= 1
            assert len(services.session._unanswered) <= 1
        assert len(latches(cluster)) == 2

    on(cluster, test)


@pytest.mark.parametrize("how", samples(["cut", "freeze", "one way"]))
def test_leader_that_is_cut_off_stops_before_the_next_one_begins(cluster: ZooKeeperCluster, how: str) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        one, other = await cluster.open(lease=SHORT_LEASE), await cluster.open(lease=SHORT_LEASE)
        old, new = Clock(), Clock()
        driver = one.election("old")
        await driver.start(old)
        stale = await old.granted()
        await other.election("new").start(new)
        network = cluster.network(one)
        with Watchman(driver, stale) as watchman:
            network.cut() if how == "cut" else network.freeze(*([TO_SERVER] if how == "one way" else []))
            cut_off = time.monotonic()
            epoch = await new.granted()
            assert epoch > stale
            assert old.events == ["grant", "revoke"]
            assert watchman.last_held < new.times["grant"]
            assert old.times["revoke"] < new.times["grant"]
            # Not earlier than needed: it acted on for as long as it could be sure.
            assert watchman.last_held > cut_off
        network.restore()
        with pytest.raises(FencingError):  # the connection it believed to have is lost first
            await RetryingStore(one.store, Backoff(0.05, 0.5)).put("a", b"", epoch=stale)
        await other.store.put("a", b"", epoch=epoch)
        assert new.events == ["grant"]
        await when(lambda: len(latches(cluster)) == 2)  # it contends again, behind the other
        assert old.events == ["grant", "revoke"]

    on(cluster, test)


def test_sole_leader_that_was_cut_off_leads_anew_with_another_epoch(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open(lease=SHORT_LEASE)
        driver, listener, epoch = await leading(services)
        network = cluster.network(services)
        network.freeze()
        await listener.until(lambda: listener.events == ["grant", "revoke"])
        assert not driver.holds(epoch)
        network.restore()
        assert await listener.granted() == epoch + 1
        assert listener.events == ["grant", "revoke", "grant"]

    on(cluster, test)


def test_leader_whose_node_somebody_deleted_is_revoked_at_once(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        driver, listener, epoch = await leading(services)
        with cluster.client() as client:
            client.delete(f"{cluster.path}/election/{latches(cluster)[0]}")
        await listener.until(lambda: listener.events == ["grant", "revoke", "grant"])
        assert not driver.holds(epoch)
        assert listener.epochs == [epoch, epoch + 1]

    on(cluster, test)


def test_address_of_a_leader_whose_node_is_gone_is_refused_by_the_servers(cluster: ZooKeeperCluster) -> None:
    """Nobody has taken the epoch yet, and it has not been told."""

    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        driver, listener, epoch = await leading(services)
        assert isinstance(driver, ZooKeeperLeaderElectionDriver)
        driver._tasks.cancel()
        with cluster.client() as client:
            client.delete(f"{cluster.path}/election/{latches(cluster)[0]}")
            with pytest.raises(FencingError):
                await driver.publish(epoch, "http://stale")
            assert client.get(f"{cluster.path}/leader")[0] == b""
        assert await driver.leader() is None
        assert listener.events == ["grant"]

    on(cluster, test)


def test_leader_that_goes_wakes_one_of_ten(cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        nodes = [await cluster.open(), await cluster.open()]
        driver, _, epoch = await leading(nodes[0])
        contenders = []
        for n in range(9):
            contenders.append(await contend(nodes[n % 2], f"c{n}"))
            await when(lambda: len(latches(cluster)) == len(contenders) + 1)
        await asyncio.gather(*(node.store.get("a") for node in nodes))  # and each has set its watch by now
        looks = 0
        original = layout.in_order

        def in_order(names: list[str]) -> list[str]:
            nonlocal looks
            looks += 1
            return original(names)

        monkeypatch.setattr(election, "in_order", in_order)
        await driver.close()
        assert await contenders[0][1].granted() == epoch + 1
        for node in nodes:
            await node.store.get("a")
        assert looks == 1
        assert [r.events for _, r in contenders[1:]] == [[]] * 8
        # One from the middle goes: the next one looks again, and waits on.
        await contenders[4][0].close()
        await when(lambda: looks == 2)
        for node in nodes:
            await node.store.get("a")
        assert [r.events for _, r in contenders[1:]] == [[]] * 8
        await contenders[0][0].close()
        assert await contenders[1][1].granted() == epoch + 2

    on(cluster, test)


def test_those_who_follow_the_leader_are_told(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        one, other = await cluster.open(), await cluster.open()
        driver, _, epoch = await leading(one)
        await driver.publish(epoch, "http://one")
        follower = other.election("follower")
        assert isinstance(follower, TellsOfChanges)
        retrieval = LeaderRetrieval(follower, interval=0.05)
        await retrieval.start()
        assert await retrieval.wait_for_leader(DEADLINE) == LeaderInformation(epoch, "http://one")
        retrieval._interval = 1000.0
        await when(lambda: f"{cluster.path}/leader" in other.session._client._data_watchers)  # and asks no more
        next_one, listener = await contend(other)
        await driver.close()
        await next_one.publish(await listener.granted(), "http://other")
        await when(lambda: retrieval.current == LeaderInformation(Epoch(epoch + 1), "http://other"))
        cluster.network(other).drop()  # and with it the watches
        await retry(
            lambda: next_one.publish(Epoch(epoch + 1), "http://again"),
            Backoff(0.05, 0.5),
            on=(StoreUnavailableError,),
            what="publishing",
        )
        await when(lambda: retrieval.current == LeaderInformation(Epoch(epoch + 1), "http://again"))
        await retrieval.close()

    on(cluster, test)


def test_contender_that_could_not_leave_does_so_when_the_connection_is_back(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session lives on, with the store's; so would its node, and nobody could lead."""
    monkeypatch.setattr(election, "_LEAVE_SECONDS", 0.1)

    async def test(cluster: ZooKeeperCluster) -> None:
        one, other = await cluster.open(), await cluster.open()
        driver, listener, epoch = await leading(one)
        _, next_one = await contend(other)
        network = cluster.network(one)
        network.cut()
        await when(lambda: not one.session.connected)
        await driver.close()
        assert not driver.holds(epoch)
        assert next_one.events == []
        network.restore()
        assert await next_one.granted() == epoch + 1
        assert listener.events == ["grant"]

    on(cluster, test)


def test_election_whose_nodes_were_deleted_says_so_and_ends(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        driver, listener, epoch = await leading(services)
        with cluster.client() as client:
            client.delete(cluster.path, recursive=True)
        await listener.until(lambda: listener.events == ["grant", "revoke", "error"])
        [error] = listener.errors
        assert isinstance(error, StoreBrokenError)
        assert cluster.path in str(error)
        with pytest.raises(StoreBrokenError):
            await services.store.put("a", b"", epoch=epoch)
        with pytest.raises(StoreBrokenError):
            await driver.leader()

    on(cluster, test)


def test_clusters_of_one_ensemble_have_nothing_to_do_with_each_other(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    one, other = (ZooKeeperCluster(zookeeper.hosts, tmp_path) for _ in range(2))

    async def test(one: ZooKeeperCluster) -> None:
        try:
            first, second = await one.open(), await other.open()
            _, _, epoch = await leading(first)
            _, _, also = await leading(second)
            assert (epoch, also) == (1, 1)
            await first.store.put("a", bytes(2**20), epoch=epoch)
            assert await second.store.get("a") is None
            assert await second.collect_orphans(also) == 0
            await second.store.put("a", b"2", epoch=also)
            found = await first.store.get("a")
            assert found is not None
            assert len(found.value) == 2**20
        finally:
            await other.close()

    on(one, test)


def test_nodes_that_begin_at_once_make_one_cluster(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        nodes = await asyncio.gather(*(cluster.open() for _ in range(4)))
        assert len({node._values._files._directory for node in nodes}) == 1  # type: ignore[attr-defined]
        contenders = [await contend(node) for node in nodes]
        await when(lambda: any(r.leading for _, r in contenders))
        assert [e for _, r in contenders for e in r.epochs] == [1]

    on(cluster, test)


def test_epoch_goes_on_when_a_take_over_got_no_answer(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        original = ZooKeeperLeaderElectionDriver._take
        lost: list[Epoch | None] = []

        async def take(self: ZooKeeperLeaderElectionDriver, latch: election._Latch) -> Epoch | None:
            taken = await original(self, latch)
            if not lost:
                lost.append(taken)
                raise StoreUnavailableError("the answer got lost")
            return taken

        monkeypatch.setattr(ZooKeeperLeaderElectionDriver, "_take", take)
        driver, listener, epoch = await leading(services)
        assert lost == [1]
        assert listener.epochs == [2]
        assert driver.holds(epoch)
        assert len(latches(cluster)) == 1

    on(cluster, test)


class Child:
    """A node that is a process; its lines come through a pipe."""

    def __init__(self, what: str, cluster: ZooKeeperCluster, lease: float, where: str = "") -> None:
        storage = cluster.directory / "storage"
        storage.mkdir(exist_ok=True)
        command = [str(CHILD), what, cluster.hosts, cluster.cluster_id, str(storage), str(lease), where]
        self.process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def child(what: str, cluster: ZooKeeperCluster, lease: float, where: str = "") -> Iterator[Child]:
    made = Child(what, cluster, lease, where)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


@pytest.mark.slow
def test_process_that_was_stopped_past_its_lease_is_refused_when_it_goes_on(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        with child("lead", cluster, SHORT_LEASE) as old:
            assert await asyncio.to_thread(old.line) == "granted 1"
            services = await cluster.open(lease=SHORT_LEASE)
            _, listener = await contend(services)
            old.process.send_signal(signal.SIGSTOP)
            assert await listener.granted() == 2
            old.process.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(old.line) == "revoked and knows it"
            assert await asyncio.to_thread(old.line) == "fenced"
            assert await services.store.get("stale") is None
            assert listener.events == ["grant"]

    on(cluster, test)


@pytest.mark.slow
def test_killed_process_of_another_host_is_replaced_once_its_session_is_over(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        with child("lead", cluster, SHORT_LEASE, "elsewhere") as old:
            assert await asyncio.to_thread(old.line) == "granted 1"
            services = await cluster.open(lease=LONG_LEASE)
            _, listener = await contend(services)
            old.process.kill()
            assert await listener.granted() == 2

    on(cluster, test)


def test_killed_process_of_this_host_is_replaced_at_once(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        with child("lead", cluster, LONG_LEASE) as old:
            assert await asyncio.to_thread(old.line) == "granted 1"
            services = await cluster.open(lease=LONG_LEASE)
            _, listener = await contend(services)
            old.process.kill()
            async with asyncio.timeout(LONG_LEASE / 2):  # the ensemble would wait for all of it
                assert await listener.granted() == 2

    on(cluster, test)


def test_neighbour_of_a_killed_leader_lets_another_host_lead_at_once(cluster: ZooKeeperCluster) -> None:
    """Who saw it die is not the next in the queue."""

    async def test(cluster: ZooKeeperCluster) -> None:
        with child("lead", cluster, LONG_LEASE) as old:
            assert await asyncio.to_thread(old.line) == "granted 1"
            with child("lead", cluster, LONG_LEASE, "elsewhere") as next_one:
                await asyncio.to_thread(until, lambda: len(latches(cluster)) == 2, "it does not contend")
                services = await cluster.open(lease=LONG_LEASE)
                _, listener = await contend(services)
                await asyncio.to_thread(until, lambda: len(latches(cluster)) == 3, "it does not contend")
                old.process.kill()
                async with asyncio.timeout(LONG_LEASE / 2):
                    assert await asyncio.to_thread(next_one.line) == "granted 2"
                assert listener.events == []

    on(cluster, test)


def test_process_that_dies_between_file_and_pointer_leaves_an_orphan_that_goes(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        with child("crash", cluster, SHORT_LEASE) as old:
            assert await asyncio.to_thread(old.line) == "granted 1"
            assert await asyncio.to_thread(old.line) == "dies"
        files = [path for path in (cluster.directory / "storage").rglob("*-*-*") if path.is_file()]
        assert len(files) == 1
        services = await cluster.open()
        _, _, epoch = await leading(services)
        assert await services.store.get("graphs/large") is None
        assert await services.collect_orphans(epoch) == 1
        assert not files[0].exists()

    on(cluster, test)
