"""Leadership against a real API server: Leases that are deleted or edited, watches that break, servers that go away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.ha.kubernetes_nodes import KubernetesCluster, behind, on_cluster
from tests.support.kubernetes import KubernetesServer
from tests.support.kubernetes_door import Answer, Asked, Door, Refuse, Say

from firesteel.errors import FencingError, StoreBrokenError, StoreUnavailableError
from firesteel.ha.kubernetes import leases as leases_module
from firesteel.ha.kubernetes.api import LEASE, GoneError
from firesteel.ha.protocols import Epoch, LeaderInformation, Stored
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.testing.ha_contract.harness import SHORT_LEASE, contend, eventually, leading

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


def test_lease_is_as_people_and_tools_know_it(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        driver, _, epoch = await leading(await cluster.open(lease=15))
        await driver.publish(epoch, "http://here:8081")
        found = await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease)
        assert found["metadata"]["labels"] == {
            "app": "firesteel",
            "firesteel/cluster-id": "test",
            "firesteel/kind": "leader",
        }
        assert found["metadata"]["annotations"] == {"firesteel/epoch": "1", "firesteel/address": "http://here:8081"}
        assert found["spec"]["holderIdentity"].startswith("node/")
        assert (found["spec"]["leaseDurationSeconds"], found["spec"]["leaseTransitions"]) == (15, 0)
        await driver.close()
        left = await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease)
        assert not left["spec"].get("holderIdentity")
        assert left["metadata"]["annotations"] == {"firesteel/epoch": "1", "firesteel/address": ""}
        await leading(await cluster.open())
        again = await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease)
        assert again["spec"]["leaseTransitions"] == 1

    on_cluster(kubernetes, tmp_path, test)


def test_deleted_lease_costs_the_leader_its_epoch_and_the_next_is_above_it(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    """F9. It is told by the watch, long before it would renew."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, listener, epoch = await leading(services)
        _, waiting = await contend(await cluster.open())
        await asyncio.to_thread(kubernetes.ask, "DELETE", cluster.lease)
        await listener.until(lambda: len(listener.epochs) == 2)
        assert listener.events == ["grant", "revoke", "grant"]
        assert listener.epochs[1] == epoch + 1
        with pytest.raises(FencingError):
            await services.store.put("a", b"", epoch=epoch)
        await services.store.put("a", b"", epoch=listener.epochs[1])
        # It was the last leader itself and so need not wait; the other one has to.
        assert waiting.events == []
        await driver.close()
        assert await waiting.granted() == epoch + 2

    on_cluster(kubernetes, tmp_path, test)


def test_lease_deleted_while_the_leader_is_stopped_is_waited_for(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """Nobody can tell whether the one that held it acts still."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        one = await cluster.open(lease=SHORT_LEASE)
        driver, _, epoch = await leading(one)
        cluster.pause(driver)
        held_until = asyncio.get_running_loop().time() + SHORT_LEASE * 2 / 3
        await asyncio.to_thread(kubernetes.ask, "DELETE", cluster.lease)
        _, new = await contend(await cluster.open(lease=SHORT_LEASE))
        assert await new.granted() == epoch + 1
        assert asyncio.get_running_loop().time() > held_until
        assert not driver.holds(epoch)
        with pytest.raises(FencingError):
            await one.store.put("a", b"", epoch=epoch)

    on_cluster(kubernetes, tmp_path, test)


@pytest.mark.parametrize("also", [[], ["test-state"]], ids=["lease", "lease and root"])
def test_epoch_never_goes_back_whatever_is_deleted_while_nobody_leads(
    kubernetes: KubernetesServer, tmp_path: Path, also: list[str]
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open(lease=SHORT_LEASE)
        for expected in (1, 2, 3):
            driver, _, epoch = await leading(services)
            assert epoch == expected
            await services.store.put("a", str(epoch).encode(), epoch=epoch)
            await driver.close()
        await services.close()
        await asyncio.to_thread(kubernetes.ask, "DELETE", cluster.lease)
        for name in also:
            await asyncio.to_thread(kubernetes.ask, "DELETE", cluster.config_map(name))
        services = await cluster.open(lease=SHORT_LEASE)
        _, _, epoch = await leading(services)
        assert epoch == 4
        stored = await services.store.get("a")
        assert stored is not None
        assert stored.value == b"3"
        assert await services.store.put("a", b"4", epoch=epoch) > stored.version

    on_cluster(kubernetes, tmp_path, test)


def test_annotation_of_the_epoch_may_be_lost(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, _, epoch = await leading(services)
        await driver.close()
        for wrong in (None, "many", "0"):
            change = {"metadata": {"annotations": {"firesteel/epoch": wrong}}}
            await asyncio.to_thread(kubernetes.edit, cluster.lease, change)
            driver, _, newest = await leading(services)
            assert newest == epoch + 1
            epoch = newest
            await driver.close()

    on_cluster(kubernetes, tmp_path, test)


def test_labels_of_others_on_the_lease_are_kept_and_cost_no_leadership(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    """A storm of 409: somebody else changes the Lease all the time."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open(lease=SHORT_LEASE)
        driver, listener, epoch = await leading(services)
        stop = asyncio.Event()

        async def storm() -> int:
            n = 0
            while not stop.is_set():
                change = {"metadata": {"labels": {"theirs": str(n)}}}
                await asyncio.to_thread(kubernetes.edit, cluster.lease, change)
                n += 1
            return n

        storming = asyncio.create_task(storm())
        for n in range(30):
            await driver.publish(epoch, f"http://here:{n}")
        first = (await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease))["spec"]["renewTime"]

        async def has_renewed() -> bool:
            return bool((await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease))["spec"]["renewTime"] > first)

        await eventually(has_renewed)
        stop.set()
        assert await storming > 0
        assert listener.events == ["grant"]
        assert await driver.leader() == LeaderInformation(epoch, "http://here:29")
        found = await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease)
        assert "theirs" in found["metadata"]["labels"]

    on_cluster(kubernetes, tmp_path, test)


