"""A graph, run as a cluster runs it: written down, then by a driver process forked from a warm parent."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import cpu_seconds

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec, AttemptState, EventTail
from firesteel.engines.record import EngineRecord
from firesteel.fs.files import tail
from firesteel.jobgraph.model import JobGraph
from firesteel.sinks.graph import staged
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.pool import DriverPool, DriverProcess

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class GraphRun:
    seconds: float
    """From the submission to the driver's result event: the rows are committed and the result is durable."""
    cpu: float
    """Processor seconds that the engine used meanwhile."""
    phases: dict[str, float]
    """How the seconds were spent: fork, connect, compile, write, commit."""


class GraphRunner:
    """Submits graphs to one engine. The driver pool is warm, as it is in a cluster that runs."""

    def __init__(self, engine: EngineRecord, pool: DriverPool, root: Path, *, timeout: float) -> None:
        self._engine = engine
        self._pool = pool
        self._jobs = root / "jobs"
        self._root = root
        self._timeout = timeout

    def run(self, graph: JobGraph) -> GraphRun:
        """Returns once the driver process is gone, so that what it does after its result disturbs nobody."""
        attempt = AttemptId(new_job_id(), 1)
        job = self._jobs / attempt.job_id
        directory = AttemptDirectory(job / "attempts" / str(attempt.number))
        cpu_before, submitted = cpu_seconds(self._engine.process), time.time()
        checkpoints = str(self._root / "checkpoints")
        directory.prepare(AttemptSpec(attempt=attempt, graph=graph, engine=self._engine, checkpoints=checkpoints))
        driver = self._pool.spawn(
            "attempt",
            {"directory": str(directory.root)},
            stdout=directory.stdout,
            stderr=directory.stderr,
            cwd=self._root,
            env={"PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"},
        )
        try:
            events, cpu_after = self._follow(driver, directory)
        finally:
            if not driver.exited.done():
                driver.process.signal(signal.SIGKILL, group=True)
        _check(directory, graph.name)
        for sink in graph.sinks:
            if files := staged(sink, attempt.job_id):
                files.cleanup()
        shutil.rmtree(job)
        phases = _phases(events, submitted)
        return GraphRun(sum(phases.values()), cpu_after - cpu_before, phases)

    def _follow(self, driver: DriverProcess, directory: AttemptDirectory) -> tuple[list[dict[str, Any]], float]:
        """All events, and the engine's clock at the result. Looks as often as a supervisor does: that costs, too."""
        growing = EventTail(directory.events)
        events: list[dict[str, Any]] = []
        cpu, until = 0.0, time.monotonic() + self._timeout
        ended = False
        while not ended:
            with contextlib.suppress(FutureTimeout):
                driver.exited.result(timeout=POLL_SECONDS)
            if time.monotonic() > until:
                raise TimeoutError(f"the graph took more than {self._timeout:g} s; raise --timeout or lower --rows")
            ended = driver.exited.done()
            events += growing.new()
            if not cpu and any(event["type"] == "result" for event in events[-3:]):
                cpu = cpu_seconds(self._engine.process)
        return events, cpu


def _check(directory: AttemptDirectory, name: str) -> None:
    result = directory.read_result()
    if result is None or result.state is not AttemptState.FINISHED:
        why = result.failure if result else "the driver left no result"
        raise RuntimeError(f"graph {name}: {why}\n{tail(directory.stderr)}")


def _phases(events: list[dict[str, Any]], submitted: float) -> dict[str, float]:
    marks = {"submit": submitted}
    for event in events:
        if event["type"] in ("phase", "result"):
            marks[event.get("phase", event["type"])] = event["t"]
    spans = {
        "fork": ("submit", "connecting"),
        "connect": ("connecting", "compiling"),
        "compile": ("compiling", "running"),
        "write": ("running", "committing"),
        "commit": ("committing", "result"),
    }
    return {span: marks[until] - marks[since] for span, (since, until) in spans.items()}
