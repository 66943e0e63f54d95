"""Fencing against a real API server: requests of an old leader that come late, and claims that end in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.ha.kubernetes_nodes import SHARD_OF_A, KubernetesCluster, behind, on_cluster
from tests.support.kubernetes import KubernetesServer
from tests.support.kubernetes_door import Answer, Asked, Door, HoldBack, LoseAnswer, Refuse

from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha.kubernetes.names import SHARDS
from firesteel.ha.kubernetes.shard import ClaimRefusedError
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.testing.ha_contract.harness import SHORT_LEASE, contend, eventually, leading

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


def test_update_of_an_old_leader_that_arrives_after_the_new_one_has_claimed_changes_nothing(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        one, other = await behind(door, cluster, lease=SHORT_LEASE), await cluster.open(lease=SHORT_LEASE)
        driver, _, stale = await leading(one)
        version = await one.store.put("a", b"old", epoch=stale)
        arrives = asyncio.Event()
        door.rule = lambda asked: HoldBack(arrives) if asked.is_put_of(SHARD_OF_A) else None
        late = asyncio.create_task(one.store.put("a", b"stale", epoch=stale))

        async def is_on_its_way() -> bool:
            return bool(door.late)

        await eventually(is_on_its_way)
        cluster.pause(driver)
        _, new = await contend(other)
        epoch = await new.granted()
        door.rule = lambda _: None
        arrives.set()
        with pytest.raises(FencingError):
            await late
        assert await other.store.get("a") == Stored(b"old", version)
        assert await other.store.put("a", b"new", epoch=epoch, expected=version) == version + 1

    on_cluster(kubernetes, tmp_path, test)


def test_shard_that_an_old_leader_makes_late_is_the_new_leaders(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """The very first leader is stopped while it makes the shards."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        one, other = await behind(door, cluster, lease=SHORT_LEASE), await cluster.open(lease=SHORT_LEASE)
        arrives = asyncio.Event()
        made = 0

        def rule(asked: Asked) -> Answer:
            nonlocal made
            made += asked.method == "POST" and asked.path.endswith("/configmaps")
            return HoldBack(arrives) if made > 10 and asked.method == "POST" else None

        door.rule = rule
        driver, first = await contend(one)

        async def are_on_their_way() -> bool:
            return len(door.late) > 5

        await eventually(are_on_their_way)
        cluster.pause(driver)
        _, second = await contend(other)
        epoch = await second.granted()
        assert epoch == 2
        assert first.events == []
        await other.store.put("a", b"new", epoch=epoch)
        arrives.set()
        await asyncio.gather(*door.late, return_exceptions=True)
        for path in map(str, range(200)):  # in every shard
            await other.store.put(path, b"x", epoch=epoch, expected=NEW)
            with pytest.raises(FencingError):
                await one.store.put(path, b"stale", epoch=Epoch(1))
        assert len(await other.store._roots.shards()) == SHARDS

    on_cluster(kubernetes, tmp_path, test)


