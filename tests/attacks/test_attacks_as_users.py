"""Owners as users of the operating system (`security.sandbox: user`): a node of root, and jobs of two users that the test makes
(S22, S37)."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import site
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.attacked_node import UNLIMITED, AttackedNode, Caller, People, until
from tests.attacks.test_attacks_by_jobs import CONNECT

import firesteel
from firesteel.config.sections import Role
from firesteel.engines.record import EngineDirectory
from firesteel.sandbox.owners import below
from firesteel.sandbox.users import OsUser, closed_way, user_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("attacks-as-users"),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("useradd") is None, reason="needs root and useradd"),
]

WHO = b"""
import os
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()

@udf("long")
def uid(_):
    return os.getuid()

tried("signal to the engine of bob", lambda: os.kill(places["engine"], 0))
outcomes["groups"] = sorted({os.getgid(), *os.getgroups()})
outcomes["home"] = os.path.expanduser("~")
outcomes["uids"] = [os.getuid(), os.geteuid(), spark.range(1).select(uid("id")).collect()[0][0]]
print("OUTCOMES" + json.dumps(outcomes), flush=True)
"""


@contextlib.contextmanager
def made_user() -> Iterator[OsUser]:
    name = f"fst-{secrets.token_hex(5)}"
    subprocess.run(["useradd", "--create-home", "--user-group", name], check=True)
    try:
        yield user_of(name, {})
    finally:
        subprocess.run(["userdel", "--remove", name], check=True, stderr=subprocess.DEVNULL)


def python_for_all(directory: Path) -> str:
    """A Python that other users can run: this one, or one of the system with the packages of this one."""
    if closed_way(os.path.realpath(sys.executable)) is None:
        return sys.executable
    python = f"/usr/bin/python3.{sys.version_info.minor}"
    packages = [str(Path(firesteel.__file__).parent.parent), *site.getsitepackages()]
    if not Path(python).exists() or any(closed_way(p) is not None for p in packages):
        pytest.skip(f"needs a Python that other users can run: {python}, and a checkout that they can read")
    subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True)
    (there,) = directory.glob("lib/python3*/site-packages")
    (there / "packages.pth").write_text("\n".join(packages))
    return str(directory / "bin" / "python")


@dataclass
class Scene:
    node: AttackedNode
    people: People
    data: Path
    alice: OsUser
    bob: OsUser

    def ended(self, caller: Caller, job: str, state: str = "FINISHED") -> None:
        def over() -> str:
            seen = str(caller.get(f"/jobs/{job}").json()["state"])
            return seen if seen in ("FINISHED", "FAILED", "CANCELED") else ""

        assert until(over, 300) == state, caller.get(f"/jobs/{job}/exceptions").text

    def batch(self, caller: Caller, out: Path) -> None:
        graph = {
            "name": "batch",
            "vertices": [
                {"kind": "sql", "name": "q", "query": "SELECT id FROM range(10)"},
                {"kind": "sink", "name": "o", "input": "q", "format": "parquet", "path": str(out), "mode": "append"},
            ],
        }
        self.ended(caller, caller.submit(graph))

    def engine_of(self, user: OsUser) -> int:
        records = EngineDirectory(self.node.cluster).all()
        pids = [r.process.pid for r in records if r.process is not None and uids(r.process.pid) == {user.uid}]
        assert pids, [(r.spec.owner, r.process and uids(r.process.pid)) for r in records]
        return pids[0]


def is_gone(path: Path) -> bool:
    return not path.exists()


def uids(pid: int) -> set[int]:
    """Real, effective, saved and of the file system."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {int(n) for line in lines if line.startswith("Uid:") for n in line.split()[1:]}


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as opened:
        # Not where pytest keeps its directories: those are closed to other users.
        root = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="firesteel-users-")))
        root.chmod(0o755)
        alice, bob = opened.enter_context(made_user()), opened.enter_context(made_user())
        data = root / "data"
        data.mkdir()
        data.chmod(0o1777)
        overrides = {
            "engine.master": "local[1]",
            "engine.memory": "640m",
            "engine.reuse": "false",
            "security.sandbox": "user",
            "security.sandbox.users": f"alice={alice.name} bob={bob.name}",
            "security.sandbox.write-paths": str(data),
            "spark.sql.shuffle.partitions": "2",
            **UNLIMITED,
        }
        node = AttackedNode(root / "state", overrides)
        node.python = python_for_all(root / "python")
        opened.enter_context(node)
        yield Scene(node, opened.enter_context(node.people()), data, alice, bob)
    assert "Traceback" not in node_log(node), node_log(node)[-4000:]


def node_log(node: AttackedNode) -> str:
    return node.log.read_text() if node.log.exists() else ""


def test_engines_are_processes_of_their_owners_and_rows_are_their_files(scene: Scene) -> None:
    for caller, user, name in ((scene.people.alice, scene.alice, "a"), (scene.people.bob, scene.bob, "b")):
        scene.batch(caller, scene.data / name)
        assert uids(scene.engine_of(user)) == {user.uid}
        files = list((scene.data / name).rglob("*"))
        assert any(p.suffix == ".parquet" for p in files)
        assert {p.stat().st_uid for p in files} == {user.uid}
        staging = scene.data / name / "_firesteel"
        until(partial(is_gone, staging))


