"""Engines as processes: they outlive their parent, are found again, and say why they could not start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.conftest import Cluster
from tests.driver.test_attempts import files, ids, job, python
from tests.support.engine_shape import SHAPE

from firesteel.config import Configuration, load_configuration
from firesteel.engines.java import class_path, find_java, module_options, spark_home
from firesteel.engines.launcher import engine_environment, healthy, start_engine, stop_engine, sweep
from firesteel.engines.record import EngineDirectory, EngineSpec
from firesteel.errors import EngineStartError
from firesteel.failure import FailureKind
from firesteel.layout import ClusterLayout
from firesteel.ports import unused_port, unused_ports
from firesteel.status import JobStatus
from firesteel.worker.launch_options import launch_options

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STARTER = """
import sys
from pathlib import Path
from firesteel.engines.launcher import LaunchOptions, start_engine
from firesteel.engines.record import EngineDirectory, EngineSpec
start_engine(EngineDirectory(Path(sys.argv[1])), EngineSpec("local[1]"), LaunchOptions(Path(sys.argv[2])), wait=False)
print("started", flush=True)
import time; time.sleep(600)
"""


def own(configuration: Configuration, tmp_path: Path, **more: str) -> Configuration:
    return load_configuration(
        overrides={
            **SHAPE,
            "data.dir": str(tmp_path / "data"),
            "high-availability.type": "none",
            "rest.port": "0",
            **more,
        },
        environ={k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")},
    )


def test_engine_survives_kill_9_of_its_parent_and_is_found(configuration: Configuration, tmp_path: Path) -> None:
    """I8: also when the parent dies before it could note the pid, for the engine notes it itself."""
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), str(configuration.data.cache_dir)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    directory = EngineDirectory(tmp_path)
    [engine] = directory.alive()
    noted = engine.process
    # As if the parent had died between the start and its own note.
    directory.save(type(engine)(**{**{f: getattr(engine, f) for f in engine.__slots__}, "process": None}))
    [found] = directory.alive()
    assert found.process == noted
    stop_engine(directory, found, grace=20)
    assert directory.all() == []
    assert noted is not None
    assert not noted.alive


def test_engine_that_dies_at_start_says_why_and_leaves_nothing(configuration: Configuration, tmp_path: Path) -> None:
    directory = EngineDirectory(tmp_path)
    spec = EngineSpec("local[1]", spark=(("spark.serializer", "no.such.Serializer"),))
    with pytest.raises(EngineStartError, match=r"(?s)ended while it was starting.*no\.such\.Serializer"):
        start_engine(directory, spec, launch_options(configuration))
    assert directory.all() == []


def test_stopped_engine_that_does_not_listen_is_killed(configuration: Configuration, tmp_path: Path) -> None:
    directory = EngineDirectory(tmp_path)
    engine = start_engine(directory, EngineSpec("local[1]"), launch_options(configuration), wait=False)
    assert engine.process is not None
    engine.process.signal(signal.SIGSTOP)
    # Signals that are pending together are taken by number: SIGTERM would come first.
    deadline = time.monotonic() + 30
    while Path(f"/proc/{engine.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "it did not stop"
        time.sleep(0.01)
    assert not stop_engine(directory, engine, grace=0.2)
    assert not engine.process.alive


def test_record_of_an_engine_that_is_gone_is_swept(configuration: Configuration, tmp_path: Path) -> None:
    directory = EngineDirectory(tmp_path)
    engine = start_engine(directory, EngineSpec("local[1]"), launch_options(configuration), wait=False)
    assert engine.process is not None
    engine.process.signal(signal.SIGKILL, group=True)
    os.waitpid(engine.process.pid, 0)
    assert not healthy(engine)
    assert sweep(directory) == [engine.engine_id]
    assert directory.all() == []


def test_engine_killed_in_the_middle_of_a_write_is_replaced(configuration: Configuration, tmp_path: Path) -> None:
    """F13: a new engine, a second attempt, each row once."""
    out = tmp_path / "out"
    graph = job(
        python("a", "slow", rows=120, marker=str(tmp_path / "m")),
        files("o", "a", out),
        settings={"restart": {"type": "fixed-delay", "attempts": 1, "delay": "10 ms"}},
    )
    mine = own(configuration, tmp_path)
    with Cluster(mine) as cluster:
        running = cluster.start_graph(graph)
        running.wait_for(lambda e: e["type"] == "progress", timeout=90)
        [engine] = EngineDirectory(ClusterLayout.of(mine).home).alive()
        assert engine.process is not None
        engine.process.signal(signal.SIGKILL, group=True)
        run = running.ended(timeout=120)
    assert (run.result.status, run.result.attempts) == (JobStatus.FINISHED, 2)
    first = run.attempt(1).read_result()
    assert first is not None
    assert first.failure is not None
    assert first.failure.kind is FailureKind.ENGINE_LOST
    assert ids(out) == list(range(120))
    assert not (out / "_firesteel").exists()
    assert EngineDirectory(ClusterLayout.of(mine).home).all() == []


def _listeners(pid: int) -> set[str]:
    """Addresses on which a process listens, as the kernel writes them."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(fd).removeprefix("socket:[").rstrip("]"))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def test_every_door_of_an_engine_is_on_loopback(cluster: Cluster) -> None:
    """S2."""
    engine = cluster.engine()
    assert engine.process is not None
    assert healthy(engine)
    assert _listeners(engine.process.pid) <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_engine_that_hangs_is_not_healthy(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.engines.launcher.HEALTH_SECONDS", 0.5)
    directory = EngineDirectory(tmp_path)
    engine = start_engine(directory, EngineSpec("local[1]"), launch_options(configuration))
    assert engine.process is not None
    engine.process.signal(signal.SIGSTOP)
    assert not healthy(engine)
    stop_engine(directory, engine, grace=0.1)


def test_attached_engine_runs_jobs_and_is_left_alone(
    cluster: Cluster, configuration: Configuration, tmp_path: Path
) -> None:
    engine = cluster.engine()
    mine = own(
        configuration, tmp_path, **{"engine.master": f"sc://localhost:{engine.port}", "engine.token": engine.token}
    )
    with Cluster(mine) as other:
        run = other.run_graph(job(python("a", "numbers"), files("o", "a", tmp_path / "o")))
    assert run.result.failure is None
    assert ids(tmp_path / "o") == list(range(10))
    assert healthy(engine)


def test_job_on_a_standalone_cluster(configuration: Configuration, tmp_path: Path) -> None:
    """A real Master and Worker from the installed Spark; the engine is a driver of theirs."""
    master, worker, web = unused_ports(3)
    java = find_java()
    base = [
        str(java.executable),
        "-Xmx256m",
        *module_options(java),
        "-cp",
        ":".join(map(str, class_path(spark_home()))),
    ]
    where = ["--host", "127.0.0.1", "--port"]
    limits = [
        "--webui-port",
        str(unused_port()),
        "--cores",
        "1",
        "--memory",
        "700m",
        "--work-dir",
        str(tmp_path / "work"),
    ]
    environment = engine_environment(
        {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    )
    with (tmp_path / "daemons.log").open("wb") as log:
        daemons = [
            subprocess.Popen([*base, *args], stdout=log, stderr=log, env=environment, cwd=tmp_path)
            for args in (
                ["org.apache.spark.deploy.master.Master", *where, str(master), "--webui-port", str(web)],
                ["org.apache.spark.deploy.worker.Worker", *where, str(worker), *limits, f"spark://127.0.0.1:{master}"],
            )
        ]
    try:
        mine = own(
            configuration,
            tmp_path,
            **{
                "engine.master": f"spark://127.0.0.1:{master}",
                "spark.executor.memory": "512m",
                "spark.cores.max": "1",
                "spark.sql.shuffle.partitions": "2",
            },
        )
        graph = job(python("a", "numbers", rows=20), python("b", "doubled", "a"), files("o", "b", tmp_path / "o"))
        with Cluster(mine) as cluster:
            run = cluster.run_graph(graph, timeout=150)
        assert run.result.failure is None, (tmp_path / "daemons.log").read_text()[-3000:]
        assert ids(tmp_path / "o") == list(range(0, 40, 2))
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=10) as answer:
            state = json.load(answer)
        assert [a["name"].startswith("firesteel-engine-") for a in state["activeapps"] + state["completedapps"]] == [
            True
        ]
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(20)
