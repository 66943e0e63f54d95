"""A short game on real nodes and a real engine, with its control run, and one on a cluster that is only described."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import until

from firesteel.client.cluster import ClusterClient
from firesteel_chaos import invariants
from firesteel_chaos.cluster import StagedCluster
from firesteel_chaos.controlled import answers, leader_of, leading_node
from firesteel_chaos.game import Game, play
from firesteel_chaos.history import Event
from firesteel_chaos.own_cluster import OwnCluster, read_description
from firesteel_chaos.records import open_records
from firesteel_chaos.stage import LocalSettings, Stage, StoreAddress, local_stage

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("chaos"), pytest.mark.timeout(600)]

LEASE = 4.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("chaos")
    with local_stage(LocalSettings(root, StoreAddress("sqlite"), nodes=2, lease=LEASE)) as made:
        yield made


def test_nodes_are_killed_paused_and_cut_off(stage: Stage) -> None:
    cluster = stage.cluster
    assert isinstance(cluster, StagedCluster)
    until(lambda: answers(cluster), "nobody leads")
    first = leader_of(cluster)
    assert first is not None
    killed = leading_node(cluster)
    assert killed is not None
    killed.kill()
    assert (killed.alive, killed.pid) == (False, None)
    until(lambda: (leader_of(cluster) or first).epoch > first.epoch, "no other one leads")
    killed.start()
    assert killed.address in cluster.addresses

    paused = leading_node(cluster)
    assert paused is not None
    assert paused is not killed
    paused.pause()
    assert paused.alive
    until(lambda: (found := leading_node(cluster)) is not None and found is not paused, "no other one leads")
    paused.resume()

    cut = leading_node(cluster)
    assert cut is not None
    assert cut.clients is not None
    cut.clients.cut()
    # It still leads: its store is in reach. But nobody can ask it, nor can the other node.
    assert not answers(cluster)
    cut.clients.restore()
    until(lambda: answers(cluster), "the line was not restored")
    with ClusterClient(paused.address, token=cluster.token) as client:
        assert client.whoami().role == "admin"


def test_records_are_put_into_the_store_behind_the_clusters_back(stage: Stage) -> None:
    assert isinstance(stage.cluster, StagedCluster)
    records = open_records(stage.cluster.configuration)
    assert records is not None
    records.put("parked/nobody/graphs", b"one")
    records.put("parked/nobody/graphs", b"two")
    records.delete("parked/nobody/graphs")
    records.delete("parked/nobody/graphs")


PATIENT = invariants.Bounds(
    reachable=90, hiccup=90, cancel=90, starting=30, failover=90, clean=180, state=120, harm=90, fenced=30, engines=1
)
"""A machine that runs other tests too has no times to be judged by; what is right and wrong does not depend on them."""


def judged(events: list[Event]) -> list[str]:
    return [str(v) for v in invariants.check(events, bounds=PATIENT)]


def test_a_game_with_faults_holds_and_its_control_run_too(stage: Stage, tmp_path: Path) -> None:
    chosen = ("F1/kill-leader", "F4/pause-briefly", "F13/kill-driver", "F20/duplicates", "F22/leftovers")
    said: list[str] = []
    game = Game(tmp_path, tmp_path / "history.jsonl", seed=5, rounds=4, faults=chosen, streams=1, say=said.append)
    events = play(game, stage)
    assert judged(events) == [], said
    kinds = Counter(e.kind for e in events)
    assert kinds["round"] == kinds["recovered"] == 4
    assert kinds["fault"] == kinds["healed"] >= 4
    assert kinds["output"] >= 1
    written = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert len(written) == len(events)

    # Of another seed, because ids of jobs are drawn from it, and those of before belong to this cluster.
    control = Game(
        tmp_path / "control", tmp_path / "control.jsonl", seed=6, rounds=2, faults=chosen, streams=1, control=True
    )
    events = play(control, stage)
    assert judged(events) == []
    assert not [e for e in events if e.kind in ("fault", "healed")]


@pytest.mark.sample
def test_a_game_on_a_cluster_that_is_described(stage: Stage, tmp_path: Path) -> None:
    cluster = stage.cluster
    assert isinstance(cluster, StagedCluster)
    until(lambda: answers(cluster), "nobody leads")
    (tmp_path / "token").write_text(cluster.token)
    nodes = [
        {
            "name": node.name,
            "address": node.address,
            "commands": {"pause": f"kill -STOP {node.pid}", "resume": f"kill -CONT {node.pid}"},
        }
        for node in cluster.nodes()
    ]
    described = {"nodes": nodes, "token-file": str(tmp_path / "token"), "work-dir": str(tmp_path), "lease": LEASE}
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps(described))  # which is YAML
    with OwnCluster(read_description(file)) as own:
        game = Game(
            tmp_path, tmp_path / "history.jsonl", rounds=1, faults=["F4/pause-leader"], streams=0, scripts=False
        )
        events = play(game, Stage(own))
    assert judged(events) == []
    assert [e["variant"] for e in events if e.kind == "fault"] == ["pause-leader"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_game_that_is_ended_leaves_nothing_behind(tmp_path: Path, ending: signal.Signals) -> None:
    root = tmp_path / "game"
    command = [sys.executable, "-m", "firesteel_chaos.main", "run", "--rounds", "50", "--root", str(root)]
    log = tmp_path / "log"
    with log.open("w") as output:
        game = subprocess.Popen([*command, "--streams", "1"], stdout=output, stderr=output, start_new_session=True)
    try:
        until(lambda: "round 1" in log.read_text() or game.poll() is not None, log.read_text, 120)
        game.send_signal(ending)
        game.send_signal(ending)  # whoever is impatient
        assert game.wait(90) == 128 + ending, log.read_text()
    finally:
        game.kill()
        game.wait()
    until(lambda: not processes_of(root), lambda: f"left: {processes_of(root)}", 20)


def processes_of(root: Path) -> list[str]:
    """The command lines that name something below `root`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if (line := file.read_bytes().replace(b"\0", b" ").decode(errors="replace")) and str(root) in line:
                found.append(line)
    return found
