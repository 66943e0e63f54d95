"""One engine for the whole run, shared by all xdist workers; everything that was started is stopped at the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from firesteel.cli.run import adjusted
from firesteel.config import Configuration, load_configuration
from firesteel.engines.launcher import healthy, start_engine, stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.fs.files import read_json
from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.processes import ProcessIdentity, end
from firesteel.types import new_job_id
from firesteel.worker.launch_options import launch_options
from firesteel.worker.pool import DriverPool
from tests.support.engine_shape import SHAPE
from tests.support.job_directory import JobDirectory, JobRecord, JobsDirectory
from tests.support.lone_job import LoneJob
from tests.support.warm_gateways import WarmGateways

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


@dataclass(slots=True)
class Run:
    """What a job left behind."""

    record: JobRecord
    directory: JobDirectory
    events: list[dict[str, Any]]

    @property
    def stdout(self) -> str:
        return self.directory.attempt(max(self.record.attempt, 1)).stdout.read_text()

    @property
    def stderr(self) -> str:
        return self.directory.attempt(max(self.record.attempt, 1)).stderr.read_text()

    @property
    def kinds(self) -> list[str]:
        return [e["type"] for e in self.events]


@dataclass(slots=True)
class RunningJob:
    """A job in a thread, for tests that do something to it."""

    job: LoneJob
    directory: JobDirectory
    events: list[dict[str, Any]]
    thread: threading.Thread
    outcome: list[JobRecord | BaseException] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], timeout: float = 60.0) -> dict[str, Any]:
        """The first event that fits; fails with all events when none comes."""
        with self.changed:

            def found() -> dict[str, Any] | None:
                return next((e for e in self.events if condition(e)), None)

            self.changed.wait_for(lambda: found() is not None or bool(self.outcome), timeout)
            event = found()
        assert event is not None, f"no such event; {self.outcome} {self.events}"
        return event

    def result(self, timeout: float = 90.0) -> Run:
        self.thread.join(timeout)
        assert self.outcome, f"the job did not end in {timeout} s: {self.events}"
        if isinstance(self.outcome[0], BaseException):
            raise self.outcome[0]
        return Run(self.outcome[0], self.directory, self.events)


class Cluster:
    """Runs jobs on the shared engine of this test run."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.jobs = JobsDirectory(configuration.data.dir)
        self.engines = EngineDirectory(configuration.data.dir)
        self._pool: DriverPool | None = None
        self._gateways: WarmGateways | None = None

    @property
    def pool(self) -> DriverPool:
        if self._pool is None:
            self._pool = DriverPool(log=self.configuration.data.dir / "drivers.log")
        return self._pool

    @property
    def gateways(self) -> WarmGateways:
        if self._gateways is None:
            root = self.configuration.data.dir / "gateways"
            options = launch_options(self.configuration)
            self._gateways = WarmGateways(root, shared_engine_spec(self.configuration), options)
        return self._gateways

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

    def start_graph(
        self,
        graph: JobGraph,
        *,
        configuration: Configuration | None = None,
        cwd: Path | None = None,
        pool: DriverPool | None = None,
    ) -> RunningJob:
        configuration = configuration or self.configuration
        if configuration is self.configuration and graph.script is None:
            self.engine()
        directory = JobsDirectory(configuration.data.dir).job(new_job_id())
        directory.create(graph, {"cwd": str(cwd or Path.cwd()), "overrides": {}, "config_file": None})
        events: list[dict[str, Any]] = []
        changed = threading.Condition()

        def listen(event: dict[str, Any]) -> None:
            with changed:
                events.append(event)
                changed.notify_all()

        job = LoneJob(
            directory,
            graph,
            configuration,
            cwd=cwd or directory.root,
            listener=listen,
            pool=pool or self.pool,
            gateways=self.gateways if graph.script is not None and configuration is self.configuration else None,
        )
        running = RunningJob(job, directory, events, threading.Thread(), changed=changed)

        def run() -> None:
            try:
                running.outcome.append(job.run())
            except BaseException as error:  # handed to the test's own thread
                running.outcome.append(error)
            with changed:
                changed.notify_all()

        running.thread = threading.Thread(target=run, name=f"job-{directory.job_id[:8]}", daemon=True)
        running.thread.start()
        return running

    def run_graph(self, graph: JobGraph, *, timeout: float = 120, cwd: Path | None = None) -> Run:
        return self.start_graph(graph, cwd=cwd).result(timeout)

    def run(
        self,
        pipeline: Path,
        variables: Mapping[str, str] | None = None,
        args: tuple[str, ...] = (),
        timeout: float = 120,
        cwd: Path | None = None,
    ) -> Run:
        graph = adjusted(load_pipeline(pipeline, variables=variables or {}).graph, args, None, None)
        if graph.script is not None:
            self.engine()
        return self.run_graph(graph, timeout=timeout, cwd=cwd)

    def close(self) -> None:
        if self._gateways is not None:
            self._gateways.close()
        if self._pool is not None:
            self._pool.close()


@pytest.fixture(scope="session")
def configuration() -> Configuration:
    root = os.environ[ROOT]
    overrides = {
        **SHAPE,
        "data.dir": root,
        # The tests' writes are tiny: 200 shuffle partitions would be most of the time.
        "spark.sql.shuffle.partitions": "4",
        "engine.start-timeout": "180 s",
    }
    return load_configuration(
        overrides=overrides, environ={k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    )


@pytest.fixture(scope="session")
def cluster(configuration: Configuration) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(configuration)) as made:
        yield made


def graph_of(*vertices: Mapping[str, Any], **top: Any) -> JobGraph:
    return JobGraph.model_validate({"name": "test", "vertices": list(vertices), **top})
