"""`firesteel cluster`: starting, stopping and looking at nodes, and the tokens of those who are elsewhere."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Command
from tests.client.fake_cluster import Node, serving
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, ONE, TWO, put

from firesteel.cli import exit_codes
from firesteel.client.discovery import LocalCluster
from firesteel.config import load_configuration
from firesteel.config.fingerprint import fingerprint
from firesteel.fs.files import private_dir, write_json
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.resourcemanager.state import EngineState
from firesteel.status import JobStatus
from firesteel.types import JobID

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


class LocalNode:
    """A process that ends when the cluster is told to end, and the file that says that it serves."""

    def __init__(self, desk: Desk, address: str, *, cluster_id: str = "default") -> None:
        self.child = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "up\n"
        found = ProcessIdentity.of(self.child.pid)
        assert found is not None
        self.process = found
        self._address = address
        directory = private_dir(Path(os.environ["FIRESTEEL_DATA_DIR"]) / "clusters" / cluster_id)
        self.file = directory / "rest.json"
        self.announce(woken=False)

        async def shut_down() -> None:
            self.child.kill()
            threading.Thread(target=self.child.wait, daemon=True).start()  # else it stays as a zombie

        desk.gateway.shut_down = shut_down  # type: ignore[method-assign]

    def announce(self, **more: Any) -> None:
        identity = {"pid": self.process.pid, "started": self.process.started}
        settings = fingerprint(load_configuration())
        write_json(self.file, {"address": self._address, "socket": None, "settings": settings, **identity, **more})

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()


@pytest.fixture
def local(command: Command, desk: Desk, rest: Node) -> Iterator[LocalNode]:
    made = LocalNode(desk, rest.address)
    yield made
    made.close()


# -- looking --------------------------------------------------------------------------------------------------------


def test_nothing_runs_here(command: Command) -> None:
    said = command("cluster", "status")
    assert said.code == exit_codes.OK
    assert said.out.startswith("No cluster is running here (cluster default")
    assert command("cluster", "status", "--json").json == {"running": False, "cluster_id": "default"}
    assert command("cluster", "stop").out == "No cluster is running here.\n"
    assert command("cluster", "stop", "--json").json == []
    assert command("cluster", "stop", "--all").out == "No cluster is running here.\n"
    assert list(Path(os.environ["FIRESTEEL_DATA_DIR"]).iterdir()) == []  # and nothing was made to find that out


def test_status(command: Command, desk: Desk, rest: Node) -> None:
    put(desk, ONE)
    put(desk, TWO, status=JobStatus.FAILED)
    engine = EngineOverview("e1", "local[2]", "1g", 2, 8, 7, EngineState.READY, 1.0, "localhost:15002")
    desk.gateway.resources = ResourceOverview((engine,), 3, 0)
    said = command("cluster", "status", "-m", rest.address)
    assert said.code == exit_codes.OK
    text = " ".join(said.out.split())
    for fact in (
        f"cluster default {rest.address}",
        f"process {os.getpid()} on",
        "high availability sql",
        "7 of 8 free on 1 engine",
        "jobs 1 RUNNING, 1 FAILED",
        "queue 3 jobs waiting",
        "e1 local[2] 1g 2 8 7 READY localhost:15002",
    ):
        assert fact in text
    found = command("cluster", "status", "--json", "-m", rest.address).json
    assert (found["running"], found["cluster_id"], found["jobs"]) == (True, "default", {"RUNNING": 1, "FAILED": 1})
    assert (found["slots"], found["free_slots"], found["engines"][0]["engine_id"]) == (8, 7, "e1")


def test_status_of_a_cluster_with_several_workers(command: Command, desk: Desk, rest: Node) -> None:
    put(desk, ONE, status=JobStatus.CREATED)
    put(desk, TWO, status=JobStatus.CREATED)
    one = EngineOverview("e1", "local[2]", "1g", 2, 8, 7, EngineState.READY, 1.0, "a:15002", worker_name="rack-1")
    two = EngineOverview("e2", "local[2]", "1g", 2, 8, 7, EngineState.READY, 1.0, "b:15002", worker_name="rack-2")
    why = "worker rack-3, which does not answer"
    desk.gateway.resources = ResourceOverview((one, two), 2, 0, {JobID(ONE): why, JobID(TWO): why})
    text = " ".join(command("cluster", "status", "-m", rest.address).out.split())
    assert f"queue 2 jobs waiting 2 jobs for {why}" in text
    assert "e2 rack-2 local[2] 1g" in text


def test_local_cluster_is_found(command: Command, desk: Desk, local: LocalNode) -> None:
    put(desk, ONE)
    assert command("cluster", "status", "--json").json["jobs"] == {"RUNNING": 1}
    # Whatever it was started with: who only looks does not mind.
    local.announce(woken=True, settings={"engine.memory": "other"})
    assert [row[0] for row in command("list").rows] == [ONE]


# -- stopping -------------------------------------------------------------------------------------------------------


def test_stop_waits_for_the_process_and_tells_what_goes_on(command: Command, desk: Desk, local: LocalNode) -> None:
    put(desk, ONE)
    put(desk, TWO, status=JobStatus.FINISHED)
    said = command("cluster", "stop")
    assert said.code == exit_codes.OK
    assert "has ended.\n1 job keeps running; the next node to start takes it over.\n" in said.out
    assert not local.process.alive
    assert command("cluster", "stop").out == "No cluster is running here.\n"


def test_stop_of_a_cluster_elsewhere(command: Command, desk: Desk, rest: Node) -> None:
    said = command("cluster", "stop", "-m", rest.address)
    assert said.out == f"Cluster default at {rest.address}: the leader was told to end.\n"
    assert desk.gateway.asked == [("shut down",)]


def test_stop_is_for_admins(command: Command, desk: Desk) -> None:
    with serving(desk.client(ALICE).app) as node:
        said = command("cluster", "stop", "-m", node.address)
    assert said.code == exit_codes.DENIED
    assert desk.gateway.asked == []


def test_stop_of_all_clusters_of_the_data_directory(
    command: Command, desk: Desk, local: LocalNode, tmp_path: Path
) -> None:
    other_desk = Desk(tmp_path / "other", {"high-availability.cluster-id": "other"})
    with serving(other_desk.client(ADMIN).app) as node:
        other = LocalNode(other_desk, node.address, cluster_id="other")
        try:
            stopped = command("cluster", "stop", "--all", "--json").json
        finally:
            other.close()
    assert [s["cluster_id"] for s in stopped] == ["default", "other"]
    assert [s["pid"] for s in stopped] == [local.process.pid, other.process.pid]
    assert not local.process.alive


# -- starting -------------------------------------------------------------------------------------------------------


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Nodes that would have been started."""
    calls: list[dict[str, Any]] = []

    def start_node(given: Any, **how: Any) -> LocalCluster:
        calls.append({"overrides": dict(given.overrides), **how})
        return LocalCluster("http://127.0.0.1:8081", None, ProcessIdentity(4711, "then"))

    monkeypatch.setattr("firesteel.cli.nodes.start_node", start_node)
    return calls


