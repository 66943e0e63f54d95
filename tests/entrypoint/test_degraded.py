"""I24: the store has no quorum, or is away. Nobody leads, nothing is written, jobs run on, and every node says so."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from subprocess import run as run_process

import httpx
import pytest
from tests.entrypoint.node_cluster import DEADLINE, GRAPH, Node, NodeCluster
from tests.needs import missing
from tests.support.postgresql import HOW_TO_GET_IT, PostgreSqlServer, binaries, servers
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperQuorum

from firesteel.client.discovery import find_nodes
from firesteel.client.errors import ClusterUnreachableError
from firesteel.status import JobStatus

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("handover")]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[ZooKeeperQuorum]:
    (tmp_path / "quorum").mkdir()
    with ZooKeeperQuorum(tmp_path / "quorum") as servers_:
        yield servers_


@pytest.fixture
def postgresql() -> Iterator[PostgreSqlServer]:
    if binaries() is None:
        missing("a PostgreSQL server", HOW_TO_GET_IT)
    with servers() as server:
        yield server


@contextlib.contextmanager
def opened(directory: Path, options: dict[str, str]) -> Iterator[NodeCluster]:
    cluster = NodeCluster(directory, options)
    try:
        for _ in range(2):
            cluster.start()
        cluster.leader()
        yield cluster
    finally:
        cluster.close()


def ask(cluster: NodeCluster, node: Node, method: str, path: str, **more: object) -> httpx.Response:
    """As somebody does who does not try again."""
    token = next(n.token for n in find_nodes(cluster.configuration()) if n.address == node.address)
    headers = {"authorization": f"Bearer {token}"}
    return httpx.request(method, node.address + path, headers=headers, timeout=DEADLINE, trust_env=False, **more)  # type: ignore[arg-type]


def says_degraded(cluster: NodeCluster, node: Node) -> bool:
    told = ask(cluster, node, "GET", "/cluster/status")
    return told.status_code == 200 and bool(told.json()["degraded"])


def is_ready(cluster: NodeCluster, node: Node) -> bool:
    return ask(cluster, node, "GET", "/healthz?ready").status_code == 200


def check_degraded(cluster: NodeCluster, led: Node, jobs: list[str]) -> None:
    for node in cluster.nodes:
        until(partial(says_degraded, cluster, node), lambda: "a node does not say that it is degraded")
        # For itself, and no longer because nobody answers it: it has noticed that the store is away.
        until(lambda: not any(is_ready(cluster, n) for n in cluster.nodes), lambda: "a node believes that it is ready")
        told = ask(cluster, node, "GET", "/v1/cluster/status").json()
        assert told["leader"] is None
        assert told["lastLeader"]["address"] == led.address
        assert told["node"]["address"] == node.address, "it answers for itself"
        assert told["reason"]
        assert 0 <= time.time() - told["since"] / 1000 < 120
        alive, ready = ask(cluster, node, "GET", "/healthz"), ask(cluster, node, "GET", "/healthz?ready")
        assert (alive.status_code, alive.json()["status"]) == (200, "degraded")
        assert ready.status_code == 503
        for path in ("/jobs/overview", f"/jobs/{jobs[0]}"):
            read = ask(cluster, node, "GET", path)
            assert read.status_code == 503
            assert read.headers["retry-after"] == "1"
            assert read.headers["firesteel-degraded"]
            assert "degraded since" in " ".join(read.json()["errors"])
        refused = ask(cluster, node, "POST", "/jobs", json={"graph": GRAPH})
        assert refused.status_code == 503
    with cluster.client(client__timeout="2 s") as client, pytest.raises(ClusterUnreachableError, match="degraded"):
        client.submit(GRAPH)
    shown = run_process(
        [
            *(sys.executable, "-c", "from firesteel.cli.main import main; main()", "cluster", "status"),
            *("-D", f"data.dir={cluster.configuration().data.dir}"),
        ],
        env={"HOME": str(cluster.directory), "COLUMNS": "300", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert shown.returncode == 1, shown.stderr
    assert "degraded" in shown.stdout
    assert "Running jobs continue" in shown.stdout


def check_recovered(cluster: NodeCluster, epoch: int, jobs: list[str]) -> None:
    def leads() -> bool:
        return any(not says_degraded(cluster, n) for n in cluster.nodes)

    until(leads, lambda: "\n".join(n.said[-3000:] for n in cluster.nodes))
    cluster.leader()
    with cluster.client() as client:
        assert client.cluster_status().epoch == epoch + 1
        # Nothing was written meanwhile: what was refused is not there.
        assert sorted(j.job_id for j in client.jobs()) == sorted(jobs)
        assert client.job(jobs[0]).status() is JobStatus.RUNNING
        client.submit(GRAPH)
    for node in cluster.nodes:
        until(partial(is_ready, cluster, node), lambda: "not ready")


def submitted(cluster: NodeCluster) -> list[str]:
    """One job that runs, and one that waits."""
    with cluster.client() as client:
        running = client.submit(GRAPH)
        until(lambda: running.status() is JobStatus.RUNNING and bool(cluster.drivers()), lambda: "the job does not run")
        return [running.job_id, client.submit(GRAPH).job_id]


def test_zookeeper_without_a_quorum(quorum: ZooKeeperQuorum, tmp_path: Path) -> None:
    options = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": quorum.hosts,
        "high-availability.zookeeper.client.session-timeout": "4 s",
        "high-availability.storageDir": str(tmp_path / "storage"),
    }
    with opened(tmp_path, options) as cluster:
        jobs = submitted(cluster)
        led, epoch = cluster.leader(), cluster.status().epoch or 0
        drivers = cluster.drivers()
        for server in quorum.servers[:2]:
            server.kill()
        check_degraded(cluster, led, jobs)
        assert set(drivers) <= set(cluster.drivers()), "running jobs go on"
        quorum.start()
        check_recovered(cluster, epoch, jobs)
        assert set(drivers) <= set(cluster.drivers())


@pytest.mark.integration
def test_postgresql_that_does_not_answer(postgresql: PostgreSqlServer, tmp_path: Path) -> None:
    options = {"high-availability.sql.url": postgresql.url, "high-availability.lease-duration": "4 s"}
    with opened(tmp_path, options) as cluster:
        jobs = submitted(cluster)
        led, epoch = cluster.leader(), cluster.status().epoch or 0
        drivers = cluster.drivers()
        rows = stored(postgresql)
        postgresql.pause()
        check_degraded(cluster, led, jobs)
        assert set(drivers) <= set(cluster.drivers()), "running jobs go on"
        postgresql.resume()
        assert stored(postgresql) == rows, "nothing was written"
        check_recovered(cluster, epoch, jobs)
        assert set(drivers) <= set(cluster.drivers())


def stored(server: PostgreSqlServer) -> list[str]:
    """The jobs that were accepted."""
    return server.sql("SELECT path, version FROM firesteel_state WHERE path LIKE 'graphs/%' ORDER BY path")
