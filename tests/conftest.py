"""One engine for the whole run, shared by all xdist workers; everything that was started is stopped at the end."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firesteel.attempts.attempt import AttemptDirectory, EventTail
from firesteel.cli.run import adjusted
from firesteel.client.job import JobClient
from firesteel.client.model import JobResult
from firesteel.config import Configuration, load_configuration
from firesteel.engines.launcher import healthy, start_engine, stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.fs.files import read_json
from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.layout import ClusterLayout
from firesteel.processes import ProcessIdentity, end
from firesteel.testing.mini_cluster import MiniCluster
from firesteel.types import JobID
from firesteel.worker.launch_options import launch_options
from firesteel.worker.pool import DriverPool
from tests.support.engine_shape import SHAPE
from tests.support.waiting import until

ROOT = "FIRESTEEL_TEST_ROOT"


LONG_TIMEOUT = 240.0
"""Seconds for a test that may have to start engines and nodes first."""


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and presses it for.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        root = tempfile.mkdtemp(prefix="firesteel-tests-")
        os.environ[ROOT] = root
        config.stash[_ROOT_KEY] = root


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None and any(
            item.get_closest_marker(name) for name in ("spark", "slow", "integration")
        ):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))


_ROOT_KEY: pytest.StashKey[str] = pytest.StashKey()


def pytest_unconfigure(config: pytest.Config) -> None:
    root = config.stash.get(_ROOT_KEY, None)
    if root is None:
        return
    # A cluster that the command woke up here, and would otherwise sleep on for a while.
    awake = read_json(Path(root) / "clusters" / "default" / "rest.json")
    if awake is not None:
        end(ProcessIdentity(awake["pid"], awake["started"]), grace=10)
    for home in (Path(root), Path(root) / "clusters" / "default"):
        engines = EngineDirectory(home)
        for record in engines.all():
            stop_engine(engines, record, grace=5)
    shutil.rmtree(root, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job on a node, for tests that do something to it."""

    job: JobClient
    node: MiniCluster

    @property
    def job_id(self) -> JobID:
        return self.job.job_id

    @property
    def jobs(self) -> Path:
        """The directory of the node's jobs."""
        return ClusterLayout.of(self.node.configuration).home / "jobs"

    def attempt(self, number: int) -> AttemptDirectory:
        return AttemptDirectory(self.jobs / self.job_id / "attempts" / str(number))

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the drivers of all attempts have told so far."""
        files = sorted(self.jobs.glob(f"{self.job_id}/attempts/*"), key=lambda d: int(d.name))
        return [event for file in files for event in EventTail(AttemptDirectory(file).events).new()]

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], timeout: float = 60.0) -> None:
        """Until a driver has told of an event that fits; fails with all events when none comes."""
        until(
            lambda: any(condition(e) for e in self.events) or self.job.status().terminal,
            lambda: f"no such event: {self.events}",
            seconds=timeout,
        )
        assert any(condition(e) for e in self.events), f"it ended before: {self.job.wait()} {self.events}"

    def kill_driver(self, number: int = 1) -> None:
        driver = self.attempt(number).read_driver()
        assert driver is not None
        assert driver.signal(signal.SIGKILL)

    def ended(self, timeout: float = 90.0) -> Run:
        """Once it has ended, and what it left behind is cleaned up."""
        result = self.job.wait(timeout)
        until(self._is_clean, lambda: f"job {self.job_id} is not cleaned up")
        return Run(self.job, self.node, result)

    def _is_clean(self) -> bool:
        stored = self.node.call(self.node.ha.store.get, f"results/{self.job_id}")
        return stored is not None and json.loads(stored.value)["dirty"] is False


@dataclass(frozen=True, slots=True)
class Run(RunningJob):
    """What a job left behind."""

    result: JobResult

    @property
    def stdout(self) -> str:
        return self.job.logs("stdout")

    @property
    def stderr(self) -> str:
        return self.job.logs("stderr")


class Cluster:
    """A node with the shared engine of this test run, or with engines of its own if it has another configuration.

    The node is started by the first test that runs a job; one for each worker of pytest-xdist.
    """

    def __init__(self, configuration: Configuration, *, shares_engine: bool = False) -> None:
        self.configuration = configuration
        self.engines = EngineDirectory(configuration.data.dir)
        self._shares_engine = shares_engine
        self._pool: DriverPool | None = None
        self._node: MiniCluster | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pool(self) -> DriverPool:
        """Drivers for tests that have no node."""
        if self._pool is None:
            self._pool = DriverPool(log=self.configuration.data.dir / "drivers.log")
        return self._pool

    @property
    def node(self) -> MiniCluster:
        if self._node is None:
            if self._shares_engine:
                self.engine()
            node = MiniCluster(self.configuration)
            node.start()
            self._node = node
            if self._shares_engine:  # it starts no other one
                until(lambda: bool(node.client.engines()), "the node does not see the shared engine")
        return self._node

    def engine(self) -> EngineRecord:
        """The shared engine; started by the first worker that needs it."""
        root = self.configuration.data.dir
        with (root / "engine.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for record in self.engines.alive():
                if record.shared and healthy(record):
                    return record
            return start_engine(
                self.engines,
                shared_engine_spec(self.configuration),
                launch_options(self.configuration),
                shared=True,
            )

    def start_graph(self, graph: JobGraph, *, cwd: Path | None = None) -> RunningJob:
        """As `firesteel run -d`, called in `cwd`."""
        node = self.node
        if cwd is not None:
            graph = graph.with_(settings=graph.settings.model_copy(update={"directory": str(cwd)}))
        return RunningJob(node.client.submit(graph, upload=False), node)

    def run_graph(self, graph: JobGraph, *, timeout: float = 120, cwd: Path | None = None) -> Run:
        return self.start_graph(graph, cwd=cwd).ended(timeout)

    def run(
        self,
        pipeline: Path,
        variables: Mapping[str, str] | None = None,
        args: tuple[str, ...] = (),
        timeout: float = 120,
        cwd: Path | None = None,
    ) -> Run:
        graph = adjusted(load_pipeline(pipeline, variables=variables or {}).graph, args, None, None)
        return self.run_graph(graph, timeout=timeout, cwd=cwd)

    def close(self) -> None:
        if self._node is not None:
            self._node.close()
        if self._pool is not None:
            self._pool.close()


@pytest.fixture(scope="session")
def configuration() -> Configuration:
    root = os.environ[ROOT]
    overrides = {
        **SHAPE,
        "data.dir": root,
        "high-availability.type": "none",
        "high-availability.cluster-id": f"tests-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}",
        "rest.port": "0",
        # The tests' writes are tiny: 200 shuffle partitions would be most of the time.
        "spark.sql.shuffle.partitions": "4",
        "engine.start-timeout": "180 s",
    }
    return load_configuration(
        overrides=overrides, environ={k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    )


@pytest.fixture(scope="session")
def cluster(configuration: Configuration) -> Iterator[Cluster]:
    with Cluster(configuration, shares_engine=True) as made:
        yield made


def graph_of(*vertices: Mapping[str, Any], **top: Any) -> JobGraph:
    return JobGraph.model_validate({"name": "test", "vertices": list(vertices), **top})
