"""Leadership changes hands while clients work: by a wish, by a signal, by a death. Nothing is lost, and nothing happens twice.

Clients here find the nodes of their machine by themselves; no address is named.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.entrypoint.node_cluster import GRAPH, NodeCluster, Submitted, submitting
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperServer

from firesteel.client.cluster import ClusterClient
from firesteel.client.errors import ClusterError
from firesteel.status import JobStatus

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("handover")]

Clusters = Callable[[str], NodeCluster]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def clusters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Clusters]:
    with contextlib.ExitStack() as opened:

        def make(backend: str) -> NodeCluster:
            options = {}
            if backend == "zookeeper":
                server: ZooKeeperServer = request.getfixturevalue("zookeeper")
                options = {
                    "high-availability.type": "zookeeper",
                    "high-availability.zookeeper.quorum": server.hosts,
                    "high-availability.zookeeper.client.session-timeout": "4 s",
                    "high-availability.zookeeper.path.root": f"/{tmp_path.name}",
                    "high-availability.storageDir": str(tmp_path / "storage"),
                }
            cluster = NodeCluster(tmp_path, options)
            opened.callback(cluster.close)
            return cluster

        yield make


def jobs_of(client: ClusterClient) -> list[str]:
    return [job.job_id for job in client.jobs()]


def check(cluster: NodeCluster, seen: Submitted, *, at_least: int) -> None:
    """I1, I3, I4: whatever was acknowledged is there, once, and nothing else is."""
    assert seen.errors == []
    assert len(seen.acknowledged) >= at_least
    with cluster.client() as client:
        jobs = jobs_of(client)
    assert sorted(jobs) == sorted(seen.acknowledged)


def wait_for_more(seen: Submitted, count: int) -> None:
    enough = len(seen.acknowledged) + count
    until(
        lambda: len(seen.acknowledged) >= enough,
        lambda: f"clients got no further: {len(seen.acknowledged)} {seen.errors}",
    )


@pytest.mark.parametrize("backend", ["sqlite", "zookeeper"])
def test_hand_over_under_load(clusters: Clusters, backend: str) -> None:
    cluster = clusters(backend)
    for _ in range(3):
        cluster.start()
    first = cluster.leader()
    with submitting(cluster) as seen, cluster.client() as client:
        wait_for_more(seen, 5)
        epoch = cluster.status().epoch or 0
        for _ in range(3):
            done = client.hand_over()
            assert done.after != done.before
            assert done.epoch > epoch
            epoch = done.epoch
            wait_for_more(seen, 3)
    assert "hands leadership over" in first.said
    assert first.process.poll() is None
    check(cluster, seen, at_least=14)
    # Each node of the three answers still, the one that led first too.
    with contextlib.ExitStack() as opened:
        for node in cluster.nodes:
            # A follower learns of the next leader a moment after it leads, and says until then that it knows of none.
            deadline = time.monotonic() + 20
            while (told := cluster.status(node)).degraded and time.monotonic() < deadline:
                time.sleep(0.1)
            assert told.epoch == epoch
            assert not told.degraded
        again = opened.enter_context(cluster.client())
        assert again.job(seen.acknowledged[0]).status() in {JobStatus.CREATED, JobStatus.RUNNING}


@pytest.mark.parametrize("backend", ["sqlite", "zookeeper"])
def test_death_of_the_leader_under_load(clusters: Clusters, backend: str) -> None:
    """F1, F20: submissions whose answer died with the leader are repeated elsewhere, and happen once."""
    cluster = clusters(backend)
    for _ in range(3):
        cluster.start()
    cluster.leader()
    with submitting(cluster, threads=4) as seen:
        for _ in range(2):
            wait_for_more(seen, 8)
            cluster.leader().kill()
            wait_for_more(seen, 8)
    check(cluster, seen, at_least=32)


@pytest.mark.timeout(600)  # six starts of a node, one after another
@pytest.mark.parametrize("backend", ["sqlite", "zookeeper"])
def test_rolling_restart_under_load(clusters: Clusters, backend: str) -> None:
    """F26, I1, I3, I8: each node is ended by SIGTERM and replaced, and the job that runs keeps its process."""
    cluster = clusters(backend)
    old = [cluster.start() for _ in range(3)]
    with cluster.client() as client:
        running = client.submit(GRAPH, job_id="1" * 32)
        until(lambda: running.status() is JobStatus.RUNNING and bool(cluster.drivers()), lambda: "the job does not run")
        before = [pid for pid in cluster.drivers() if "driver" in command(pid)]
        assert before
        with submitting(cluster) as seen:
            for node in old:
                wait_for_more(seen, 5)
                assert node.terminate() == 0, node.said
                wait_for_more(seen, 3)
                cluster.start()
            wait_for_more(seen, 5)
        assert seen.errors == []
        assert sorted(jobs_of(client)) == sorted([*seen.acknowledged, "1" * 32])
        assert running.status() is JobStatus.RUNNING
        assert running.attempts()[-1].number == 1
    assert set(before) <= set(cluster.drivers())
    for node in old:
        assert "Traceback" not in node.said, node.said


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_hand_over_without_another_node(clusters: Clusters) -> None:
    """It is refused; forced, the cluster has a leader again after a few seconds, and says what happened."""
    cluster = clusters("sqlite")
    node = cluster.start()
    cluster.leader()
    with cluster.client() as client:
        epoch = cluster.status().epoch or 0
        with pytest.raises(ClusterError, match=r"No other node .* start one"):
            client.hand_over()
        assert cluster.status().epoch == epoch
        assert "hands leadership over" not in node.said
        with pytest.raises(ClusterError, match="no other node took over"):
            client.hand_over(force=True)
        assert cluster.status().epoch == epoch + 1
        client.submit(GRAPH)


def test_command(clusters: Clusters) -> None:
    cluster = clusters("sqlite")
    for _ in range(2):
        cluster.start()
    before = cluster.leader()
    done = firesteel(cluster, ["cluster", "handover"])
    assert done.returncode == 0, done.stderr
    after = cluster.leader()
    assert after is not before
    assert f"{after.address} leads now (epoch 2)" in done.stdout
    # Named in three ways, a dead one first.
    for several in (
        ["-m", f"127.0.0.1:9,{before.address},{after.address}"],
        ["-D", f"client.addresses=http://127.0.0.1:9 {before.address}"],
    ):
        refused = firesteel(cluster, ["cluster", "status", *several])
        assert refused.returncode == 6, refused.stdout + refused.stderr  # a node answered: it wants a token
    ended = firesteel(cluster, ["cluster", "stop"])
    assert ended.returncode == 0, ended.stderr
    assert after.process.wait(60) == 0
    assert f"1 other node of the cluster is still up: {before.address}" in ended.stdout
    assert cluster.leader() is before


def firesteel(cluster: NodeCluster, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FIRESTEEL_", "XDG_"))}
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from firesteel.cli.main import main; main()",
            *arguments,
            "-D",
            f"data.dir={cluster.configuration().data.dir}",
        ],
        env={**environ, "HOME": str(cluster.directory), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