def test_start_says_how_to_talk_to_it(command: Command, starts: list[dict[str, Any]]) -> None:
    said = command("cluster", "start", "-Drest.port=8081")
    assert said.code == exit_codes.OK
    assert said.out.startswith("Cluster default serves at http://127.0.0.1:8081 (process 4711).\n")
    assert "clusters/default/node.log" in said.out
    assert 'FLINK_REST_CLIENT_HEADERS="Authorization:Bearer $TOKEN" flink list -m 127.0.0.1:8081' in said.out
    assert "secret" not in said.out
    assert starts == [{"overrides": {"rest.port": "8081"}, "woken": False}]
    assert command("cluster", "start", "--json").json["pid"] == 4711


def test_start_of_one_that_runs(command: Command, local: LocalNode, starts: list[dict[str, Any]]) -> None:
    said = command("cluster", "start")
    assert (said.code, starts) == (exit_codes.OK, [])
    assert said.out.endswith(f"(process {local.process.pid}).\n")
    assert "is already running" in said.out
    assert "other settings: engine.memory" in command("cluster", "start", "-Dengine.memory=2g").out
    found = command("cluster", "start", "--json").json
    assert (found["started"], found["pid"]) == (False, local.process.pid)


def test_one_that_was_woken_up_makes_room_for_one_that_stays(
    command: Command, desk: Desk, local: LocalNode, starts: list[dict[str, Any]]
) -> None:
    local.announce(woken=True)
    put(desk, ONE)
    said = command("cluster", "start")
    assert (said.code, starts) == (exit_codes.OK, [])
    assert "it ends 5 min after its last job" in said.out
    put(desk, ONE, status=JobStatus.FINISHED)
    assert "serves at" in command("cluster", "start").out
    assert len(starts) == 1
    assert not local.process.alive


