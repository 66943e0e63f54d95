"""What it costs to turn a graph into Spark plans, on a warm engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, Sample, Workbench, deadline, interleave, plain_client, say, table
from benchmarks.pipelines import Vertex, graph, python, source, sql

from firesteel.driver.artifacts import put_on_path, resolve_function
from firesteel.engines.record import EngineRecord
from firesteel.jobgraph.model import Artifacts, JobGraph
from firesteel.spark.compiler import compile_graph
from firesteel.spark.session import EngineSession

BUDGET_MS = 50.0
VERTICES = 20
COLUMNS = "event_id BIGINT, cents INT, country STRING"
WARM_UP = 5


def cases(path: str) -> dict[str, JobGraph]:
    """Graphs of twenty vertices that differ in what they cost to compile."""
    bare, typed = source("events", path), source("events", path, schema=COLUMNS)
    return {
        "20 vertices, SQL chain": _chain(bare, _sql_link),
        "20 vertices, Python chain": _chain(bare, _python_link),
        "20 vertices, 4 shared": _shared(bare),
        "20 vertices, 4 shared, schema declared": _shared(typed),
    }


def _end(reads: str) -> Vertex:
    return {"kind": "sink", "name": f"to_{reads}", "input": reads, "format": "noop", "mode": "overwrite"}


def _sql_link(number: int, reads: str) -> Vertex:
    return sql(f"s{number}", f"SELECT event_id, cents + 1 AS cents, country FROM {reads} WHERE cents > {number}", reads)


def _python_link(number: int, reads: str) -> Vertex:
    return python(f"s{number}", "keep", reads, step=number)


def _chain(first: Vertex, link: Callable[[int, str], Vertex]) -> JobGraph:
    vertices = [first]
    for number in range(1, VERTICES - 1):
        vertices.append(link(number, vertices[-1]["name"]))
    return _sized(*vertices, _end(vertices[-1]["name"]))


def _shared(first: Vertex) -> JobGraph:
    """Four diamonds in a row: each begins at a vertex that two others read."""
    vertices, last = [first], first["name"]
    for number in range(1, 5):
        left, right, both, after = (f"{part}{number}" for part in ("left", "right", "both", "after"))
        vertices += [
            sql(left, f"SELECT * FROM {last} WHERE cents % 2 = 0", last),
            sql(right, f"SELECT * FROM {last} WHERE cents % 2 = 1", last),
            sql(both, f"SELECT * FROM {left} UNION ALL SELECT * FROM {right}", left, right),
            python(after, "keep", both, step=number),
        ]
        last = after
    vertices.append(sql("tail", f"SELECT * FROM {last} WHERE cents > 9", last))
    vertices.append(sql("done", "SELECT country, sum(cents) AS cents FROM tail GROUP BY country", "tail"))
    return _sized(*vertices, _end("done"))


def _sized(*vertices: Vertex) -> JobGraph:
    assert len(vertices) == VERTICES, len(vertices)
    return graph("compile", *vertices)


def run(bench: Workbench, *, repetitions: int) -> dict[str, Any]:
    put_on_path(Artifacts(py_files=(str(HERE / "pipeline_functions.py"),)))
    report: dict[str, Any] = {"budget_ms": BUDGET_MS, "cases": {}}
    with bench.engine() as engine, deadline(bench.timeout, "compiling"):
        path = bench.root / "compile-events"
        _make_table(engine, path)
        for name, job in cases(str(path)).items():
            say(f"compile: {name}")
            report["cases"][name] = _measure(engine, job, repetitions)
    _show(report, repetitions)
    return report


def _make_table(engine: EngineRecord, path: Path) -> None:
    with plain_client(engine) as spark:
        rows = spark.range(10_000).selectExpr("id AS event_id", "cast(id % 500 AS int) AS cents", "'C01' AS country")
        rows.write.mode("overwrite").parquet(str(path))


def _measure(engine: EngineRecord, job: JobGraph, repetitions: int) -> dict[str, Any]:
    kept = EngineSession(engine.remote(str(uuid.uuid4())))

    def same() -> float:
        began = time.perf_counter()
        compile_graph(job, kept, resolve_function)
        return time.perf_counter() - began

    def new() -> float:
        """As a driver does it: the session's first question to the engine may fall into the compilation."""
        session = EngineSession(engine.remote(str(uuid.uuid4())))
        try:
            began = time.perf_counter()
            compile_graph(job, session, resolve_function)
            return time.perf_counter() - began
        finally:
            session.close()

    try:
        interleave({"new session": new, "same session": same}, WARM_UP)
        measured = interleave({"new session": new, "same session": same}, repetitions)
    finally:
        kept.close()
    milliseconds = {name: Sample.of([v * 1000 for v in values]) for name, values in measured.items()}
    return {
        "vertices": len(job.vertices),
        "shared": sum(len(readers) > 1 for readers in job.consumers.values()),
        "ms": {name: sample.as_json() for name, sample in milliseconds.items()},
        "verdict": milliseconds["new session"].verdict(BUDGET_MS),
    }


def _show(report: dict[str, Any], repetitions: int) -> None:
    rows = [
        [
            name,
            str(case["vertices"]),
            str(case["shared"]),
            *(Sample.of(case["ms"][kind]["values"]).show(digits=1) for kind in ("new session", "same session")),
            case["verdict"],
        ]
        for name, case in report["cases"].items()
    ]
    table(
        f"compile: graph to Spark plans on a warm engine, budget {BUDGET_MS:.0f} ms",
        ["graph", "vertices", "shared", "new session ms", "same session ms", "budget"],
        rows,
        f"n={repetitions} each, by turns. Median [lowest-highest].",
    )
