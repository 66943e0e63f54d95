"""What a node may do: the manifest's Role is enough, nothing in it is too much, and what is missing is named."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
import yaml
from tests.ha.kubernetes_nodes import KubernetesCluster, on_cluster
from tests.support.kubernetes import ROOT, KubernetesServer
from tests.support.kubernetes_door import Door

from firesteel.errors import StoreBrokenError
from firesteel.testing.ha_contract.harness import contend, leading

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]

MANIFEST = (ROOT / "deploy" / "kubernetes" / "rbac.yaml").read_text()
RULES = {rule["resources"][0]: rule["verbs"] for rule in list(yaml.safe_load_all(MANIFEST))[1]["rules"]}


async def service_account(cluster: KubernetesCluster, manifest: str = MANIFEST) -> Path:
    """A kubeconfig of the service account that the manifest makes."""
    server = cluster.server
    await asyncio.to_thread(server.apply, manifest, cluster.namespace)
    token = await asyncio.to_thread(server.token_of, "firesteel", cluster.namespace)
    return server.kubeconfig(cluster.directory, token=token)


def without(resource: str, verb: str) -> str:
    objects = list(yaml.safe_load_all(MANIFEST))
    for rule in objects[1]["rules"]:
        if rule["resources"] == [resource]:
            rule["verbs"].remove(verb)
    return yaml.safe_dump_all(objects)


def test_role_of_the_manifest_is_enough(
    kubernetes: KubernetesServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        kubeconfig = await service_account(cluster)
        one, other = [await cluster.open(kubeconfig=kubeconfig) for _ in range(2)]
        driver, _, epoch = await leading(one)
        await driver.publish(epoch, "http://one")
        await one.store.put("a", b"1", epoch=epoch)
        await one.store.put("b", b"1" * 100_000, epoch=epoch)
        await one.store.delete("a", epoch=epoch)
        assert list(await one.store.paths("a")) == []
        assert await one.store.collect(epoch) == 0
        _, waiting = await contend(other)
        await driver.close()
        assert await waiting.granted() == epoch + 1

    with caplog.at_level(logging.WARNING, "firesteel"):
        on_cluster(kubernetes, tmp_path, test)
    assert [record.message for record in caplog.records] == []


def test_node_without_a_role_is_told_what_it_lacks(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        account = yaml.safe_dump(next(iter(yaml.safe_load_all(MANIFEST))))
        with pytest.raises(
            StoreBrokenError, match=rf"verb 'get' on configmaps.*{cluster.namespace}|{cluster.namespace}.*verb 'get' on"
        ):
            await cluster.open(kubeconfig=await service_account(cluster, account))

    on_cluster(kubernetes, tmp_path, test)


@pytest.mark.parametrize(
    ("resource", "verb"), [(resource, verb) for resource, verbs in RULES.items() for verb in verbs]
)
def test_every_verb_is_needed_and_named_when_it_is_missing(
    kubernetes: KubernetesServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, resource: str, verb: str
) -> None:
    async def use(cluster: KubernetesCluster, kubeconfig: Path) -> str | None:
        """The error that comes of it."""
        try:
            services = await cluster.open(kubeconfig=kubeconfig, lease=3)
        except StoreBrokenError as error:
            return str(error)
        driver, listener = await contend(services)
        await listener.until(lambda: bool(listener.events))
        if not listener.errors:
            try:
                await driver.publish(listener.epochs[0], "http://here")
            except StoreBrokenError as error:
                return str(error)
            return None
        assert isinstance(listener.errors[0], StoreBrokenError)
        return str(listener.errors[0])

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        said = await use(cluster, await service_account(cluster, without(resource, verb)))
        if verb == "watch":  # it only makes things faster
            assert said is None
            said = "\n".join(record.message for record in caplog.records)
        assert said is not None
        assert f"the verb '{verb}' on {resource}, as in deploy/kubernetes/rbac.yaml" in said
        assert cluster.namespace in said

    with caplog.at_level(logging.WARNING, "firesteel"):
        on_cluster(kubernetes, tmp_path, test)


def test_role_that_is_taken_away_ends_the_leadership_and_says_why(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    """F9."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        kubeconfig = await service_account(cluster)
        driver, listener, epoch = await leading(await cluster.open(kubeconfig=kubeconfig, lease=3))
        binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}/rolebindings/firesteel"
        await asyncio.to_thread(kubernetes.ask, "DELETE", binding)
        await listener.until(lambda: bool(listener.errors))
        assert listener.events == ["grant", "revoke", "error"]
        assert "the verb 'update' on leases" in str(listener.errors[0])
        assert not driver.holds(epoch)

    on_cluster(kubernetes, tmp_path, test)
