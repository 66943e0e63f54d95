"""What it costs to turn a graph into Spark plans, on a warm engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, Sample, Workbench, deadline, interleave, plain_client, say, table
from benchmarks.pipelines import Vertex, graph, python, source, sql

from firesteel.driver.artifacts import put_on_path, resolve_function
from firesteel.engines.record import EngineRecord
from firesteel.jobgraph.model import Artifacts, JobGraph, Python, Sink, Source, Sql
from firesteel.spark_connect.compiler import compile_graph
from firesteel.spark_connect.session import EngineSession

BUDGET_MS = 50.0
VERTICES = 20
COLUMNS = "event_id BIGINT, cents INT, country STRING"
WARM_UP = 10
NEW, SAME = "new session", "same session"
BY_HAND = "by hand"


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


@dataclass(frozen=True, slots=True)
class Compilation:
    compiled: float
    """Seconds of compile_graph."""
    analysed: float
    """Seconds until the engine has also analysed the plan of every sink. A plan without views is sent, and so analysed,
    only when a sink runs: without this number such a graph would look as if it were free."""


def _measure(engine: EngineRecord, job: JobGraph, repetitions: int) -> dict[str, Any]:
    kept = EngineSession(engine.remote(str(uuid.uuid4())))

    def on(session: EngineSession) -> Compilation:
        began = time.perf_counter()
        found = compile_graph(job, session, resolve_function)
        compiled = time.perf_counter() - began
        for sink in job.sinks:
            _ = found.frames[sink.name].schema
        return Compilation(compiled, time.perf_counter() - began)

    def on_new() -> Compilation:
        """As a driver does it: the session's first question to the engine falls into the compilation."""
        session = EngineSession(engine.remote(str(uuid.uuid4())))
        try:
            return on(session)
        finally:
            session.close()

    def by_hand() -> Compilation:
        """As a program does it: each step a query, each query a view that the next one names."""
        session = EngineSession(engine.remote(str(uuid.uuid4())))
        try:
            began = time.perf_counter()
            _views(job, session.spark)
            seconds = time.perf_counter() - began
            return Compilation(seconds, seconds)
        finally:
            session.close()

    variants: dict[str, Callable[[], Compilation]] = {NEW: on_new, SAME: lambda: on(kept), BY_HAND: by_hand}
    try:
        interleave(variants, WARM_UP)
        measured = interleave(variants, repetitions)
    finally:
        kept.close()
    compiled = {name: Sample.of([c.compiled * 1000 for c in found]) for name, found in measured.items()}
    analysed = {name: Sample.of([c.analysed * 1000 for c in found]) for name, found in measured.items()}
    return {
        "vertices": len(job.vertices),
        "shared": sum(len(readers) > 1 for readers in job.consumers.values()),
        "compiled_ms": {name: sample.as_json() for name, sample in compiled.items()},
        "analysed_ms": {name: sample.as_json() for name, sample in analysed.items()},
        "verdict": compiled[NEW].verdict(BUDGET_MS),
    }


def _views(job: JobGraph, spark: Any) -> None:
    for vertex in job.topological():
        match vertex:
            case Source():
                reader = spark.read.format(vertex.format)
                frame = (reader.schema(vertex.schema_) if vertex.schema_ else reader).load(vertex.path)
            case Sql():
                frame = spark.sql(vertex.query)
            case Python():
                frame = resolve_function(vertex.function)(*(spark.table(i) for i in vertex.inputs), **vertex.args)
            case Sink():
                _ = spark.table(vertex.input).schema
                continue
            case _:
                raise AssertionError("no scripts here")
        frame.createOrReplaceTempView(vertex.name)


def _show(report: dict[str, Any], repetitions: int) -> None:
    rows = [
        [
            name,
            str(case["shared"]),
            *(
                Sample.of(case[what][kind]["values"]).show(digits=1)
                for what in ("compiled_ms", "analysed_ms")
                for kind in (NEW, SAME)
            ),
            Sample.of(case["analysed_ms"][BY_HAND]["values"]).show(digits=1),
            case["verdict"],
        ]
        for name, case in report["cases"].items()
    ]
    table(
        f"compile: graph to Spark plans on a warm engine, ms, budget {BUDGET_MS:.0f} ms for compile in a new session",
        ["graph", "shared", f"compile, {NEW}", SAME, f"+ analysis, {NEW}", SAME, BY_HAND, "budget"],
        rows,
        f"n={repetitions} each, by turns. Median [lowest-highest]. + analysis: until the engine has analysed every sink, too.\n"
        "A vertex with one reader costs no round trip; a shared one becomes a view, which the engine analyses at once.\n"
        "By hand: the same steps as a program, a query and a view each, in a new session; to be compared with + analysis.",
    )
