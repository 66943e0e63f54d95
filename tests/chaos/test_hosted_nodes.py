"""Three nodes on three hosts: they share a store and a file system, and nothing else (F27, F28)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests import needs
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

from firesteel_chaos.controlled import leader_of, leading_node
from firesteel_chaos.hosts import HostNetwork
from firesteel_chaos.hosts.cluster import HostedCluster, HostedNode

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("hosts")]

LEASE = 4.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedCluster]:
    needs.hosts()
    needs.package("kazoo", "zookeeper")
    root = tmp_path_factory.mktemp("hosted")
    with (
        HostNetwork(root, ["a", "b", "c"]) as network,
        ZooKeeperServer(root / "zookeeper", address=network.address) as server,
    ):
        options = {
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": str(network.shared / "large-values"),
            "high-availability.zookeeper.quorum": server.hosts,
            "high-availability.zookeeper.client.acl": "creator",
            "high-availability.zookeeper.client.auth": "firesteel:of-these-tests",
            "high-availability.zookeeper.client.session-timeout": f"{LEASE:g} s",
            "high-availability.zookeeper.client.connection-timeout": f"{LEASE:g} s",
        }
        with HostedCluster(network, ["a", "b", "c"], options=options, lease=LEASE) as made:
            yield made


@pytest.fixture(autouse=True)
def whole(cluster: HostedCluster) -> None:
    cluster.network.heal()
    for host in cluster.network:
        if host.up:
            host.resume()
    cluster.start()


def leader(cluster: HostedCluster) -> HostedNode:
    until(lambda: leading_node(cluster) is not None, "nobody leads")
    found = leading_node(cluster)
    assert isinstance(found, HostedNode)
    return found


def wait_for_another(cluster: HostedCluster, before: HostedNode, epoch: int) -> HostedNode:
    def another() -> bool:
        found = leader_of(cluster)
        return found is not None and found.epoch > epoch and found.address != before.address

    until(another, f"nobody leads in place of {before.name}")
    return leader(cluster)


def epoch_of(cluster: HostedCluster) -> int:
    found = leader_of(cluster)
    assert found is not None
    return found.epoch


def test_the_leaders_host_dies_and_another_host_leads(cluster: HostedCluster) -> None:
    first = leader(cluster)
    epoch = epoch_of(cluster)
    first.host.crash()
    began = time.monotonic()
    second = wait_for_another(cluster, first, epoch)
    # A session's time for ZooKeeper to notice, and a moment to recover; a machine that is busy doubles both.
    assert time.monotonic() - began < 2 * (LEASE + 10)
    with cluster.client() as client:
        assert not client.jobs()
    first.start()  # after a reboot, under the same name and with its old files
    assert leader(cluster).name == second.name


def test_a_leader_that_is_cut_off_is_replaced_and_steps_back(cluster: HostedCluster) -> None:
    first = leader(cluster)
    epoch = epoch_of(cluster)
    first.host.cut_off()
    second = wait_for_another(cluster, first, epoch)
    first.host.heal()
    until(lambda: first.serves, "it does not serve after the cut")
    assert leader(cluster).name == second.name
    assert first.alive


def test_a_leader_whose_host_stands_still_is_replaced(cluster: HostedCluster) -> None:
    first = leader(cluster)
    epoch = epoch_of(cluster)
    first.host.pause()
    second = wait_for_another(cluster, first, epoch)
    first.host.resume()
    until(lambda: first.serves, "it does not serve when it goes on")
    assert leader(cluster).name == second.name
