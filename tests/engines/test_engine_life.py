"""Engines as processes: they outlive their parent, are found again, and say why they could not start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Cluster
from tests.driver.test_attempts import files, ids, job, python

from firesteel.config import Configuration, load_configuration
from firesteel.driver.failure import FailureKind
from firesteel.embedded.jobs import JobStatus
from firesteel.embedded.plan import launch_options
from firesteel.engines.launcher import healthy, start_engine, stop_engine, sweep
from firesteel.engines.record import EngineDirectory, EngineSpec
from firesteel.errors import EngineStartError

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
        overrides={"data.dir": str(tmp_path / "data"), "engine.master": "local[2]", **more},
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
    assert stop_engine(directory, found, grace=20) in (True, False)
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


def test_engine_killed_in_the_middle_of_a_write_is_replaced(
    cluster: Cluster, configuration: Configuration, tmp_path: Path
) -> None:
    """F13: a new engine, a second attempt, each row once."""
    out = tmp_path / "out"
    graph = job(
        python("a", "slow", rows=120, marker=str(tmp_path / "m")),
        files("o", "a", out),
        settings={"restart": {"type": "fixed-delay", "attempts": 1, "delay": "10 ms"}},
    )
    mine = own(configuration, tmp_path)
    running = cluster.start_graph(graph, configuration=mine)
    running.wait_for(lambda e: e["type"] == "progress", timeout=90)
    [engine] = EngineDirectory(mine.data.dir).alive()
    assert engine.process is not None
    engine.process.signal(signal.SIGKILL, group=True)
    run = running.result(timeout=120)
    assert (run.record.status, run.record.attempt) == (JobStatus.FINISHED, 2)
    first = run.directory.attempt(1).read_result()
    assert first is not None
    assert first.failure is not None
    assert first.failure.kind is FailureKind.ENGINE_LOST
    assert ids(out) == list(range(120))
    assert not (out / "_firesteel").exists()
    assert EngineDirectory(mine.data.dir).all() == []
