"""The state against a real API server: conflicts, pages, large values, and ConfigMaps in the hands of people."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.ha.kubernetes_nodes import SHARD_OF_A, KubernetesCluster, behind, on_cluster
from tests.support.kubernetes import KubernetesServer
from tests.support.kubernetes_door import Answer, Asked, Door, Refuse, Say

from firesteel.errors import (
    FencingError,
    InvalidConfigError,
    StoreBrokenError,
    StoreError,
    StoreFailingError,
    StoreUnavailableError,
    VersionConflictError,
)
from firesteel.ha.kubernetes import api, shard
from firesteel.ha.kubernetes.names import SHARDS
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.testing.ha_contract.harness import contend, leading

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


async def edit(cluster: KubernetesCluster, name: str, change: object) -> None:
    await asyncio.to_thread(cluster.server.edit, cluster.config_map(name), change)


async def delete(cluster: KubernetesCluster, name: str) -> None:
    await asyncio.to_thread(cluster.server.ask, "DELETE", cluster.config_map(name))


async def read(cluster: KubernetesCluster, name: str) -> dict[str, dict[str, str]]:
    return await asyncio.to_thread(cluster.server.ask, "GET", cluster.config_map(name))


def files(directory: Path) -> list[Path]:
    return [path for path in (directory / "large").rglob("*") if path.is_file()]


# -- writing ----------------------------------------------------------------------------------------------------------


def test_state_is_found_by_its_labels_and_its_paths_can_be_read(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        await services.store.put("a", b"1", epoch=epoch)
        selector = "app%3Dfiresteel,firesteel/cluster-id%3Dtest"
        path = f"/api/v1/namespaces/{cluster.namespace}/configmaps?labelSelector={selector}"
        found = (await asyncio.to_thread(kubernetes.ask, "GET", path))["items"]
        assert len(found) == SHARDS + 1
        data = (await read(cluster, SHARD_OF_A))["data"]
        assert json.loads(data["paths"]) == {"a": 1}
        assert data["epoch"] == "1"
        root = (await read(cluster, "test-state"))["data"]
        assert (root["epoch"], root["complete"], root["shards"]) == ("1", "true", str(SHARDS))

    on_cluster(kubernetes, tmp_path, test)


def test_storm_of_conflicts_delays_writes_and_loses_none(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, listener, epoch = await leading(services)
        stop = asyncio.Event()

        async def storm() -> int:
            n = 0
            while not stop.is_set():
                await edit(cluster, SHARD_OF_A, {"metadata": {"annotations": {"theirs": str(n)}}})
                n += 1
            return n

        storms = [asyncio.create_task(storm()) for _ in range(2)]
        version = 0
        for n in range(40):
            try:
                version = await services.store.put("a", str(n).encode(), epoch=epoch, expected=version)
            except StoreUnavailableError:
                stored = await services.store.get("a")
                version = stored.version if stored is not None else NEW
        stop.set()
        assert sum(await asyncio.gather(*storms)) > 0
        assert await services.store.get("a") == Stored(b"39", version)
        assert listener.events == ["grant"]
        assert "theirs" in (await read(cluster, SHARD_OF_A))["metadata"]["annotations"]

    on_cluster(kubernetes, tmp_path, test)


def test_many_writes_at_once_are_few_updates(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await behind(door, cluster)
        _, _, epoch = await leading(services)
        door.asked.clear()
        paths = [f"jobs/{n}" for n in range(1000)]
        await asyncio.gather(*(services.store.put(path, path.encode(), epoch=epoch) for path in paths))
        assert sum(asked.method == "PUT" for asked in door.asked) <= 2 * SHARDS
        listed = await services.store.list("jobs")
        assert {path: stored.value for path, stored in listed.items()} == {path: path.encode() for path in paths}

    on_cluster(kubernetes, tmp_path, test)


def test_list_comes_in_pages_and_begins_again_when_the_server_forgot_the_rest(
    kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PAGE", 7)

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await behind(door, cluster)
        _, _, epoch = await leading(services)
        paths = [f"jobs/{n:03d}" for n in range(100)]
        await asyncio.gather(*(services.store.put(path, b"x", epoch=epoch) for path in paths))
        door.asked.clear()
        pages = 0

        def rule(asked: Asked) -> Answer:
            nonlocal pages
            pages += asked.path.endswith("/configmaps")
            if pages == 3:  # the real thing: what the first pages were of is compacted away, and something has changed
                kubernetes.edit(cluster.config_map("test-state"), {"metadata": {"labels": {"theirs": str(pages)}}})
                kubernetes.forget_history()
            return Refuse(410, "made up: too old") if pages == 8 else None

        door.rule = rule
        assert list(await services.store.paths("jobs")) == paths
        assert pages > SHARDS // 7 + 1 + 3

    on_cluster(kubernetes, tmp_path, test)


# -- large values -------------------------------------------------------------------------------------------------------


def test_large_values_are_in_files_and_their_orphans_are_collected(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    large = bytes(range(256)) * 8192  # two mebibytes: more than Kubernetes would take

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, _, epoch = await leading(services)
        version = await services.store.put("graphs/a", large, epoch=epoch)
        await services.store.put("graphs/b", b"small", epoch=epoch)
        other = (await cluster.open()).store
        assert await other.get("graphs/a") == Stored(large, version)
        assert {p: s.value for p, s in (await other.list("graphs")).items()} == {
            "graphs/a": large,
            "graphs/b": b"small",
        }
        assert len(files(tmp_path)) == 1
        with pytest.raises(FencingError):
            await other.put("graphs/c", large, epoch=Epoch(epoch + 1))
        with pytest.raises(VersionConflictError):
            await other.put("graphs/a", large, epoch=epoch, expected=NEW)
        assert len(files(tmp_path)) == 1  # none for what was refused
        await services.store.put("graphs/a", large[1:], epoch=epoch, expected=version)
        assert len(files(tmp_path)) == 2
        assert await services.store.collect(epoch) == 1
        assert len(files(tmp_path)) == 1
        stored = await other.get("graphs/a")
        assert stored is not None
        assert stored.value == large[1:]
        await services.store.delete("graphs/a", epoch=epoch)
        await driver.close()
        _, _, epoch = await leading(services)
        assert await services.store.collect(epoch) == 1
        assert files(tmp_path) == []

    on_cluster(kubernetes, tmp_path, test)


def test_value_whose_file_is_gone_or_damaged_hides_no_other(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        for name in ("gone", "torn", "well"):
            await services.store.put(f"graphs/{name}", name.encode() * 5000, epoch=epoch)
        by_size = {path.read_bytes()[:4]: path for path in files(tmp_path)}
        by_size[b"gone"].unlink()
        by_size[b"torn"].write_bytes(b"torn")
        listed = await services.store.list("graphs")
        assert list(listed) == ["graphs/gone", "graphs/torn", "graphs/well"]
        assert listed["graphs/well"].value == b"well" * 5000
        for name in ("gone", "torn"):
            value = listed[f"graphs/{name}"].value
            with pytest.raises(json.JSONDecodeError):
                json.loads(value)
            assert (await services.store.get(f"graphs/{name}")) == listed[f"graphs/{name}"]
            await services.store.put(f"graphs/{name}", b"again", epoch=epoch)  # not in the way of a new one

    on_cluster(kubernetes, tmp_path, test)


def test_shard_that_is_full_gets_pointers(
    kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "CAPACITY", 8_000)
    monkeypatch.setattr(shard, "RESERVED", 2_000)

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        for _ in range(4):
            await services.store.put("a", b"x" * 4_000, epoch=epoch)
        other = next(p for p in map(str, range(1000)) if services.store._names.shard_of(p, SHARDS) == SHARD_OF_A)
        assert files(tmp_path) == []
        await services.store.put(other, b"y" * 3_000, epoch=epoch)
        assert len(files(tmp_path)) == 1
        stored = await services.store.get(other)
        assert stored is not None
        assert stored.value == b"y" * 3_000
        await services.store.put("a", b"x" * 5_000, epoch=epoch)
        paths = (f"{other}/{n}" for n in range(10_000))
        own = [path for path in paths if services.store._names.shard_of(path, SHARDS) == SHARD_OF_A]
        puts = (services.store.put(path, b"z" * 200, epoch=epoch) for path in own)
        refused = [
            result for result in await asyncio.gather(*puts, return_exceptions=True) if isinstance(result, StoreError)
        ]
        assert refused
        assert all("no space" in str(error) for error in refused)
        assert len(await services.store.paths(other)) == len(own) - len(refused)

    on_cluster(kubernetes, tmp_path, test)


def test_real_server_takes_a_shard_as_full_as_it_gets(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        paths = (f"p/{n}" for n in range(100_000))
        own = [path for path in paths if services.store._names.shard_of(path, SHARDS) == SHARD_OF_A]
        written, room = 0, True
        while room:  # first values, then pointers, until not even those fit
            some = own[written : written + 50]
            puts = (services.store.put(path, b"x" * 8_000, epoch=epoch) for path in some)
            results = await asyncio.gather(*puts, return_exceptions=True)
            room = all(isinstance(result, int) for result in results)
            written += sum(isinstance(result, int) for result in results)
        assert len(files(tmp_path)) >= 500
        assert len(await services.store.paths("p")) == written
        found = await read(cluster, SHARD_OF_A)
        assert len(json.dumps(found)) > 900_000

    on_cluster(kubernetes, tmp_path, test)


# -- in the hands of people -----------------------------------------------------------------------------------------------


def test_what_others_put_on_a_shard_is_kept(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        await services.store.put("a", b"1", epoch=epoch)
        await edit(cluster, SHARD_OF_A, {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}})
        await services.store.put("a", b"2", epoch=epoch)
        metadata = (await read(cluster, SHARD_OF_A))["metadata"]
        assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("x", "y")  # type: ignore[index]

    on_cluster(kubernetes, tmp_path, test)


def test_shard_edited_into_nonsense_is_named_and_left_alone(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        await services.store.put("a", b"1", epoch=epoch)
        before = await read(cluster, SHARD_OF_A)
        await edit(cluster, SHARD_OF_A, {"data": {"paths": "nonsense"}})
        for call in (services.store.get("a"), services.store.list("a"), services.store.put("a", b"2", epoch=epoch)):
            with pytest.raises(StoreBrokenError, match=f"'{SHARD_OF_A}' is damaged"):
                await call
        assert await services.store.get("b") is None  # of another shard
        await edit(cluster, SHARD_OF_A, {"data": before["data"]})
        assert await services.store.get("a") == Stored(b"1", 1)
        await services.store.put("a", b"2", epoch=epoch)

    on_cluster(kubernetes, tmp_path, test)


def test_record_that_was_removed_from_a_shard_hides_no_other(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        _, _, epoch = await leading(services)
        await services.store.put("a", b"1", epoch=epoch)
        await edit(cluster, SHARD_OF_A, {"binaryData": {"1": None}})
        assert await services.store.get("a") == Stored(b"", 1)
        await services.store.put("a", b"2", epoch=epoch, expected=1)
        assert await services.store.get("a") == Stored(b"2", 2)

    on_cluster(kubernetes, tmp_path, test)


def test_deleted_shard_stops_the_cluster_until_somebody_decides(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, _, epoch = await leading(services)
        await services.store.put("a", b"lost", epoch=epoch)
        await services.store.put("kept", b"kept", epoch=epoch)
        await delete(cluster, SHARD_OF_A)
        for call in (
            services.store.get("a"),
            services.store.list("a"),
            services.store.paths("a"),
            services.store.put("a", b"2", epoch=epoch),
            services.store.delete("a", epoch=epoch),
        ):
            with pytest.raises(StoreBrokenError, match=rf"{SHARD_OF_A} .* was deleted.*backup.*'test-state'"):
                await call
        await driver.close()
        services = await cluster.open()
        _, listener = await contend(services)
        await listener.until(lambda: bool(listener.errors))
        assert isinstance(listener.errors[0], StoreBrokenError)
        assert "was deleted" in str(listener.errors[0])
        # The way out that the message names.
        await services.close()
        await delete(cluster, "test-state")
        services = await cluster.open()
        _, _, newest = await leading(services)
        assert newest > epoch
        assert await services.store.get("a") is None
        stored = await services.store.get("kept")
        assert stored is not None
        assert stored.value == b"kept"
        await services.store.put("a", b"new", epoch=newest)

    on_cluster(kubernetes, tmp_path, test)


def test_deleted_root_is_made_again_from_the_shards(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    large = b"x" * 100_000

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, _, epoch = await leading(services)
        await services.store.put("large", large, epoch=epoch)
        before = (await read(cluster, "test-state"))["data"]
        await delete(cluster, "test-state")
        await services.store.put("a", b"1", epoch=epoch)  # nothing of it is needed to write
        await driver.close()
        _, _, epoch = await leading(services)  # the same node, by what it remembers
        assert (await read(cluster, "test-state"))["data"]["instance"] == before["instance"]
        await services.close()
        await delete(cluster, "test-state")
        services = await cluster.open()  # another one, by what is there
        _, _, newest = await leading(services)
        assert newest == epoch + 1
        stored = await services.store.get("large")
        assert stored is not None
        assert stored.value == large

    on_cluster(kubernetes, tmp_path, test)


def test_everything_deleted_is_a_new_cluster_to_which_no_old_node_writes(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    """Its epochs begin at 1 again, like those of the old node: they must not be taken for each other."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        old = await cluster.open()
        driver, _, epoch = await leading(old)
        await old.store.put("a", b"old", epoch=epoch)
        cluster.pause(driver)
        for name in ["test-state", *(f"test-state-{n:02d}" for n in range(SHARDS))]:
            await delete(cluster, name)
        await asyncio.to_thread(kubernetes.ask, "DELETE", cluster.lease)
        new = await cluster.open()
        _, _, newest = await leading(new)
        assert newest == epoch
        with pytest.raises(StoreBrokenError, match="recreated"):
            await old.store.put("a", b"stale", epoch=epoch)
        assert await new.store.get("a") is None
        await new.store.put("a", b"new", epoch=newest)
        with pytest.raises(StoreBrokenError, match="recreated"):
            await old.store.claim(Epoch(7), "old")

    on_cluster(kubernetes, tmp_path, test)


