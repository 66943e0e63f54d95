"""Rows per physical operator, from Spark's own SQL metrics, and those of them that can be attributed to vertices.

Spark fuses, splits and reorders what the user wrote, so a physical operator is not a vertex. Two ends hold: a scan is a source
vertex, and the write command is the sink. What lies between is shown as Spark's operators with their rows.
"""

from __future__ import annotations

import time
from typing import Any

from firesteel.engines.api import EngineApi
from firesteel.engines.record import EngineRecord
from firesteel.jobgraph.model import JobGraph, Sink, Source, inputs_of
from firesteel.types import SparkIds

_OUTPUT_ROWS = "number of output rows"
_WRITES = ("Execute Insert", "Execute Save", "OverwriteByExpression", "AppendData")


def harvest(engine: EngineRecord, names: SparkIds, graph: JobGraph, *, timeout: float = 3.0) -> dict[str, Any]:
    """Operators with rows for each sink, and rows for the vertices that they tell of."""
    if not engine.ui_port:
        return {}
    api = EngineApi(engine)
    sinks: dict[str, Any] = {}
    rows: dict[str, int] = {}
    for sink in graph.sinks:
        execution = _execution(api, names, sink.name, timeout)
        if execution is None:
            continue
        operators = [_operator(n) for n in execution["nodes"] if n.get("nodeName")]
        sinks[sink.name] = {"operators": operators, "edges": execution["edges"]}
        for vertex, count in overlay(graph, sink, operators).items():
            # A scan below a cache runs for the first sink only; for the others it says 0.
            rows[vertex] = max(count, rows.get(vertex, 0))
    return {"sinks": sinks, "rows": rows}


def overlay(graph: JobGraph, sink: Sink, operators: list[dict[str, Any]]) -> dict[str, int]:
    """Rows of the source vertices and of the sink, where the physical plan leaves no doubt."""
    rows: dict[str, int] = {}
    for operator in operators:
        if operator["name"].startswith(_WRITES) and operator["rows"] is not None:
            rows[sink.name] = operator["rows"]
    scans = [o for o in operators if _is_scan(o) and o["rows"] is not None]
    sources = _upstream_sources(graph, sink.name)
    for source in sources:
        if source.path is None:
            continue
        marks = [o for o in scans if source.path.rstrip("/*") in o["description"]]
        if len(marks) == 1 and sum(s.path == source.path for s in sources) == 1:
            rows[source.name] = marks[0]["rows"]
    if len(scans) == 1 and len(sources) == 1:
        rows[sources[0].name] = scans[0]["rows"]
    return rows


def _is_scan(operator: dict[str, Any]) -> bool:
    name: str = operator["name"]
    return name.startswith(("Scan ", "BatchScan", "Range", "LocalTableScan", "FileScan"))


def _upstream_sources(graph: JobGraph, name: str) -> list[Source]:
    found: dict[str, Source] = {}
    todo = [name]
    while todo:
        vertex = graph.by_name[todo.pop()]
        if isinstance(vertex, Source):
            found[vertex.name] = vertex
        todo += inputs_of(vertex)
    return list(found.values())


def _operator(node: dict[str, Any]) -> dict[str, Any]:
    metrics = {m["name"]: m["value"] for m in node.get("metrics", ())}
    return {
        "id": node["nodeId"],
        "name": node["nodeName"].strip(),
        "description": node.get("desc", "")[:2000],
        "rows": _number(metrics.get(_OUTPUT_ROWS) or metrics.get("shuffle records written")),
        "metrics": metrics,
    }


def _number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").strip()
    return int(digits) if digits.isdigit() else None


def _execution(api: EngineApi, names: SparkIds, vertex: str, timeout: float) -> dict[str, Any] | None:
    """The SQL execution of a sink's operation. Spark's listeners run behind: ask until the last metrics are in."""
    tag = (
        f"SparkConnect_OperationTag_User_{names.user_id}_Session_{names.session_id}"
        f"_Operation_{names.operation_id(vertex)}"
    )
    deadline = time.monotonic() + timeout
    while True:
        detail = api.get("connect/operations/detail", jobTag=tag)
        ids = detail.get("sqlExecIds") if detail else None
        if ids:
            execution: dict[str, Any] | None = api.get(
                f"sql/{max(int(i) for i in ids)}", details="true", planDescription="false"
            )
            if execution and execution.get("status") == "COMPLETED":
                return execution
        if time.monotonic() > deadline:
            return None
        time.sleep(0.05)
