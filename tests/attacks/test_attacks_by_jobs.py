"""Code of jobs against the node that runs them and against other owners: what a sandbox keeps them from, and what it does not
(S21, S22, S37, S44). The jobs are real ones: programs with and without a JVM of their own, queries, functions, streams."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.attacked_node import UNLIMITED, AttackedNode, Caller, People, until
from tests.support.engine_shape import QUICK_JAVA
from tests.support.sleeper import sleeper

from firesteel.sandbox import landlock
from firesteel.sandbox.owners import below

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("attacks-by-jobs"),
    pytest.mark.skipif(
        landlock.version() < landlock.SCOPES_VERSION, reason="needs Landlock with scopes: Linux 6.12 or later"
    ),
]

START = b"""
import json, os, signal, socket, subprocess, sys

places = json.loads(sys.argv[1])
outcomes = {}

def tried(name, function):
    try:
        outcomes[name] = f"done: {function()}"
    except Exception as error:
        outcomes[name] = "refused" if "ermission" in str(error) or "not permitted" in str(error) else repr(error)[:300]
"""
FILES = b"""
for name, path in places["secret"].items():
    tried(f"read {name}", lambda: open(path).read())
    tried(f"write {name}", lambda: open(path, "a").write("x"))
    tried(f"remove {name}", lambda: os.unlink(path))
    tried(f"{name} by a subprocess", lambda: subprocess.run(["cat", path], capture_output=True, check=True, text=True)
        if os.access("/bin/cat", os.X_OK) and subprocess.run(["cat", path], capture_output=True).returncode == 0
        else (_ for _ in ()).throw(PermissionError("Permission denied")))
tried("plant", lambda: open(places["plant"], "w"))
"""
PROCESS = b"""
tried("kill", lambda: os.kill(places["node"], signal.SIGKILL))
tried("environment of the node", lambda: open(f"/proc/{places['node']}/environ").read())
tried("memory of the node", lambda: open(f"/proc/{places['node']}/mem", "rb").read(1))
tried("files of the node", lambda: os.listdir(f"/proc/{places['node']}/cwd/"))
def ask():
    line = socket.socket(socket.AF_UNIX)
    line.connect(chr(0) + places["socket"][1:])
    return line.recv(100)
tried("token of the owner", ask)
outcomes["own file"] = open("mine.txt", "w").write("mine")
"""
TRY = START + FILES + PROCESS
OF_THE_NODES_USER = (
    START
    + PROCESS
    + b"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(100).write.mode("overwrite").parquet(places["data"] + "/../made-later/out")
outcomes["own rows"] = spark.read.parquet(places["data"] + "/../made-later/out").count()
print("OUTCOMES" + json.dumps(outcomes), flush=True)
"""
)
CONNECT = (
    TRY
    + b"""
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
for name, path in places["secret"].items():
    if os.path.isfile(path):
        tried(f"{name} by a reader", lambda: spark.read.format("binaryFile").load(path).collect())

@udf("string")
def read(path):
    return open(path).read()

for name, path in places["secret"].items():
    tried(f"{name} by a function", lambda: spark.createDataFrame([(path,)], "p string").select(read("p")).collect())
out = places["data"] + "/out"
spark.range(100).write.mode("overwrite").parquet(out)
outcomes["own rows"] = spark.read.parquet(out).count()
outcomes["pandas"] = int(spark.range(5).toPandas()["id"].sum())
print("OUTCOMES" + json.dumps(outcomes), flush=True)
"""
)
CLASSIC = (
    TRY
    + b"""
from pyspark import SparkContext
context = SparkContext.getOrCreate()
for name, path in places["secret"].items():
    tried(f"{name} by the JVM", lambda: context.textFile(path).collect())
    tried(f"{name} by a worker", lambda: context.parallelize([path], 1).map(lambda p: open(p).read()).collect())
outcomes["own rows"] = context.parallelize(range(100), 2).map(lambda n: n + 1).count()
print("OUTCOMES" + json.dumps(outcomes), flush=True)
"""
)

FORGE = (
    START
    + b"""
attempt = os.readlink("/proc/self/fd/1").partition("/output/")[0].removesuffix("/stdout.log")
forged = {
    "driver.json": json.dumps(places["stranger"]),
    "result.json": json.dumps({"state": "FINISHED", "ended_at": 1.0}),
    "spec.json": "{}",
    "driver.lock": "",
    "cancel.requested": "",
    "session.released": "",
}
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
tried("the output of another job", lambda: write(places["other"], forged["result.json"]))
for name, text in forged.items():
    tried(f"write {name}", lambda: write(f"{attempt}/{name}", text))
tried("remove the spec", lambda: os.unlink(f"{attempt}/spec.json"))
tried("move the output", lambda: os.rename(f"{attempt}/output", f"{attempt}/moved"))
tried("a link in place of the output", lambda: os.symlink("/etc", f"{attempt}/link"))

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()

@udf("string")
def write_there(path):
    with open(path, "w") as file:
        file.write("x")

for path in (f"{attempt}/driver.json", f"{attempt}/output/result.json"):
    frame = spark.createDataFrame([(path,)], "p string").select(write_there("p"))
    tried(f"{path.rpartition('/')[2]} by a function", lambda: frame.collect())
print("OUTCOMES" + json.dumps(outcomes), flush=True)
import time
time.sleep(600)
"""
)


