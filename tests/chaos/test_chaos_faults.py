"""Faults do what they say, and nothing is left of them when they are healed."""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from firesteel.processes import ProcessIdentity
from firesteel_chaos.controlled import ControlledCluster, ControlledNode
from firesteel_chaos.faults import TABLE, Fault, NoTargetError, Strike, World
from firesteel_chaos.faults.processes import children_of, limited
from firesteel_chaos.history import History

BY_KEY = {each.key: each for each in TABLE}


class FakeLine:
    def __init__(self) -> None:
        self.did: list[str] = []

    def cut(self) -> None:
        self.did.append("cut")

    def restore(self) -> None:
        self.did.append("restore")

    def drop(self) -> None:
        self.did.append("drop")

    def freeze(self, *directions: str) -> None:
        self.did.append(f"freeze {' '.join(directions)}")

    def disturb(self, **how: float) -> None:
        self.did.append(f"disturb {' '.join(sorted(how))}")


class FakeNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.address = f"http://{name}"
        self.pid: int | None = None
        self.alive = True
        self.did: list[str] = []
        self.clients = FakeLine()
        self.store = FakeLine()

    def start(self, **_: object) -> None:
        self.did.append("start")
        self.alive = True

    def kill(self) -> None:
        self.did.append("kill")
        self.alive = False

    def terminate(self) -> None:
        self.did.append("terminate")
        self.alive = False

    def pause(self) -> None:
        self.did.append("pause")

    def resume(self) -> None:
        self.did.append("resume")


class FakeCluster:
    cluster_id = "default"
    token = "secret"
    ca = None
    lease = 4.0

    def __init__(self, root: Path) -> None:
        self.data_dir = root / "data"
        self.made = [FakeNode("n1"), FakeNode("n2"), FakeNode("n3")]

    def nodes(self) -> list[FakeNode]:
        return self.made


class FakeWorld(World):
    """Its first node leads."""

    @property
    def fakes(self) -> list[FakeNode]:
        return cast("FakeCluster", self.cluster).made

    def leader(self) -> ControlledNode:
        return cast("ControlledNode", self.fakes[0])

    def follower(self) -> ControlledNode:
        return cast("ControlledNode", self.fakes[1])


class FakeRecords:
    def __init__(self) -> None:
        self.put_in: dict[str, bytes] = {}
        self.deleted: list[str] = []

    def put(self, path: str, value: bytes) -> None:
        self.put_in[path] = value

    def delete(self, path: str) -> None:
        self.deleted.append(path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeWorld]:
    with History(tmp_path / "history.jsonl") as history:
        cluster = cast("ControlledCluster", FakeCluster(tmp_path))
        made = FakeWorld(cluster, history, tmp_path, random.Random(1), patience=0.2)
        (made.home / "blobs").mkdir(parents=True)
        (made.home / "engines").mkdir()
        yield made


def strike_of(world: World, chosen: Fault) -> Strike:
    return Strike(world, chosen, 0.0, id=next(world.ids))


@pytest.mark.parametrize(
    ("key", "did"),
    [
        ("F1/kill-leader", {"n1": ["kill", "start"]}),
        ("F1/kill-follower", {"n2": ["kill", "start"]}),
        ("F2/kill-all", {"n1": ["kill", "start"], "n2": ["kill", "start"], "n3": ["kill", "start"]}),
        ("F4/pause-leader", {"n1": ["pause", "resume"]}),
        ("F4/pause-briefly", {"n1": ["pause", "resume"]}),
        ("F26/hand-over", {"n1": ["terminate", "start"]}),
    ],
)
def test_nodes_are_harmed_and_healed(world: FakeWorld, key: str, did: dict[str, list[str]]) -> None:
    strike = strike_of(world, BY_KEY[key])
    with BY_KEY[key].inject(world, strike):
        assert strike.begun
    assert {n.name: n.did for n in world.fakes if n.did} == did


@pytest.mark.parametrize("key", [each.key for each in TABLE if each.name in ("F6", "F7")])
def test_lines_are_whole_again_in_the_end(world: FakeWorld, key: str) -> None:
    chosen = BY_KEY[key]
    with chosen.inject(world, strike_of(world, chosen)):
        pass
    store = key.endswith("-store")
    harmed = [n for n in world.fakes if (n.store if store else n.clients).did]
    assert {n.name for n in harmed} == ({"n1", "n2", "n3"} if chosen.name == "F7" else {"n1"})
    for node in harmed:
        did = (node.store if store else node.clients).did
        assert len(did) > 1
        assert did[-1] == "restore"
        assert not (node.clients if store else node.store).did