def test_foreground_becomes_the_node_and_shows_no_secrets(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class BecameError(Exception):
        pass

    given: list[Any] = []
    stdin = os.dup(0)

    def execv(path: str, argv: list[str]) -> None:
        given.extend([path, argv, os.read(0, 10_000)])
        raise BecameError

    monkeypatch.setattr("os.execv", execv)
    config = tmp_path / "config.yaml"
    config.write_text("rest.port: 0\n")
    try:
        with pytest.raises(BecameError):
            command("cluster", "start", "--foreground", "--config", str(config), "-Dclient.token=hidden")
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
    path, argv, definitions = given
    assert path == argv[0] == sys.executable
    assert argv[1:] == ["-P", "-m", "firesteel.entrypoint", "--config", str(config), "--definitions-from-stdin"]
    assert json.loads(definitions) == {"client.token": "hidden"}


@pytest.mark.slow
def test_life_of_a_real_node(command: Command) -> None:
    try:
        started = command("cluster", "start", "--json", "-Drest.port=0").json
        assert started["started"] is True
        assert command("cluster", "start", "--json").json["pid"] == started["pid"]
        seen = command("cluster", "status", "--json").json
        assert (seen["leader"], seen["node"]["pid"]) == (started["address"], started["pid"])
        assert command("list", "--json").json == []
        token = command("cluster", "token", "create", "ci").out.strip()
        there = ["-m", started["address"]]
        assert command("list", *there, f"-Dclient.token={token}").code == exit_codes.OK
        assert command("list", *there, "-Dclient.token=fst_wrong").code == exit_codes.DENIED
        assert command("list", *there).code == exit_codes.DENIED
        assert command("cluster", "stop", *there, f"-Dclient.token={token}").code == exit_codes.DENIED
        assert command("status", "f" * 32).code == exit_codes.FAILED
    finally:
        said = command("cluster", "stop", "--json")
    assert [s["pid"] for s in said.json] == [started["pid"]]
    assert ProcessIdentity.of(started["pid"]) is None


@pytest.mark.slow
def test_second_node_joins_takes_over_and_is_known_by_its_log(command: Command) -> None:
    try:
        first = command("cluster", "start", "--json", "-Drest.port=0").json
        second = command("node", "start", "--json").json
        assert second["started"] is True
        assert second["pid"] != first["pid"]
        assert second["address"] != first["address"]
        assert Path(second["log"]).stat().st_size > 0
        assert second["log"] != first["log"]
        nodes = command("cluster", "status", "--json").json["nodes"]
        assert {(n["pid"], n["address"], n["log"]) for n in nodes} == {
            (n["pid"], n["address"], n["log"]) for n in (first, second)
        }
        assert [n["pid"] for n in nodes if n["leads"]] == [first["pid"]]
        table = command("cluster", "status").out
        assert [second["address"], str(second["pid"]), second["log"]] in [line.split() for line in table.splitlines()]
        refused = command("node", "start", "-Djobstore.max-capacity=7")
        assert refused.code == exit_codes.FAILED
        assert "other settings (jobstore.max-capacity)" in refused.err
        (ended,) = command("cluster", "stop", "--json").json
        assert (ended["pid"], ended["other_nodes"]) == (first["pid"], [second["address"]])
        deadline = time.monotonic() + 60
        while command("cluster", "status", "--json").json.get("leader") != second["address"]:
            assert time.monotonic() < deadline
        assert command("list", "--json").json == []
    finally:
        ends = [command("cluster", "stop", "--json").json for _ in range(2)]
    assert [e["pid"] for end in ends for e in end] == [second["pid"]]
    assert ProcessIdentity.of(second["pid"]) is None


def test_node_that_could_share_nothing_is_refused(command: Command, local: LocalNode) -> None:
    refused = command("node", "start", "-Dhigh-availability.type=none")
    assert refused.code == exit_codes.FAILED
    assert "high-availability.type is none" in refused.err


# -- tokens ---------------------------------------------------------------------------------------------------------


def test_tokens_are_made_listed_and_revoked(command: Command) -> None:
    assert "No tokens." in command("cluster", "token", "list").out
    made = command("cluster", "token", "create", "ci")
    assert made.code == exit_codes.OK
    token = made.out.strip()
    assert token.startswith("fst_")
    file = Path(os.environ["FIRESTEEL_DATA_DIR"]) / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token.rpartition("_")[2] not in file.read_text()

    chief = command("cluster", "token", "create", "chief", "--role", "admin", "--expires", "30 d", "--json").json
    assert (chief["role"], chief["owner"], chief["token"][:4]) == ("admin", "*", "fst_")
    listed = command("cluster", "token", "list", "--json").json
    assert [(t["name"], t["role"], t["owner"]) for t in listed] == [("ci", "operator", "ci"), ("chief", "admin", "*")]
    assert "token" not in listed[0]
    table = command("cluster", "token", "list").rows
    assert [row[:4] for row in table] == [[t["id"], t["name"], t["role"], t["owner"]] for t in listed]
    assert table[0][-1] == "never"

    said = command("cluster", "token", "revoke", listed[0]["id"])
    assert said.out == f"Token {listed[0]['id']} (ci) is revoked.\n"
    assert [t["name"] for t in command("cluster", "token", "list", "--json").json] == ["chief"]
    said = command("cluster", "token", "revoke", listed[0]["id"])
    assert said.code == exit_codes.FAILED
    assert "no such token" in said.err
    assert command("cluster", "token", "revoke", chief["id"][:10], "--json").json == {"revoked": chief["id"]}


@pytest.mark.parametrize(
    "args",
    [
        ["create"],
        ["create", "x", "--role", "king"],
        ["create", "x", "--expires", "soon"],
        ["create", "x", "--expires", "0 s"],
        ["create", "x", "--expires", "99999999999 d"],
        ["create", "x", "--owner", "*"],  # an operator for everybody
        ["create", "\x1b[0m"],
        ["revoke"],
    ],
)
def test_tokens_that_cannot_be(command: Command, args: list[str]) -> None:
    said = command("cluster", "token", *args)
    assert (said.code, said.out) == (exit_codes.USAGE, "")
    assert "No tokens." in command("cluster", "token", "list").out


def test_revoking_needs_enough_digits(command: Command) -> None:
    for n in range(17):  # so that two ids begin alike
        command("cluster", "token", "create", f"t{n}")
    ids = [t["id"] for t in command("cluster", "token", "list", "--json").json]
    first = next(i[0] for i in ids if sum(j[0] == i[0] for j in ids) > 1)
    said = command("cluster", "token", "revoke", first)
    assert said.code == exit_codes.FAILED
    assert "give more digits" in said.err
    assert len(command("cluster", "token", "list", "--json").json) == 17


def test_second_token_of_a_name_is_made_and_the_first_is_noted(command: Command) -> None:
    assert not command("cluster", "token", "create", "ci").err
    assert not command("cluster", "token", "create", "cd").err
    second = command("cluster", "token", "create", "ci")
    assert second.code == exit_codes.OK
    assert second.out.startswith("fst_")
    assert second.out.count("\n") == 1  # TOKEN=$(...) has the token alone
    assert second.err == (
        "note: another token is called 'ci' too; it stays valid until `firesteel cluster token revoke`.\n"
    )
    assert "note: 2 other tokens are called 'ci' too" in command("cluster", "token", "create", "ci").err


def test_tokens_that_nobody_asks_for_are_noted(command: Command) -> None:
    said = command("cluster", "token", "list", "-Dsecurity.rest.authentication=none")
    assert "no token is required" in said.err


def test_damaged_tokens_file_is_an_error_in_words(command: Command) -> None:
    file = Path(os.environ["FIRESTEEL_DATA_DIR"]) / "tokens.json"
    file.write_text("{")
    file.chmod(0o600)
    said = command("cluster", "token", "list")
    assert said.code == exit_codes.FAILED
    assert "tokens.json cannot be used" in said.err