@dataclass
class Scene:
    node: AttackedNode
    people: People
    data: Path
    """Where an admin lets all owners work."""
    secrets: dict[str, Path]

    def places(self, **more: Any) -> str:
        announced = json.loads((self.node.cluster / "rest.json").read_text())
        return json.dumps(
            {
                "secret": {name: str(path) for name, path in self.secrets.items()},
                "plant": str(self.secrets["job of bob"].parent / "cancel.requested"),
                "node": self.node.pid,
                "socket": announced["socket"],
                "data": str(self.data),
                **more,
            }
        )

    def start(self, caller: Caller, program: bytes, **more: Any) -> str:
        key = caller.upload(program)
        script = {"kind": "script", "name": "s", "file": f"blob:{key}/p.py", "args": [self.places(**more)]}
        job: str = caller.submit({"name": "tries", "vertices": [script]})
        return job

    def run(self, caller: Caller, program: bytes) -> dict[str, Any]:
        job = self.start(caller, program)
        self.ended(caller, job)
        return self.outcomes(caller, job)

    def outcomes(self, caller: Caller, job: str) -> dict[str, Any]:
        text = caller.get(f"/jobs/{job}/logs/stdout").text
        assert "OUTCOMES" in text, (text, caller.get(f"/jobs/{job}/exceptions").text)
        outcomes: dict[str, Any] = json.loads(text.partition("OUTCOMES")[2])
        return outcomes

    def ended(self, caller: Caller, job: str) -> str:
        def state() -> str:
            found = str(caller.get(f"/jobs/{job}").json()["state"])
            return found if found in ("FINISHED", "FAILED", "CANCELED") else ""

        return str(until(state, 240))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("jobs")
    data = root / "data"
    data.mkdir()
    overrides = {
        "engine.master": "local[1]",
        "engine.jvm-options": QUICK_JAVA,
        "engine.memory": "640m",
        "engine.reuse": "false",
        "security.sandbox": "landlock",
        "security.sandbox.write-paths": str(data),
        "spark.sql.shuffle.partitions": "2",
        **UNLIMITED,
    }
    with AttackedNode(root / "state", overrides) as node, node.people() as people:
        configuration = node.configuration
        secrets = {
            "announcement": node.cluster / "rest.json",
            "tokens": configuration.security.tokens_file,
            "store": configuration.data.dir / "cluster.db",
            "job of bob": node.cluster / "jobs" / ("b" * 32) / "attempts" / "1" / "spec.json",
            "checkpoint of bob": Path(below(configuration.state.checkpoints_dir, "bob")) / ("b" * 32) / "metadata",
            "savepoint of bob": Path(below(configuration.state.savepoints_dir, "bob")) / "savepoint-1" / "data",
        }
        for name in ("job of bob", "checkpoint of bob", "savepoint of bob"):
            secrets[name].parent.mkdir(parents=True, mode=0o700)
            secrets[name].write_text("of bob")
        yield Scene(node, people, data, secrets)
    assert "Traceback" not in node.log_text(), node.log_text()[-4000:]


def check(scene: Scene, outcomes: dict[str, Any], before: dict[str, bytes], **own: Any) -> None:
    for name, value in own.items():
        assert outcomes.pop(name.replace("_", " ")) == value, outcomes
    through = {name: outcome for name, outcome in outcomes.items() if outcome != "refused"}
    # Spark says of a file that it may not read that it is not there.
    through = {n: o for n, o in through.items() if not (n.endswith("by a reader") and "FILE_NOT_EXIST" in o)}
    assert not through
    assert content(scene) == before
    assert not (scene.secrets["job of bob"].parent / "cancel.requested").exists()
    os.kill(scene.node.pid, 0)


def content(scene: Scene) -> dict[str, bytes]:
    """Of all secrets but the store, which changes."""
    return {name: path.read_bytes() for name, path in scene.secrets.items() if name != "store"}


def test_a_program_gets_at_nothing_of_the_node_or_of_another_owner(scene: Scene) -> None:
    before = content(scene)
    outcomes = scene.run(scene.people.alice, CONNECT)
    check(scene, outcomes, before, own_file=4, own_rows=100, pandas=10)
    assert len(outcomes) > 20