def test_a_damaged_record_is_put_there_and_the_leader_killed(world: FakeWorld) -> None:
    records = world.records = FakeRecords()
    for key in ("F21/damaged-record", "F21/newer-record"):
        strike = strike_of(world, BY_KEY[key])
        with BY_KEY[key].inject(world, strike):
            assert not world.fakes[0].alive
        for cleanup in strike.cleanups:
            cleanup()
    torn, newer = records.put_in.values()
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(torn)
    assert json.loads(newer)["v"] == 99
    assert all(path.startswith("parked/") for path in records.deleted)


def test_leftovers_are_taken_away(world: FakeWorld) -> None:
    strike = strike_of(world, BY_KEY["F22/leftovers"])
    before = sorted(world.home.rglob("*"))
    with BY_KEY["F22/leftovers"].inject(world, strike):
        [(job, directory, driver)] = world.attempts()
        # It names this process, and not when it began.
        assert (driver.pid, driver.alive) == (os.getpid(), False)
        assert world.drivers() == []
        assert (directory / "spec.json").exists()
    for cleanup in strike.cleanups:
        cleanup()
    assert sorted(p for p in world.home.rglob("*") if p.name != "jobs") == before
    assert [e["job"] for e in world.history.events() if e.kind == "job"] == [job]


def test_somebody_else_has_the_lock_of_the_database(world: FakeWorld) -> None:
    file = world.cluster.data_dir / "cluster.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (x INT)")
    connection.close()
    writer = sqlite3.connect(file, timeout=0.05)
    chosen = BY_KEY["F11/locked"]
    with chosen.inject(world, strike_of(world, chosen)), pytest.raises(sqlite3.OperationalError, match="locked"):
        writer.execute("INSERT INTO t VALUES (1)")
    writer.execute("INSERT INTO t VALUES (1)")
    writer.commit()
    writer.close()


def test_half_a_file_becomes_whole_again(world: FakeWorld) -> None:
    chosen = BY_KEY["F10/torn-file"]
    with pytest.raises(NoTargetError), chosen.inject(world, strike_of(world, chosen)):
        pass
    file = world.home / "finished" / "ab" / "job.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"a": 1}')
    strike = strike_of(world, chosen)
    with chosen.inject(world, strike):
        assert file.read_text() == '{"a"'
    for cleanup in strike.cleanups:
        cleanup()
    assert file.read_text() == '{"a": 1}'


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_limit_holds_for_a_while(sleeper: subprocess.Popen[bytes]) -> None:
    before = resource.prlimit(sleeper.pid, resource.RLIMIT_FSIZE)
    with limited(sleeper.pid, resource.RLIMIT_FSIZE, 0):
        assert resource.prlimit(sleeper.pid, resource.RLIMIT_FSIZE) == (0, before[1])
    assert resource.prlimit(sleeper.pid, resource.RLIMIT_FSIZE) == before
    assert sleeper.pid in children_of(os.getpid())
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(NoTargetError), limited(sleeper.pid, resource.RLIMIT_FSIZE, 0):
        pass


def test_drivers_are_found_by_what_they_work_for(world: FakeWorld, sleeper: subprocess.Popen[bytes]) -> None:
    process = ProcessIdentity.of(sleeper.pid)
    assert process is not None
    for job, load in (("a" * 32, "batch"), ("b" * 32, "streaming"), ("c" * 32, "batch")):
        directory = world.home / "jobs" / job / "attempts" / "1"
        directory.mkdir(parents=True)
        (directory / "driver.json").write_text(json.dumps({"pid": process.pid, "started": process.started}))
        world.history.record("job", job=job, load=load, digest=None)
    (directory / "result.json").write_text("{}")
    assert [job[0] for job, _, _ in world.drivers()] == ["a", "b"]
    assert [job[0] for job, _, _ in world.drivers("batch", "script")] == ["a"]
    assert world.stream() == "b" * 32
    with pytest.raises(NoTargetError, match="script"):
        world.driver("script")
    chosen = BY_KEY["F13/kill-driver"]
    strike = strike_of(world, chosen)
    with chosen.inject(world, strike):
        assert sleeper.wait(10) == -9
    [struck] = [e for e in world.history.events() if e.kind == "fault"]
    assert struck["jobs"] == [struck["target"]]
