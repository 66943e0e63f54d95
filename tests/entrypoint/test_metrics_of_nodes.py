"""Each node of a cluster tells Prometheus of itself, to a token that is good for nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.entrypoint.node_cluster import DEADLINE, GRAPH, Node, NodeCluster
from tests.support.waiting import until

from firesteel.config.sections import Role
from firesteel.rest.security.tokens import TokenFile

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("handover")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    started = NodeCluster(tmp_path, {})
    try:
        for _ in range(2):
            started.start()
        started.leader()
        yield started
    finally:
        started.close()


def scraper(cluster: NodeCluster) -> str:
    return TokenFile(cluster.configuration().security.tokens_file).create("prometheus", Role.SCRAPER, "prometheus")


def scrape(node: Node, token: str, path: str = "/metrics") -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.get(node.address + path, headers=headers, timeout=DEADLINE, trust_env=False)


def values(text: str) -> dict[str, float]:
    """By name and labels, as they stand there."""
    return {name: float(value) for name, value in re.findall(r"^([^#\s].*) (\S+)$", text, re.MULTILINE)}


def test_nodes_tell_of_themselves_and_the_leader_of_jobs(cluster: NodeCluster) -> None:
    leader, token = cluster.leader(), scraper(cluster)
    (follower,) = (n for n in cluster.nodes if n is not leader)
    with cluster.client() as client:
        for _ in range(3):
            client.submit(GRAPH)

    def counted() -> bool:
        return values(scrape(leader, token).text).get("firesteel_dispatcher_unfinished_jobs") == 3

    until(counted, lambda: scrape(leader, token).text)
    of_leader, of_follower = values(scrape(leader, token).text), values(scrape(follower, token).text)
    accepted = 'firesteel_dispatcher_submissions_total{outcome="accepted"}'
    assert (of_leader[accepted], of_follower[accepted]) == (3, 0)
    assert (of_leader["firesteel_election_leading"], of_follower["firesteel_election_leading"]) == (1, 0)
    assert of_leader["firesteel_resource_manager_waiting_requests"] >= 2
    assert sum(value for name, value in of_leader.items() if name.startswith("firesteel_job_state{")) == 3
    assert not any(name.startswith(("firesteel_job_", "firesteel_dispatcher_jobs")) for name in of_follower)
    for told in (of_leader, of_follower):
        assert told["firesteel_node_resident_memory_bytes"] > 1e7
        assert told["firesteel_node_event_loop_lag_seconds_count"] > 0
        assert any(name.startswith("firesteel_rest_request_seconds_count{") for name in told)
    assert of_leader['firesteel_store_operation_seconds_count{operation="put"}'] >= 3


def test_the_token_of_a_scraper_opens_nothing_else(cluster: NodeCluster) -> None:
    token = scraper(cluster)
    for node in cluster.nodes:
        assert scrape(node, token).status_code == 200
        for path in ("/jobs", "/v1/jobs/overview", "/jobmanager/metrics", "/cluster/status", "/whoami"):
            assert scrape(node, token, path).status_code == 403, path
        assert scrape(node, "fst_0123456789abcdef_" + "0" * 48).status_code == 401