def test_a_program_of_the_nodes_user_does_not_get_at_the_process_of_the_node(scene: Scene) -> None:
    """It may open what that user can open by hand, also what was not there when its engine started."""
    before = content(scene)
    check(scene, scene.run(scene.people.owner, OF_THE_NODES_USER), before, own_file=4, own_rows=100)


def test_a_program_with_a_jvm_of_its_own_does_neither(scene: Scene) -> None:
    before = content(scene)
    check(scene, scene.run(scene.people.alice, CLASSIC), before, own_file=4, own_rows=100)


def test_a_program_that_forges_the_files_of_its_attempt_is_cancelled_and_nobody_else_is_ended(scene: Scene) -> None:
    """S21, S44: another owner than the user who runs the node cannot write who its driver is, nor can functions on its engine,
    nor can one job write what another says of its end."""
    alice = scene.people.alice
    other = scene.node.cluster / "jobs" / ("a" * 32) / "attempts" / "1" / "output"
    other.mkdir(parents=True, mode=0o700)
    with sleeper() as stranger:
        named = {"pid": stranger.pid, "started": stranger.started}
        job = scene.start(alice, FORGE, stranger=named, other=str(other / "result.json"))
        until(lambda: "OUTCOMES" in alice.get(f"/jobs/{job}/logs/stdout").text, 240)
        assert alice.ask("PATCH", f"/jobs/{job}").status == 202
        assert scene.ended(alice, job) == "CANCELED"
        assert stranger.alive
    outcomes = scene.outcomes(alice, job)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "refused"} == {}
    assert len(outcomes) > 10
    assert list(other.iterdir()) == []


def test_a_link_in_the_place_of_an_output_leads_nowhere(scene: Scene) -> None:
    """The driver of such a job is not confined as a whole: it runs no code of users, and goes on to other jobs."""
    alice, of_bob = scene.people.alice, scene.secrets["job of bob"].parent
    (scene.data / "link").symlink_to(of_bob)
    before = sorted(p.name for p in of_bob.iterdir())
    graph = {
        "name": "batch",
        "vertices": [
            {"kind": "sql", "name": "q", "query": "SELECT id FROM range(10)"},
            {
                "kind": "sink",
                "name": "o",
                "input": "q",
                "format": "parquet",
                "path": f"{scene.data}/link/x",
                "mode": "append",
            },
        ],
    }
    job = alice.submit(graph)
    assert scene.ended(alice, job) == "FAILED"
    assert "ermission" in alice.get(f"/jobs/{job}/exceptions").text
    assert sorted(p.name for p in of_bob.iterdir()) == before
    graph["vertices"][1]["path"] = f"{scene.data}/plain"  # type: ignore[index]
    assert scene.ended(alice, alice.submit(graph)) == "FINISHED"


def test_a_stream_of_somebody_else_than_the_nodes_user_is_stopped_with_a_savepoint_and_goes_on(scene: Scene) -> None:
    alice = scene.people.alice

    def stream(**settings: Any) -> dict[str, Any]:
        return {
            "name": "stream",
            "mode": "streaming",
            "settings": settings,
            "vertices": [
                {"kind": "source", "name": "r", "format": "rate", "options": {"rowsPerSecond": "10"}},
                {"kind": "sql", "name": "q", "query": "SELECT value % 3 AS k, count(*) AS n FROM r GROUP BY value % 3"},
                {"kind": "sink", "name": "o", "input": "q", "format": "noop", "output_mode": "update"},
            ],
        }

    first = alice.submit(stream())
    until(lambda: _batches(alice, first) > 0, 180)
    trigger = alice.post(f"/jobs/{first}/stop", {"drain": False}).json()["request-id"]
    assert scene.ended(alice, first) == "FINISHED"

    def location() -> str:
        found = alice.get(f"/jobs/{first}/savepoints/{trigger}").json()
        operation = found.get("operation") or {}  # null while it is in progress
        assert "failure-cause" not in operation, found
        return str(operation.get("location", ""))

    saved = until(location, 60)
    assert Path(saved).parent == Path(below(scene.node.configuration.state.savepoints_dir, "alice"))
    second = alice.submit(stream(restore={"path": saved}))
    until(lambda: _batches(alice, second) > 0, 180)
    assert alice.ask("PATCH", f"/jobs/{second}").status == 202
    assert scene.ended(alice, second) == "CANCELED"


def _batches(caller: Caller, job: str) -> int:
    found = caller.get(f"/jobs/{job}").json()
    assert found["state"] not in ("FAILED", "FINISHED"), caller.get(f"/jobs/{job}/exceptions").text
    counts = caller.get(f"/jobs/{job}/checkpoints").json().get("counts", {})
    return int(counts.get("completed", 0))
