"""Graph against hand-written PySpark, on the same engine and in the same rounds."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dataset import Dataset, ensure
from benchmarks.graph_run import GraphRun, GraphRunner
from benchmarks.harness import Sample, Workbench, cpu_seconds, deadline, interleave, plain_client, say, settle, table
from benchmarks.pipelines import PIPELINES, Pipeline

from firesteel.engines.record import EngineRecord
from firesteel.worker.pool import DriverPool

BUDGET = 1.03
COUNTS_FROM_SECONDS = 10.0
"""The budget speaks of pipelines that take at least this long."""

WARM_UP = 2

GRAPH, HAND, CONTROL = "graph", "by hand", "by hand again"


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    cpu: float
    """Processor seconds of the engine."""


def run(
    bench: Workbench, data: Dataset, report: dict[str, Any], *, rounds: int, control: bool, only: tuple[str, ...]
) -> None:
    """Fills `report` pipeline by pipeline: it is long, and what was measured before a Ctrl-C is still worth showing."""
    report |= {"data": data.describe(), "budget": BUDGET, "pipelines": {}}
    work = bench.folder("queries")
    with bench.engine() as engine, DriverPool(log=work / "pool.log") as pool:
        with deadline(bench.timeout * 5, "making the data"), plain_client(engine) as spark:
            ensure(data, spark)
        runner = GraphRunner(engine, pool, work, timeout=bench.timeout)
        try:
            for pipeline in [p for p in PIPELINES if not only or p.name in only]:
                report["pipelines"][pipeline.name] = _compare(pipeline, engine, runner, data, bench, rounds, control)
        finally:
            if report["pipelines"]:
                _show(report, data)


def _compare(
    pipeline: Pipeline,
    engine: EngineRecord,
    runner: GraphRunner,
    data: Dataset,
    bench: Workbench,
    rounds: int,
    control: bool,
) -> dict[str, Any]:
    outputs = bench.folder(f"out/{pipeline.name}")
    graph = pipeline.graph(data, str(outputs / "graph"))
    runs: list[GraphRun] = []

    def as_graph() -> Run:
        done = runner.run(graph)
        runs.append(done)
        return Run(done.seconds, done.cpu)

    def by_hand() -> Run:
        with deadline(bench.timeout, f"{pipeline.name} by hand"):
            before, began = cpu_seconds(engine.process), time.perf_counter()
            with plain_client(engine) as spark:
                pipeline.by_hand(spark, data, str(outputs / "hand"))
                return Run(time.perf_counter() - began, cpu_seconds(engine.process) - before)

    def told(when: str, name: str, run: Run) -> None:
        say(f"{pipeline.name}: {when}, {name} {run.seconds:.2f} s, engine cpu {run.cpu:.2f} s")

    variants: dict[str, Callable[[], Run]] = {GRAPH: as_graph, HAND: by_hand}
    if control:
        variants[CONTROL] = by_hand
    # Unmeasured at first: the engine compiles its hot paths, and the two outputs are checked to be the same rows.
    interleave({GRAPH: as_graph, HAND: by_hand}, WARM_UP, lambda _, name, run: told("warm-up", name, run))
    with deadline(bench.timeout, "comparing outputs"), plain_client(engine) as spark:
        rows = _same_rows(pipeline, spark, outputs)
    runs.clear()
    measured = interleave(variants, rounds, lambda n, name, run: told(f"round {n}/{rounds}", name, run), between=settle)
    samples = {name: Sample.of([r.seconds for r in found]) for name, found in measured.items()}
    cpu = {name: Sample.of([r.cpu for r in found]) for name, found in measured.items()}
    shutil.rmtree(outputs)
    ratio = samples[GRAPH].over(samples[HAND])
    return {
        "what": pipeline.what,
        "vertices": len(graph.vertices),
        "output_rows": rows,
        "seconds": {name: sample.as_json() for name, sample in samples.items()},
        "engine_cpu": {name: sample.as_json() for name, sample in cpu.items()},
        "ratio": ratio.as_json(),
        "cpu_ratio": cpu[GRAPH].over(cpu[HAND]).as_json() if cpu[HAND].low > 0 else None,
        "control_ratio": samples[CONTROL].over(samples[HAND]).as_json() if control else None,
        "phases": {name: statistics.median(r.phases[name] for r in runs) for name in runs[0].phases},
        "counts": samples[HAND].median >= COUNTS_FROM_SECONDS,
        "verdict": ratio.verdict(BUDGET),
    }


def _same_rows(pipeline: Pipeline, spark: Any, outputs: Path) -> int:
    """Both sides wrote the same rows, whatever their order; how many."""
    total = 0
    for name in pipeline.outputs:
        found = []
        for side in ("graph", "hand"):
            written = spark.read.parquet(str(outputs / side / name))
            columns = ", ".join(f"`{c}`" for c in sorted(written.columns))
            found.append(
                written.selectExpr(f"xxhash64({columns}) AS h").selectExpr("count(*)", "sum(cast(h AS decimal(38, 0)))")
            )
        graph, hand = (tuple(frame.collect()[0]) for frame in found)
        if graph != hand or not graph[0]:
            raise RuntimeError(
                f"{pipeline.name}: output {name} differs (rows, hash): {graph} by the graph, {hand} by hand; "
                "a ratio of different work means nothing"
            )
        total += graph[0]
    return total


def _show(report: dict[str, Any], data: Dataset) -> None:
    rows = []
    for name, found in report["pipelines"].items():
        seconds = {k: Sample.of(v["values"]) for k, v in found["seconds"].items()}
        control, cpu = found["control_ratio"], found["cpu_ratio"]
        verdict = found["verdict"] if found["counts"] else "short"
        phases = found["phases"]
        around = 1000 * (phases["fork"] + phases["connect"] + phases["compile"])
        rows.append(
            [
                name,
                str(found["vertices"]),
                seconds[HAND].show(),
                seconds[GRAPH].show(),
                Sample.of(found["ratio"]["values"]).show(digits=3),
                Sample.of(cpu["values"]).show(digits=3) if cpu else "-",
                Sample.of(control["values"]).show(digits=3) if control else "-",
                f"{around:.0f} + {1000 * phases['commit']:.0f}",
                verdict,
            ]
        )
    table(
        f"queries: graph against hand-written PySpark, budget {BUDGET}",
        [
            "pipeline",
            "vertices",
            "by hand s",
            "graph s",
            "graph/hand",
            "cpu graph/hand",
            "control",
            "overhead ms",
            "budget",
        ],
        rows,
        f"{data.describe()}.\n"
        "Median [lowest-highest]; ratios within a round. cpu: processor time of the engine. control: by hand against itself. "
        "overhead: fork, connect, compile + commit.\n"
        f"?: the range does not settle it, or fewer than six rounds. short: under {COUNTS_FROM_SECONDS:g} s, not counted.",
    )