@pytest.mark.parametrize("claimed", [0, 1, 40])
def test_claim_that_ends_in_the_middle_is_made_good_by_the_next_leader(
    kubernetes: KubernetesServer, tmp_path: Path, claimed: int
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        first = await cluster.open()
        driver, _, epoch = await leading(first)
        values = {str(n): str(n).encode() for n in range(200)}
        await asyncio.gather(*(first.store.put(path, v, epoch=epoch) for path, v in values.items()))
        await driver.close()

        done = 0

        def rule(asked: Asked) -> Answer:
            nonlocal done
            if asked.method != "PUT" or "/test-state-" not in asked.path:
                return None
            done += 1
            return Refuse(503) if done > claimed else None

        door.rule = rule
        second, gave_up = await contend(await behind(door, cluster))

        async def has_tried() -> bool:
            return done > claimed + 3

        await eventually(has_tried)
        assert gave_up.events == []
        cluster.pause(second)  # dies
        await second.close()
        _, listener, newest = await leading(await cluster.open())
        assert newest == 3
        assert listener.events == ["grant"]
        store = (await cluster.open()).store
        for path, value in values.items():
            stored = await store.get(path)
            assert stored is not None
            assert stored.value == value
            for stale in (1, 2):
                with pytest.raises(FencingError):
                    await store.put(path, b"stale", epoch=Epoch(stale))
            await store.put(path, b"new", epoch=newest, expected=stored.version)

    on_cluster(kubernetes, tmp_path, test)


def test_put_whose_answer_was_lost_is_never_taken_for_somebody_elses(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await behind(door, cluster)
        _, listener, epoch = await leading(services)
        for n in range(10):
            path = f"p{n}"
            lost: list[Asked] = []

            def rule(asked: Asked, lost: list[Asked] = lost) -> Answer:
                if asked.method == "PUT" and "/test-state-" in asked.path and not lost:
                    lost.append(asked)
                    return LoseAnswer()
                return None

            door.rule = rule
            try:
                version = await services.store.put(path, b"x", epoch=epoch, expected=NEW)
            except StoreUnavailableError:
                pass  # it may or may not have been carried out; both are said so
            else:
                assert await services.store.get(path) == Stored(b"x", version)
            assert lost
            stored = await services.store.get(path)
            assert stored is not None
            assert stored.value == b"x"
        assert listener.events == ["grant"]

    on_cluster(kubernetes, tmp_path, test)


def test_take_over_whose_answer_was_lost_leaves_no_lease_behind(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        lost: list[Asked] = []

        def rule(asked: Asked) -> Answer:
            if asked.path.endswith("/leases") and asked.method == "POST" and not lost:
                lost.append(asked)
                return LoseAnswer()
            return None

        door.rule = rule
        driver, _, epoch = await leading(await behind(door, cluster))
        assert lost
        assert epoch == 2  # the first was never trusted
        await driver.close()
        _, _, epoch = await leading(await cluster.open())
        assert epoch == 3

    on_cluster(kubernetes, tmp_path, test)


def test_contender_that_leaves_while_its_take_over_is_on_its_way_leaves_no_lease_behind(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        arrives = asyncio.Event()
        door.rule = lambda asked: HoldBack(arrives) if asked.method == "POST" and "/leases" in asked.path else None
        driver, listener = await contend(await behind(door, cluster))

        async def is_on_its_way() -> bool:
            return bool(door.late)

        await eventually(is_on_its_way)
        closing = asyncio.create_task(driver.close())
        await asyncio.wait([closing], timeout=0.5)
        arrives.set()
        await closing
        assert listener.events == []
        await leading(await cluster.open())  # at once, though the lease is a long one

    on_cluster(kubernetes, tmp_path, test)


def test_leader_whose_write_is_refused_gives_up_at_once_and_leads_anew(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    """Somebody has edited the epoch of a shard: a leader that cannot write is worse than none."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, listener, epoch = await leading(services)
        await services.store.put("a", b"1", epoch=epoch)
        await asyncio.to_thread(cluster.server.edit, cluster.config_map(SHARD_OF_A), {"data": {"epoch": "40"}})
        with pytest.raises(FencingError):
            await services.store.put("a", b"2", epoch=epoch)
        await listener.until(lambda: len(listener.epochs) == 2)
        assert listener.events == ["grant", "revoke", "grant"]
        assert listener.epochs[1] == 41
        await services.store.put("a", b"2", epoch=Epoch(41))

    on_cluster(kubernetes, tmp_path, test)


def test_claim_with_an_epoch_that_is_not_newer_is_refused(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        one, other = await cluster.open(), await cluster.open()
        _, _, newest = await leading(other)
        for stale in (newest, Epoch(newest - 1)):
            with pytest.raises(ClaimRefusedError) as refused:
                await one.store.claim(stale, "late")
            assert refused.value.newest == newest
        await other.store.put("a", b"", epoch=newest)

    on_cluster(kubernetes, tmp_path, test)
