"""A graph, run as the embedded cluster runs it: written down, then by a driver process forked from a warm parent."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from firesteel.driver.attempt import AttemptDirectory, AttemptSpec, AttemptState, EventTail
from firesteel.driver.batch import staged
from firesteel.driver.pool import DriverPool
from firesteel.embedded.jobs import JobsDirectory
from firesteel.engines.record import EngineRecord
from firesteel.files import tail
from firesteel.jobgraph.model import JobGraph
from firesteel.types import AttemptId, new_job_id


@dataclass(frozen=True, slots=True)
class GraphRun:
    seconds: float
    """From the submission to the driver's result event: the rows are committed and the result is durable."""
    phases: dict[str, float]
    """How these seconds were spent: fork, connect, compile, write, commit."""


class GraphRunner:
    """Submits graphs to one engine. The driver pool is warm, as it is in a cluster that runs."""

    def __init__(self, engine: EngineRecord, pool: DriverPool, root: Path, *, timeout: float) -> None:
        self._engine = engine
        self._pool = pool
        self._jobs = JobsDirectory(root)
        self._root = root
        self._timeout = timeout

    def run(self, graph: JobGraph) -> GraphRun:
        """Returns once the driver process is gone, so that what it does after its result disturbs nobody."""
        attempt = AttemptId(new_job_id(), 1)
        job = self._jobs.job(attempt.job_id)
        directory = job.attempt(attempt.number)
        submitted = time.time()
        job.create(graph, {})
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
            driver.exited.result(timeout=self._timeout)
        finally:
            if not driver.exited.done():
                driver.process.signal(signal.SIGKILL, group=True)
        run = _account(directory, graph.name, submitted)
        for sink in graph.sinks:
            if files := staged(sink, attempt):
                files.cleanup()
        shutil.rmtree(job.root)
        return run


def _account(directory: AttemptDirectory, name: str, submitted: float) -> GraphRun:
    result = directory.read_result()
    if result is None or result.state is not AttemptState.FINISHED:
        why = result.failure if result else "the driver left no result"
        raise RuntimeError(f"graph {name}: {why}\n{tail(directory.stderr)}")
    marks = {"submit": submitted}
    for event in EventTail(directory.events).new():
        if event["type"] in ("phase", "result"):
            marks[event.get("phase", event["type"])] = event["t"]
    spans = {
        "fork": ("submit", "connecting"),
        "connect": ("connecting", "compiling"),
        "compile": ("compiling", "running"),
        "write": ("running", "committing"),
        "commit": ("committing", "result"),
    }
    phases = {span: marks[until] - marks[since] for span, (since, until) in spans.items()}
    return GraphRun(marks["result"] - submitted, phases)
