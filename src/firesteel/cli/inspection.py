"""Have Spark analyse a graph without running it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec
from firesteel.cli.engine_for import engine_for
from firesteel.config import Configuration
from firesteel.errors import FiresteelError, Problem
from firesteel.fs.files import read_json, tail
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.plan import RunPlan
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.pool import DriverPool


def inspect(graph: JobGraph, configuration: Configuration) -> tuple[dict[str, Any], list[Problem]]:
    """Return schemas, plans and the problems that Spark's analyser finds. User functions run in a driver, as always."""
    plan = RunPlan.of(graph, configuration)
    with tempfile.TemporaryDirectory(prefix="firesteel-info-") as scratch, engine_for(plan, configuration) as engine:
        directory = AttemptDirectory(Path(scratch) / "attempt")
        directory.prepare(
            AttemptSpec(
                AttemptId(new_job_id(), 1),
                graph,
                engine,
                default_parallelism=configuration.parallelism.default,
                spark=configuration.spark,
            )
        )
        with DriverPool(python=plan.python, passed=configuration.driver.environment_pass) as pool:
            driver = pool.spawn(
                "inspect",
                {"directory": str(directory.root)},
                stdout=directory.stdout,
                stderr=directory.stderr,
                cwd=Path.cwd(),
                env=plan.driver_environment,
            )
            status = driver.exited.result(timeout=120).status
        report = read_json(directory.root / "inspection.json")
        if report is None:
            raise FiresteelError(
                f"the driver that had Spark analyse the graph ended with {status}:\n{tail(directory.stderr)}"
            )
    return report, [Problem(p["message"], p["fix"], p["vertex"], p["field"]) for p in report["problems"]]