def test_lease_of_somebody_else_under_our_name_is_left_alone(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        theirs = {"metadata": {"name": "test-leader"}, "spec": {"leaseDurationSeconds": 1}}
        await asyncio.to_thread(kubernetes.ask, "POST", cluster.lease.rpartition("/")[0], theirs)
        _, listener = await contend(await cluster.open())
        await listener.until(lambda: bool(listener.errors))
        [error] = listener.errors
        assert isinstance(error, StoreBrokenError)
        assert "Lease 'test-leader'" in str(error)
        assert "high-availability.cluster-id" in str(error)

    on_cluster(kubernetes, tmp_path, test)


# -- the watch --------------------------------------------------------------------------------------------------------


def test_watch_that_is_gone_begins_again_with_how_it_is_now(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        leader, _, epoch = await leading(await cluster.open())
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
        lease = await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease)
        added = {"type": "ADDED", "object": lease}
        script: list[Answer] = [
            Say(json.dumps(added) + "\n"),  # ends, and is continued from there
            Say(json.dumps(gone) + "\n"),
            Refuse(410, "too old"),
            Say("not JSON\n"),
            Refuse(503),
        ]

        def rule(asked: Asked) -> Answer:
            return script.pop(0) if asked.watch and script else None

        door.rule = rule
        _, listener = await contend(await behind(door, cluster))

        async def watches() -> bool:
            return len([asked for asked in door.asked if asked.watch]) == 6

        await eventually(watches)
        version = lease["metadata"]["resourceVersion"]
        assert [asked.since for asked in door.asked if asked.watch] == ["", version, "", "", "", ""]
        await leader.close()
        assert await listener.granted() == epoch + 1

    on_cluster(kubernetes, tmp_path, test)


def test_without_any_watch_leadership_is_found_by_looking(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        leader, _, epoch = await leading(await cluster.open())
        door.rule = lambda asked: Refuse(500) if asked.watch else None
        _, listener = await contend(await behind(door, cluster))
        await leader.close()
        assert await listener.granted() == epoch + 1

    on_cluster(kubernetes, tmp_path, test)


def test_watch_that_was_refused_is_tried_again(
    kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right to watch may have been taken away by mistake, and given back."""
    monkeypatch.setattr(leases_module, "_REFUSED_SECONDS", 0.05)

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        script: list[Answer] = [Refuse(403), Refuse(401), Refuse(403)]
        door.rule = lambda asked: script.pop(0) if asked.watch and script else None
        await contend(await behind(door, cluster))

        async def watches() -> bool:
            return len([asked for asked in door.asked if asked.watch]) == 4

        await eventually(watches)

    on_cluster(kubernetes, tmp_path, test)


def test_server_that_has_forgotten_says_gone(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """The real thing: its history was compacted, and it was started anew."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        leader, _, epoch = await leading(services)
        _, waiting = await contend(await cluster.open())
        old = (await asyncio.to_thread(kubernetes.ask, "GET", cluster.lease))["metadata"]["resourceVersion"]
        for n in range(3):
            await leader.publish(epoch, f"http://here:{n}")
        await asyncio.to_thread(kubernetes.forget_history)
        await asyncio.to_thread(kubernetes.restart_apiserver)
        with pytest.raises(GoneError):
            async for _ in services._api.watch(LEASE, "test-leader", old):
                pass
        await leader.close()
        assert await waiting.granted() == epoch + 1

    on_cluster(kubernetes, tmp_path, test)


# -- the server ---------------------------------------------------------------------------------------------------------


def test_server_that_is_restarted_within_the_lease_costs_no_leadership(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, listener, epoch = await leading(services)
        version = await services.store.put("a", b"1", epoch=epoch)
        await asyncio.to_thread(kubernetes.stop_apiserver)
        try:
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await services.store.get("a")
            with pytest.raises(StoreUnavailableError):
                await services.store.put("a", b"2", epoch=epoch)
            with pytest.raises(StoreUnavailableError):
                await driver.leader()
            with pytest.raises(StoreUnavailableError):
                await cluster.open()
        finally:
            await asyncio.to_thread(kubernetes.start_apiserver)
        assert await services.store.get("a") == Stored(b"1", version)
        await services.store.put("a", b"2", epoch=epoch, expected=version)
        assert driver.holds(epoch)
        assert listener.events == ["grant"]

    on_cluster(kubernetes, tmp_path, test)


@pytest.mark.parametrize("how", ["stopped", "silent"])
def test_server_that_is_away_for_longer_than_the_lease_ends_the_leadership(
    kubernetes: KubernetesServer, tmp_path: Path, how: str
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open(lease=SHORT_LEASE)
        driver, listener, epoch = await leading(services)
        away, back = (
            (kubernetes.stop_apiserver, kubernetes.start_apiserver)
            if how == "stopped"
            else (kubernetes.pause_apiserver, kubernetes.resume_apiserver)
        )
        await asyncio.to_thread(away)
        try:
            await listener.until(lambda: listener.events == ["grant", "revoke"])
            assert not driver.holds(epoch)
        finally:
            await asyncio.to_thread(back)
        await listener.until(lambda: len(listener.epochs) == 2)
        assert listener.epochs[1] > epoch
        await services.store.put("a", b"", epoch=listener.epochs[1])

    on_cluster(kubernetes, tmp_path, test)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_errors_in_passing_are_waited_out(kubernetes: KubernetesServer, tmp_path: Path, code: int) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await behind(door, cluster)
        refused = 0

        def rule(_: Asked) -> Answer:
            nonlocal refused
            refused += 1
            return Refuse(code, headers={"Retry-After": "1"}) if refused < 9 and refused % 3 else None

        door.rule = rule
        driver, listener = await contend(services)
        await listener.granted()
        assert refused > 9
        door.rule = lambda _: Refuse(code)
        for call in (services.store.get, services.store.list, services.store.paths):
            with pytest.raises(StoreUnavailableError, match=str(code)):
                await call("a")
        with pytest.raises(StoreUnavailableError, match=str(code)):
            await services.store.put("a", b"", epoch=listener.epochs[0])
        assert listener.events == ["grant"]
        assert driver.holds(listener.epochs[0])

    on_cluster(kubernetes, tmp_path, test)


def test_refused_credential_ends_the_election_with_what_to_do(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await behind(door, cluster, lease=SHORT_LEASE)
        driver, listener, epoch = await leading(services)
        door.rule = lambda _: Refuse(401, "Unauthorized")
        await listener.until(lambda: bool(listener.errors))
        assert listener.events == ["grant", "revoke", "error"]
        assert isinstance(listener.errors[0], StoreBrokenError)
        assert "does not recognise this node" in str(listener.errors[0])
        assert not driver.holds(epoch)

    on_cluster(kubernetes, tmp_path, test)


def test_two_clusters_in_one_namespace_know_nothing_of_each_other(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        names = ("blue", "blue-state", "blue-state-03")  # also such that look like parts of each other
        nodes = [await cluster.open(cluster_id=name) for name in names]
        for n, node in enumerate(nodes):
            for _ in range(n + 1):
                driver, _, epoch = await leading(node)
                if epoch <= n:
                    await driver.close()
            assert epoch == n + 1
            await node.store.put("jobs/a", names[n].encode(), epoch=epoch)
        for n, node in enumerate(nodes):
            listed = await node.store.list("jobs")
            assert [stored.value for stored in listed.values()] == [names[n].encode()]
            leader = await node.election("looks").leader()
            assert leader is not None
            assert leader.epoch == n + 1

    on_cluster(kubernetes, tmp_path, test)


def test_retrieval_hears_of_a_new_leader_by_the_watch(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """Its driver does not contend, and it would ask again only after a minute."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        retrieval = LeaderRetrieval((await cluster.open()).election("client"), interval=60)
        await retrieval.start()
        for n in range(3):
            driver, _, epoch = await leading(await cluster.open())
            await driver.publish(epoch, f"http://node:{n}")

            async def is_told(epoch: Epoch = epoch, address: str = f"http://node:{n}") -> bool:
                return retrieval.current == LeaderInformation(epoch, address)

            await eventually(is_told)
            await driver.close()

            async def is_forgotten() -> bool:
                return retrieval.current is None

            await eventually(is_forgotten)
        await retrieval.close()

    on_cluster(kubernetes, tmp_path, test)
