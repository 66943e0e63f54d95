"""A worker as a process of its own, at a real node: jobs run there, survive its death and the leader's, and are read through
the node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.rest_node import RestNode
from tests.conftest import Cluster, graph_of

from firesteel.client.job import JobClient
from firesteel.fleet.view import Standing
from firesteel.processes import ProcessIdentity

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sample]

STREAM = graph_of(
    {"kind": "source", "name": "i", "format": "rate", "options": {"rowsPerSecond": "5"}},
    {"kind": "sink", "name": "o", "input": "i", "format": "noop", "trigger": "1 s"},
    mode="streaming",
)
TINY = graph_of(
    {"kind": "sql", "name": "one", "query": "SELECT 1 AS a"},
    {"kind": "sink", "name": "o", "input": "one", "format": "noop", "delivery": "at-least-once"},
)


class OwnWorker:
    """`firesteel worker start` for a node of this machine."""

    def __init__(self, node: RestNode, options: dict[str, str]) -> None:
        self._node = node
        self._command = [
            str(Path(sys.executable).with_name("firesteel")),
            "worker",
            "start",
            "--name",
            "alpha",
            "--json",
        ]
        self._command += [f"-D{k}={v}" for k, v in options.items()]
        self.process: ProcessIdentity | None = None

    def start(self) -> dict[str, Any]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        environ["FIRESTEEL_DATA_DIR"] = str(self._node.directory)
        done = subprocess.run(self._command, env=environ, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        self.process = ProcessIdentity.of(told["pid"])
        return told

    def kill(self) -> None:
        assert self.process is not None
        self.process.signal(signal.SIGKILL)
        until(lambda: self.process is not None and not self.process.alive)

    @property
    def home(self) -> Path:
        return self._node.directory / "workers" / "alpha" / "clusters" / "default"


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def options(cluster: Cluster) -> dict[str, str]:
    engine = cluster.engine()
    return {
        "engine.master": f"sc://{engine.host}:{engine.port}",
        "engine.token": engine.token,
        "engine.slots": "20",
        "heartbeat.interval": "500 ms",
        "worker.isolation-timeout": "2 min",
    }


@pytest.fixture
def node(tmp_path: Path, options: dict[str, str]) -> Iterator[RestNode]:
    with RestNode(tmp_path, {**options, "worker.embedded": "false"}) as made:
        yield made


@pytest.fixture
def worker(node: RestNode, options: dict[str, str]) -> Iterator[OwnWorker]:
    made = OwnWorker(node, options)
    made.start()
    yield made
    if made.process is not None and made.process.alive:
        made.process.signal(signal.SIGTERM)
        made.process.wait(30)


def running(node: RestNode) -> JobClient:
    with node.client() as client:
        job = client.submit(STREAM)
        until(lambda: batches(node, job.job_id) > 1)
        return job


def batches(node: RestNode, job_id: str) -> int:
    with node.client() as client:
        progress = client.job(job_id).details()["progress"]
    return int((progress.get("sinks") or {}).get("o", {}).get("batch") or 0)


def details(node: RestNode, job_id: str) -> dict[str, Any]:
    with node.client() as client:
        return dict(client.job(job_id).details())


def driver_of(worker: OwnWorker, job_id: str) -> int:
    told = json.loads((worker.home / "jobs" / job_id / "attempts" / "1" / "driver.json").read_text())
    return int(told["pid"])


def test_jobs_run_on_the_worker_and_survive_its_process_and_the_leader(node: RestNode, worker: OwnWorker) -> None:
    """I8: the same attempt and the same driver, through kill -9 of the worker, and then of the leader."""
    with node.client() as client:
        assert client.submit(TINY).result().status == "FINISHED"
        [alpha] = client.workers()
        assert (alpha.name, alpha.standing) == ("alpha", Standing.CONNECTED)
    job = running(node)
    driver = driver_of(worker, job.job_id)
    worker.kill()
    worker.start()
    seen = batches(node, job.job_id)
    until(lambda: batches(node, job.job_id) > seen)
    node.kill()
    node.start()
    until(lambda: details(node, job.job_id)["status"] == "RUNNING")
    seen = batches(node, job.job_id)
    until(lambda: batches(node, job.job_id) > seen)
    assert details(node, job.job_id)["attempt"] == 1
    assert driver_of(worker, job.job_id) == driver
    with node.client() as client:
        # What the driver writes there is read here.
        there = (worker.home / "jobs" / job.job_id / "attempts" / "1" / "output" / "events.jsonl").read_text()
        assert client.job(job.job_id).logs("events").startswith(there[:200])
        client.job(job.job_id).cancel()
        until(lambda: details(node, job.job_id)["status"] == "CANCELED")
    assert not (node.directory / "clusters" / "default" / "jobs" / job.job_id / "attempts").exists()
