"""The fenced store on a real server, beyond the contract: large values, damage, lost answers, and what it costs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.ha.zookeeper_nodes import Network, ZooKeeperCluster
from tests.support.tcp_proxy import TO_CLIENT
from tests.support.zookeeper import ZooKeeperServer

from firesteel.concurrency import Backoff
from firesteel.errors import (
    FencingError,
    StoreBrokenError,
    StoreFailingError,
    StoreUnavailableError,
    VersionConflictError,
)
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.ha.zookeeper import election
from firesteel.ha.zookeeper.backend import LARGEST_INLINE, ZooKeeperHighAvailabilityServices
from firesteel.testing.ha_contract.harness import eventually, leading, run

pytestmark = pytest.mark.xdist_group("zookeeper")
LARGE = random.Random(1).randbytes(2**20 + 1)


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> ZooKeeperCluster:
    return ZooKeeperCluster(zookeeper.hosts, tmp_path)


Test = Callable[[ZooKeeperCluster, ZooKeeperHighAvailabilityServices, Epoch], Awaitable[None]]


def led(cluster: ZooKeeperCluster, test: Test) -> None:
    async def main(_: object) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        await test(cluster, services, epoch)

    run(cluster, main)


def files(cluster: ZooKeeperCluster) -> list[Path]:
    return sorted(path for path in (cluster.directory / "storage").rglob("*") if path.is_file())


# -- large values -------------------------------------------------------------------------------------------------------


def test_large_values_are_in_files_and_small_ones_in_nodes(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        values = {f"graphs/{n}": LARGE[:n] for n in (0, LARGEST_INLINE - 1, LARGEST_INLINE, len(LARGE))}
        versions = {path: await store.put(path, value, epoch=epoch) for path, value in values.items()}
        assert len(files(cluster)) == 2
        expected = {path: Stored(value, versions[path]) for path, value in values.items()}
        assert dict(await store.list("graphs")) == expected
        other = (await cluster.open()).store
        assert dict(await other.list("graphs")) == expected
        assert [await other.get(path) for path in values] == list(expected.values())
        with cluster.client() as client:
            assert len(client.get(f"{cluster.path}/state/graphs/{len(LARGE)}")[0]) < 300

    led(cluster, test)


def test_files_of_replaced_and_deleted_values_go_and_those_in_use_stay(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        for path in ("a", "b", "c/x"):
            await store.put(path, LARGE, epoch=epoch)
        version = await store.put("a", LARGE, epoch=epoch)
        await store.put("b", b"small", epoch=epoch)
        with pytest.raises(VersionConflictError):
            await store.put("a", LARGE, epoch=epoch, expected=NEW)
        with pytest.raises(FencingError):
            await store.put("a", LARGE, epoch=Epoch(epoch + 1))
        assert len(files(cluster)) == 5  # the one of a stale leader was not even written
        assert await services.collect_orphans(epoch) == 3
        assert len(files(cluster)) == 2
        assert await store.get("a") == Stored(LARGE, version)
        await store.delete("a", epoch=epoch)
        await store.delete("c/x", epoch=epoch)
        assert await services.collect_orphans(epoch) == 2
        assert files(cluster) == []

    led(cluster, test)


def test_leader_collects_by_itself(cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "COLLECT_FIRST_SECONDS", 0.05)
    monkeypatch.setattr(election, "COLLECT_SECONDS", 0.05)

    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        await services.store.put("a", LARGE, epoch=epoch)
        await services.store.put("b", LARGE, epoch=epoch)
        await services.store.delete("a", epoch=epoch)

        async def one_is_left() -> bool:
            return len(files(cluster)) == 1

        await eventually(one_is_left)
        found = await services.store.get("b")
        assert found is not None
        assert found.value == LARGE

    led(cluster, test)


def test_nothing_that_is_written_while_files_are_collected_is_lost(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        done = False

        async def collect() -> int:
            collected = 0
            while not done:
                collected += await services.collect_orphans(epoch)
            return collected

        async def write(hand: int) -> None:
            for n in range(8):
                await store.put(f"graphs/{hand % 4}", LARGE + bytes([hand, n]), epoch=epoch)

        collecting = asyncio.ensure_future(collect())
        await asyncio.gather(*(write(hand) for hand in range(8)))
        done = True
        collected = await collecting + await services.collect_orphans(epoch)
        assert collected == 64 - 4
        assert len(files(cluster)) == 4
        assert all(stored.value.startswith(LARGE) for stored in (await store.list("graphs")).values())

    led(cluster, test)


def test_small_value_that_was_put_after_a_large_one_stays(cluster: ZooKeeperCluster) -> None:
    """The file takes its time; writes of one path keep their order all the same."""

    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        puts = [asyncio.ensure_future(store.put("a", value, epoch=epoch)) for value in (b"1", LARGE, b"2", LARGE, b"3")]
        versions = await asyncio.gather(*puts)
        assert list(versions) == sorted(versions)
        assert await store.get("a") == Stored(b"3", versions[-1])

    led(cluster, test)


def test_value_that_is_replaced_while_it_is_read_is_the_old_or_the_new_one(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        reader = (await cluster.open()).store
        await store.put("graphs/a", LARGE, epoch=epoch)
        done = False

        async def read() -> int:
            reads = 0
            while not done:
                found = await reader.get("graphs/a")
                listed = (await reader.list("graphs"))["graphs/a"]
                assert found is not None
                assert found.value.startswith(LARGE)
                assert listed.value.startswith(LARGE)
                reads += 1
            return reads

        reading = asyncio.ensure_future(read())
        for n in range(20):
            await store.put("graphs/a", LARGE + bytes([n]), epoch=epoch)
            await services.collect_orphans(epoch)  # the file of the last one goes
        done = True
        assert await reading > 0

    led(cluster, test)


def test_no_file_is_written_without_a_connection(cluster: ZooKeeperCluster) -> None:
    async def main(_: object) -> None:
        services = await cluster.open(client__connection_timeout="300 ms")
        _, _, epoch = await leading(services)
        cluster.network(services).cut()
        with pytest.raises(StoreUnavailableError):
            await services.store.put("a", LARGE, epoch=epoch)
        assert files(cluster) == []
        cluster.network(services).restore()

    run(cluster, main)


def test_disk_that_is_full_is_told_and_nothing_is_written(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        def full(name: str, value: bytes) -> None:
            raise StoreFailingError("full")

        await services.store.put("a", b"old", epoch=epoch)
        monkeypatch.setattr(services._values._files, "write", full)
        with pytest.raises(StoreFailingError):
            await services.store.put("a", LARGE, epoch=epoch)
        found = await services.store.get("a")
        assert found is not None
        assert found.value == b"old"

    led(cluster, test)


# -- damage ---------------------------------------------------------------------------------------------------------------


def test_damaged_records_are_passed_on_as_they_are_and_stop_nothing(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        for path in ("torn", "gone", "cut", "good", "well"):
            await store.put(f"graphs/{path}", LARGE if path != "good" else b"good", epoch=epoch)
        state = f"{cluster.path}/state/graphs"
        with cluster.client() as client:
            client.set(f"{state}/torn", b'p{"name": ')
            client.create(f"{state}/odd", b"\xff\x00")
            client.create(f"{state}/empty", b"")
            client.create(f"{state}/no path", b"x")
            client.create(f"{state}/a::b", b"x")
            client.create(f"{state}/good/below", b"x")
            client.create(f"{cluster.path}/state/another", b"")
            pointers = {name: client.get(f"{state}/{name}")[0] for name in ("gone", "cut", "well")}
        for file in files(cluster):
            if file.name.encode() in pointers["gone"]:
                file.unlink()
            if file.name.encode() in pointers["cut"]:
                file.write_bytes(LARGE[:-1])
        listed = {path: stored.value for path, stored in (await store.list("graphs")).items()}
        assert listed == {
            "graphs/cut": pointers["cut"],
            "graphs/empty": b"",
            "graphs/gone": pointers["gone"],
            "graphs/good": b"good",
            "graphs/odd": b"\xff\x00",
            "graphs/torn": b'p{"name": ',
            "graphs/well": LARGE,
        }
        for path, value in listed.items():
            found = await store.get(path)
            assert found is not None
            assert found.value == value
        # What cannot be read can be replaced and removed.
        found = await store.get("graphs/gone")
        assert found is not None
        await store.put("graphs/gone", b"new", epoch=epoch, expected=found.version)
        assert await store.delete("graphs/odd", epoch=epoch)
        await services.collect_orphans(epoch)
        well = await store.get("graphs/well")
        assert well is not None
        assert well.value == LARGE

    led(cluster, test)


def test_epoch_that_somebody_wrote_to_by_hand_fences_the_leader(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        with cluster.client() as client:
            client.set(f"{cluster.path}/epoch", b"garbage")
            client.set(f"{cluster.path}/leader", b"garbage")
        with pytest.raises(FencingError):
            await services.store.put("a", b"", epoch=epoch)
        assert await services.election("looks").leader() is None

    led(cluster, test)


def test_cluster_node_that_is_none_of_ours_is_left_alone(cluster: ZooKeeperCluster) -> None:
    async def main(_: object) -> None:
        with cluster.client() as client:
            client.create(cluster.path, b"somebody else's", makepath=True)
        with pytest.raises(StoreBrokenError, match="not a Firesteel cluster"):
            await cluster.open()
        with cluster.client() as client:
            assert client.get(cluster.path)[0] == b"somebody else's"
            assert client.get_children(cluster.path) == []

    run(cluster, main)


# -- answers that got lost --------------------------------------------------------------------------------------------------


def test_write_whose_answer_got_lost_is_not_taken_for_somebody_elses(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        await services.store.put("b", b"", epoch=epoch)
        network = cluster.network(services)
        network.freeze(TO_CLIENT)
        store = RetryingStore(services.store, Backoff(0.01, 0.1))
        putting = asyncio.ensure_future(store.put("a", b"value", epoch=epoch, expected=NEW))
        with cluster.client() as client:

            async def is_there() -> bool:
                return client.exists(f"{cluster.path}/state/+/a") is not None

            await eventually(is_there)
        network.drop()
        network.thaw()
        version = await putting
        assert await services.store.get("a") == Stored(b"value", version)

    led(cluster, test)


def connected_again(network: Network, before: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return network.accepted > before

    return look


def test_writes_under_a_connection_that_keeps_breaking_are_all_there(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = RetryingStore(services.store, Backoff(0.01, 0.1))
        network = cluster.network(services)
        written: dict[str, int] = {}
        broken = 0

        async def hand(name: int) -> None:
            n = 0
            while broken < 10:
                path = f"graphs/{name}-{n}"
                written[path] = await store.put(path, path.encode(), epoch=epoch, expected=NEW)
                written[path] = await store.put(path, path.encode() * 2, epoch=epoch, expected=written[path])
                n += 1

        async def breaks() -> None:
            nonlocal broken
            while True:
                before = network.accepted
                network.drop()
                await eventually(connected_again(network, before))
                broken += 1
                await asyncio.sleep(0.03)

        breaking = asyncio.ensure_future(breaks())
        await asyncio.gather(*(hand(name) for name in range(8)))
        breaking.cancel()
        found = await store.list("graphs")
        assert {path: stored.version for path, stored in found.items()} == written
        assert all(stored.value == path.encode() * 2 for path, stored in found.items())

    led(cluster, test)


# -- versions and groups ----------------------------------------------------------------------------------------------------


def test_expected_version_is_not_mistaken_for_that_of_a_later_node(cluster: ZooKeeperCluster) -> None:
    """ZooKeeper counts the data version of each node anew; all of these are under way at once."""

    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        first = await store.put("a", b"1", epoch=epoch)
        results = await asyncio.gather(
            store.delete("a", epoch=epoch),
            store.put("a", b"2", epoch=epoch, expected=NEW),
            store.put("a", b"wrong", epoch=epoch, expected=first),
            store.delete("a", epoch=epoch, expected=first),
            return_exceptions=True,
        )
        assert results[0] is True
        assert isinstance(results[1], int)
        assert isinstance(results[2], VersionConflictError)
        assert isinstance(results[3], VersionConflictError)
        assert await store.get("a") == Stored(b"2", results[1])

    led(cluster, test)


def test_version_of_an_earlier_leadership_is_looked_up_anew(cluster: ZooKeeperCluster) -> None:
    """Somebody else has led in between, deleted the node and made it again, with the same data version."""

    async def main(_: object) -> None:
        one, other = await cluster.open(), await cluster.open()
        driver, _, epoch = await leading(one)
        first = await one.store.put("a", b"1", epoch=epoch)
        await driver.close()
        driver, _, epoch = await leading(other)
        await other.store.delete("a", epoch=epoch)
        second = await other.store.put("a", b"2", epoch=epoch)
        await driver.close()
        driver, _, epoch = await leading(one)
        with pytest.raises(VersionConflictError):
            await one.store.put("a", b"wrong", epoch=epoch, expected=first)
        with pytest.raises(VersionConflictError):
            await one.store.delete("a", epoch=epoch, expected=first)
        assert await one.store.put("a", b"3", epoch=epoch, expected=second) > second

    run(cluster, main)


def test_writes_that_fail_do_not_spoil_those_that_go_with_them(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        with cluster.client() as client:  # which the store has not seen
            client.create(f"{cluster.path}/state/graphs", b"")
            for n in range(0, 40, 10):
                client.create(f"{cluster.path}/state/graphs/{n}", b"vthere")
        before = services.session.requests
        results = await asyncio.gather(
            *(store.put(f"graphs/{n}", b"new", epoch=epoch, expected=NEW) for n in range(40)),
            store.put("graphs/stale", b"", epoch=Epoch(epoch + 1)),
            store.put("graphs/0", b"changed", epoch=epoch),
            store.delete("graphs/nothing", epoch=epoch),
            return_exceptions=True,
        )
        assert [n for n in range(40) if isinstance(results[n], VersionConflictError)] == [0, 10, 20, 30]
        assert all(isinstance(results[n], int) for n in range(40) if n % 10)
        assert isinstance(results[40], FencingError)
        assert isinstance(results[41], int)
        assert results[42] is False
        listed = {path: stored.value for path, stored in (await store.list("graphs")).items()}
        assert listed["graphs/0"] == b"changed"
        assert listed["graphs/10"] == b"there"
        assert listed["graphs/1"] == b"new"
        assert len(listed) == 40
        assert services.session.requests - before < 120

    led(cluster, test)


# -- what it costs ------------------------------------------------------------------------------------------------------------


def test_requests_of_each_kind_are_few(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store, session = services.store, services.session
        await store.put("graphs/first", b"", epoch=epoch)

        async def cost(action: Awaitable[object]) -> int:
            before = session.requests
            await action
            return session.requests - before

        assert await cost(store.put("graphs/a", bytes(2048), epoch=epoch, expected=NEW)) == 1
        assert await cost(store.put("graphs/a", bytes(2048), epoch=epoch)) == 1
        found = await store.get("graphs/a")
        assert found is not None
        assert await cost(store.put("graphs/a", b"", epoch=epoch, expected=found.version)) == 1
        assert await cost(store.get("graphs/a")) == 1
        assert await cost(store.delete("graphs/a", epoch=epoch)) == 1
        assert await cost(services.election("looks").leader()) == 4

    led(cluster, test)


def test_many_values_are_written_and_listed_with_few_requests(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store, session = services.store, services.session
        await store.put("graphs/first", b"", epoch=epoch)
        numbers = iter(range(3000))

        async def hand() -> None:
            for n in numbers:
                await store.put(f"graphs/{n:05}", bytes(2048), epoch=epoch, expected=NEW)

        before = session.requests
        await asyncio.gather(*(hand() for _ in range(64)))
        assert session.requests - before < 3000 / 4
        before = session.requests
        listed = await store.list("graphs")
        assert session.requests - before < 3000 / 20
        assert list(listed) == sorted([*(f"graphs/{n:05}" for n in range(3000)), "graphs/first"])

    led(cluster, test)


def test_what_is_remembered_of_nodes_is_bounded(cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.ha.zookeeper.store._REMEMBERED", 10)

    async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
        store = services.store
        for n in range(30):
            await store.put(f"graphs/{n}", b"1", epoch=epoch)
        assert len(store._seen) == 10
        assert store._locks == {}
        for n in range(30):
            await store.put(f"graphs/{n}", b"2", epoch=epoch)
        assert {stored.value for stored in (await store.list("graphs")).values()} == {b"2"}

    led(cluster, test)


def test_quota_of_the_servers_is_told_and_costs_no_leadership(tmp_path: Path) -> None:
    """Older kazoos do not know this answer, and would end their connection for good."""
    with ZooKeeperServer(tmp_path / "server", jvm_options=["-Dzookeeper.enforceQuota=true"]) as server:
        cluster = ZooKeeperCluster(server.hosts, tmp_path)

        async def test(cluster: ZooKeeperCluster, services: ZooKeeperHighAvailabilityServices, epoch: Epoch) -> None:
            await services.store.put("graphs/0", b"", epoch=epoch)
            with cluster.client() as operator:
                quota = f"/zookeeper/quota{cluster.path}"
                operator.create(
                    f"{quota}/zookeeper_limits",
                    b"count=-1,bytes=-1=;byteHardLimit=2000;countHardLimit=-1",
                    makepath=True,
                )
                operator.create(f"{quota}/zookeeper_stats", b"count=0,bytes=0")
            with pytest.raises(StoreFailingError, match="quota"):
                await services.store.put("graphs/1", bytes(5000), epoch=epoch)
            await services.store.put("graphs/1", bytes(50), epoch=epoch)
            assert services.session.generation == 0

        led(cluster, test)
