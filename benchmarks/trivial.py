"""What a job costs that does nothing: through a driver process, by a bare Connect client, and with spark-submit."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from benchmarks.graph_run import GraphRunner
from benchmarks.harness import HERE, Sample, Workbench, deadline, interleave, plain_client, say, table

from firesteel.fs.files import tail
from firesteel.jobgraph.model import JobGraph
from firesteel.worker.pool import DriverPool

QUERY = "SELECT id FROM range(1)"
BUDGET_BARE, BUDGET_SUBMIT = 1.3, 50.0
BARE, DRIVER, SUBMIT = "bare Connect client", "driver process", "spark-submit"
WARM_UP = 5
SUBMIT_SECONDS = 120.0


def run(bench: Workbench, *, repetitions: int, submits: int) -> dict[str, Any]:
    graph = JobGraph.model_validate(
        {
            "name": "trivial",
            "vertices": [
                {"kind": "sql", "name": "one", "query": QUERY},
                {"kind": "sink", "name": "nowhere", "input": "one", "format": "noop", "mode": "overwrite"},
            ],
        }
    )
    work = bench.folder("trivial")
    with bench.engine() as engine, DriverPool(log=work / "pool.log") as pool:
        runner = GraphRunner(engine, pool, work, timeout=bench.timeout)

        def bare() -> float:
            with deadline(bench.timeout, BARE):
                began = time.perf_counter()
                with plain_client(engine) as spark:
                    spark.sql(QUERY).write.format("noop").mode("overwrite").save()
                    return time.perf_counter() - began

        phases: list[dict[str, float]] = []

        def driver() -> float:
            done = runner.run(graph)
            phases.append(done.phases)
            return done.seconds

        say("trivial: warming up")
        interleave({BARE: bare, DRIVER: driver}, WARM_UP)
        phases.clear()
        measured = interleave({BARE: bare, DRIVER: driver}, repetitions)
    say(f"trivial: spark-submit, {submits} times")
    measured[SUBMIT] = [_submit(bench) for _ in range(submits)]
    samples = {name: Sample.of(values) for name, values in measured.items()}
    ratio = samples[DRIVER].over(samples[BARE])
    # Of different lengths, so no rounds to pair: the ratio of the medians.
    gain = samples[SUBMIT].median / samples[DRIVER].median
    spent = {name: Sample.of([p[name] for p in phases]) for name in phases[0]}
    rows = [
        [BARE, samples[BARE].show(digits=0, scale=1000), "1", ""],
        [DRIVER, samples[DRIVER].show(digits=0, scale=1000), ratio.show(), f"<= {BUDGET_BARE}"],
        [SUBMIT, samples[SUBMIT].show(digits=0, scale=1000), f"{gain:.0f} x the driver's", f">= {BUDGET_SUBMIT:.0f} x"],
    ]
    table(
        "trivial job: one row to nowhere, on a warm engine",
        ["how", "ms", "ratio", "budget"],
        rows,
        f"n={repetitions} by turns, spark-submit n={submits}. Median [lowest-highest]. Of the driver's time: "
        + ", ".join(f"{name} {s.median * 1000:.0f}" for name, s in spent.items())
        + " ms.",
    )
    return {
        "ms": {name: _milliseconds(s) for name, s in samples.items()},
        "ratio_to_bare": ratio.as_json(),
        "gain_over_spark_submit": gain,
        "driver_phases_ms": {name: _milliseconds(s) for name, s in spent.items()},
    }


def _milliseconds(sample: Sample) -> dict[str, Any]:
    return Sample.of([v * 1000 for v in sample.values]).as_json()


def _submit(bench: Workbench) -> float:
    log = bench.root / "trivial-submit.log"
    began = time.perf_counter()
    child = bench.spark_submit([str(HERE / "trivial_program.py")], log=log)
    try:
        status = child.wait(timeout=SUBMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"spark-submit did not end within {SUBMIT_SECONDS:g} s\n{tail(log)}") from error
    finally:
        bench.finish(child)
    if status != 0:
        raise RuntimeError(f"spark-submit ended with {status}\n{tail(log)}")
    return time.perf_counter() - began
