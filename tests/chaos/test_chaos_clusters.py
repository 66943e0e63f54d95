"""Clusters that a game is played on: how a description of one is read, what commands do, where lines lead."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.echo import echo_server

from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.history import History
from firesteel_chaos.main import make_command, open_stage
from firesteel_chaos.network import LineGroup, TcpProxy
from firesteel_chaos.own_cluster import CommandFailedError, OwnCluster, read_description
from firesteel_chaos.stage import StoreAddress

DESCRIPTION = """
token-file: {root}/token
work-dir: {root}/work
lease: 7
nodes:
  - name: a
    address: http://127.0.0.1:1/
    commands:
      kill: echo killed >> {root}/said
      start: echo started >> {root}/said
      pause: exit 3
      resume: "true"
      cut-store: echo cut >> {root}/said
      restore-store: echo restored >> {root}/said
  - name: b
    address: http://127.0.0.1:2
    commands: {{kill: "true", start: "true", pause: "true", resume: "true"}}
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    file = tmp_path / "cluster.yaml"
    file.write_text(DESCRIPTION.format(root=tmp_path))
    return file


def test_a_cluster_is_harmed_and_healed_by_commands(described: Path, tmp_path: Path) -> None:
    cluster = OwnCluster(read_description(described))
    assert (cluster.token, cluster.lease, cluster.cluster_id) == ("secret", 7, "default")
    assert cluster.addresses == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    # What only one of the nodes can, is not played: which node leads nobody knows before.
    assert cluster.abilities == {"kill", "pause"}
    node = cluster.nodes()[0]
    node.kill()
    assert not node.alive
    node.start()
    node.start()
    assert node.alive
    assert node.store is not None
    node.store.cut()
    node.store.restore()
    assert (tmp_path / "said").read_text().split() == ["killed", "started", "cut", "restored"]
    with pytest.raises(CommandFailedError, match="pause of a ended with code 3"):
        node.pause()


def test_a_cluster_that_nobody_leads_is_not_played_on(described: Path) -> None:
    with pytest.raises(ChaosError, match="no node reports a leader"), OwnCluster(read_description(described)):
        pass


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("kill: echo", "kil: echo", "unknown commands: \\['kil'\\]"),
        ("token-file", "tokenfile", "tokenfile"),
        ("lease: 7", "lease: -1", "lease"),
        ("lease: 7", "harm-processes: true", "needs data-dir"),
        ("nodes:", "nodes: []\nothers:", "nodes"),
        ("- name: a", "- {name: a", "does not describe a cluster"),
    ],
)
def test_a_description_that_is_wrong_is_refused(described: Path, before: str, after: str, said: str) -> None:
    described.write_text(described.read_text().replace(before, after))
    with pytest.raises(ChaosError, match=said):
        read_description(described)


def test_nodes_find_the_store_at_the_ends_of_their_lines(tmp_path: Path) -> None:
    url = StoreAddress("postgresql", "postgresql://me:a%2Fb@h1:5433,h2/db?sslmode=disable")
    assert url.servers == [("h1", 5433), ("h2", 5432)]
    assert url.options(["127.0.0.1:1", "127.0.0.1:2"], tmp_path, 4) == {
        "high-availability.sql.url": "postgresql://me:a%2Fb@127.0.0.1:1,127.0.0.1:2/db?sslmode=disable"
    }
    ensemble = StoreAddress("zookeeper", "z1:1,z2:2")
    assert ensemble.servers == [("z1", 1), ("z2", 2)]
    assert ensemble.options(["a:1"], tmp_path, 4)["high-availability.zookeeper.quorum"] == "a:1"
    assert StoreAddress("sqlite").servers == []
    with pytest.raises(ChaosError, match="--store"):
        _ = StoreAddress("zookeeper").servers


def test_lines_of_a_group_are_cut_and_restored_together() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = server.getsockname()
        with LineGroup([TcpProxy(target), TcpProxy(target)]) as group:
            ends = [(a.partition(":")[0], int(a.partition(":")[2])) for a in group.addresses]
            for end in ends:
                socket.create_connection(end).close()
            group.cut()
            for end in ends:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(end)
            group.restore()
            for end in ends:
                socket.create_connection(end).close()


def _sent_back(proxy: TcpProxy, content: bytes) -> float:
    """The seconds until all of it has come back."""
    began = time.monotonic()
    with socket.create_connection((proxy.host, proxy.port)) as connection:
        threading.Thread(target=connection.sendall, args=(content,), daemon=True).start()
        left = len(content)
        while left:
            left -= len(connection.recv(65536))
    return time.monotonic() - began


def test_a_bad_line_is_late_and_narrow_until_it_is_restored() -> None:
    with echo_server() as address, TcpProxy(address) as proxy:
        proxy.disturb(loss=0.5)
        # Three of four are late; that none of thirty is does not happen.
        assert any(_sent_back(proxy, b"x") >= 0.25 for _ in range(30))
        proxy.disturb(bytes_per_second=100_000)
        assert _sent_back(proxy, bytes(50_000)) >= 0.5
        proxy.restore()
        proxy.disturb(delay=0.2)
        assert _sent_back(proxy, b"x") >= 0.4
        proxy.restore()
        _sent_back(proxy, b"x")


def test_the_commands_list_faults_and_judge_a_history_again(tmp_path: Path) -> None:
    command = make_command(open_stage)
    listed = CliRunner().invoke(command, ["faults"])
    assert listed.exit_code == 0
    assert "F6/cut-store" in listed.output
    file = tmp_path / "history.jsonl"
    with History(file) as history:
        history.record("round", number=1, seed=1, plan={}, control=False)
        history.record("recovered", round=1, seconds=0.5)
        history.record("settled", open=[])
    assert CliRunner().invoke(command, ["check", str(file)]).exit_code == 0
    with History(file) as history:
        history.record("expectation", fault=None, what="the cluster answers", held=False, invariant="I9")
    judged = CliRunner().invoke(command, ["check", str(file), "--json", "--report", str(tmp_path / "report.json")])
    assert judged.exit_code == 1
    assert "I9" in judged.output
    assert json.loads((tmp_path / "report.json").read_text())


def test_a_stage_that_cannot_be_opened_is_an_error_of_the_harness(tmp_path: Path) -> None:
    asked = CliRunner().invoke(make_command(open_stage), ["run", "--backend", "zookeeper", "--root", str(tmp_path)])
    assert asked.exit_code == 3
    assert "--store" in asked.output