def test_shard_of_another_state_is_refused(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """Somebody has restored one from the wrong backup."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await cluster.open()
        driver, _, _ = await leading(services)
        await driver.close()
        await edit(cluster, SHARD_OF_A, {"data": {"instance": "other"}})
        _, listener = await contend(services)
        await listener.until(lambda: bool(listener.errors))
        assert isinstance(listener.errors[0], StoreBrokenError)
        assert f"{SHARD_OF_A} in namespace" in str(listener.errors[0])
        assert "does not belong to the same state" in str(listener.errors[0])

    on_cluster(kubernetes, tmp_path, test)


def test_state_of_a_newer_firesteel_is_refused(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        await cluster.open()
        await edit(cluster, "test-state", {"data": {"format": "2"}})
        with pytest.raises(StoreBrokenError, match="has format '2'"):
            await cluster.open()
        await edit(cluster, "test-state", {"data": {"format": "1", "shards": "none"}})
        with pytest.raises(StoreBrokenError, match=r"is damaged.*delete it"):
            await cluster.open()

    on_cluster(kubernetes, tmp_path, test)


def test_config_map_of_somebody_else_under_our_name_is_left_alone(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        theirs = {"metadata": {"name": "test-state"}, "data": {"theirs": "x"}}
        await asyncio.to_thread(kubernetes.ask, "POST", cluster.config_map("test-state").rpartition("/")[0], theirs)
        with pytest.raises(
            StoreBrokenError, match=r"'test-state'.*not belong to this cluster.*high-availability\.cluster-id"
        ):
            await cluster.open()
        assert (await read(cluster, "test-state"))["data"] == {"theirs": "x"}

    on_cluster(kubernetes, tmp_path, test)


# -- the server refuses ---------------------------------------------------------------------------------------------------


def test_namespace_that_is_not_there_is_a_mistake_in_the_configuration(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        cluster.namespace = "nowhere"
        with pytest.raises(InvalidConfigError, match=r"kubernetes\.namespace.*no namespace 'nowhere'"):
            await cluster.open()

    on_cluster(kubernetes, tmp_path, test)


def test_quota_that_is_used_up_is_told_and_waited_for(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """F9. A real quota; there is no controller that counts, so the test does."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        root = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
        hard = {"configmaps": "5"}
        quota = {"metadata": {"name": "few"}, "spec": {"hard": hard}}
        made = await asyncio.to_thread(kubernetes.ask, "POST", root, quota)
        status = {**made, "status": {"hard": hard, "used": {"configmaps": "5"}}}
        await asyncio.to_thread(kubernetes.ask, "PUT", f"{root}/few/status", status)

        with pytest.raises(StoreFailingError, match=r"a quota is used up.*exceeded quota"):
            await cluster.open()
        await asyncio.to_thread(kubernetes.ask, "DELETE", f"{root}/few")
        services = await cluster.open()
        await leading(services)

    on_cluster(kubernetes, tmp_path, test)


def test_answers_that_are_none_are_waited_out(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        services = await behind(door, cluster)
        for answer in (Say("<html>a proxy's page</html>"), Say("[1]"), Refuse(502, "<html>bad gateway</html>")):
            door.rule = lambda _, answer=answer: answer  # type: ignore[misc]
            with pytest.raises(StoreUnavailableError):
                await services.store.get("a")

    on_cluster(kubernetes, tmp_path, test)