def test_a_program_is_its_owners_user_and_gets_at_nothing_of_the_node_or_of_another_owner(scene: Scene) -> None:
    scene.batch(scene.people.bob, scene.data / "b2")
    configuration = scene.node.configuration
    secret = {
        "announcement": scene.node.cluster / "rest.json",
        "tokens": configuration.security.tokens_file,
        "store": configuration.data.dir / "cluster.db",
        "checkpoint of bob": Path(below(configuration.state.checkpoints_dir, "bob")) / "secret",
        "file of bob": Path(scene.bob.home) / "secret",
    }
    for name in ("checkpoint of bob", "file of bob"):
        secret[name].write_text("of bob")
        os.chown(secret[name], scene.bob.uid, scene.bob.gid)
        secret[name].chmod(0o600)
    places = {
        "secret": {name: str(path) for name, path in secret.items()},
        "plant": str(scene.node.cluster / "jobs" / "planted"),
        "node": scene.node.pid,
        "engine": scene.engine_of(scene.bob),
        "socket": json.loads(secret["announcement"].read_text())["socket"],
        "data": str(scene.data),
    }
    caller = scene.people.alice
    key = caller.upload(CONNECT.rpartition(b"print(")[0] + WHO)
    script = {"kind": "script", "name": "s", "file": f"blob:{key}/p.py", "args": [json.dumps(places)]}
    job = caller.submit({"name": "tries", "vertices": [script]})
    scene.ended(caller, job)
    outcomes: dict[str, Any] = json.loads(caller.get(f"/jobs/{job}/logs/stdout").text.partition("OUTCOMES")[2])
    assert outcomes.pop("uids") == [scene.alice.uid] * 3
    assert outcomes.pop("groups") == [scene.alice.gid]
    assert outcomes.pop("home") == scene.alice.home
    assert (outcomes.pop("own file"), outcomes.pop("own rows"), outcomes.pop("pandas")) == (4, 100, 10)
    through = {n: o for n, o in outcomes.items() if o != "refused" and "FILE_NOT_EXIST" not in str(o)}
    assert not through
    assert len(outcomes) > 20
    os.kill(scene.node.pid, 0)


def test_directories_of_the_node_can_be_entered_and_nothing_in_them_be_read(scene: Scene) -> None:
    """By modes alone: Landlock stands before them as well, where there is one."""
    scene.batch(scene.people.alice, scene.data / "a3")
    own, open_to_others, ways = 0, [], 0
    for above, directories, files in os.walk(scene.node.directory):
        for path in [Path(above, name) for name in files] + [Path(above)]:
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            if path.is_dir() and mode == 0o711 and status.st_uid == 0:
                ways += 1
            elif mode & 0o077 and not stat.S_ISLNK(status.st_mode):
                open_to_others.append((str(path), oct(mode)))
        theirs = [d for d in directories if Path(above, d).lstat().st_uid != 0]
        own += len(theirs)
        # What is in a directory of a user's own is that user's.
        assert all(stat.S_IMODE(Path(above, d).lstat().st_mode) == 0o700 for d in theirs)
        directories[:] = [d for d in directories if d not in theirs]
    assert not open_to_others
    assert own > 3
    assert ways > 5


def test_a_stream_is_stopped_with_a_savepoint_that_is_its_owners(scene: Scene) -> None:
    alice = scene.people.alice
    graph = {
        "name": "stream",
        "mode": "streaming",
        "vertices": [
            {"kind": "source", "name": "r", "format": "rate", "options": {"rowsPerSecond": "10"}},
            {"kind": "sql", "name": "q", "query": "SELECT value % 3 AS k, count(*) AS n FROM r GROUP BY value % 3"},
            {"kind": "sink", "name": "o", "input": "q", "format": "noop", "output_mode": "update"},
        ],
    }
    job = alice.submit(graph)

    def batches() -> bool:
        counts = alice.get(f"/jobs/{job}/checkpoints").json().get("counts", {})
        return int(counts.get("completed", 0)) > 0

    until(batches, 240)
    trigger = alice.post(f"/jobs/{job}/stop", {"drain": False}).json()["request-id"]
    scene.ended(alice, job)

    def location() -> str:
        operation = alice.get(f"/jobs/{job}/savepoints/{trigger}").json().get("operation") or {}
        assert "failure-cause" not in operation, operation
        return str(operation.get("location", ""))

    saved = Path(str(until(location, 60)))
    assert saved.parent == Path(below(scene.node.configuration.state.savepoints_dir, "alice"))
    assert {p.lstat().st_uid for p in [saved.parent, saved, *saved.rglob("*")]} == {scene.alice.uid}


def test_an_owner_without_a_user_is_told_what_to_do(scene: Scene) -> None:
    query = {"kind": "sql", "name": "q", "query": "SELECT 1 AS id"}
    sink = {"kind": "sink", "name": "o", "input": "q", "format": "parquet", "path": f"{scene.data}/x", "mode": "append"}
    graph = {"name": "x", "vertices": [query, sink]}
    with contextlib.closing(scene.node.caller(scene.node.new_token("x", Role.OPERATOR, "fst-nobody"))) as stranger:
        answer = stranger.post("/jobs", {"graph": graph})
    assert answer.status == 400
    assert "useradd --create-home fst-nobody" in answer.errors[0]
    assert "security.sandbox.users" in answer.errors[0]
