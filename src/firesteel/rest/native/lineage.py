"""The inputs and outputs of a job and the mapping between them, and the operators that Spark ran."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NotRequired

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.jobgraph.columns import Column, columns_of_scan, columns_of_schema
from firesteel.masking import mask
from firesteel.rest.answers import encode, encoded
from firesteel.rest.context import CallerParam, Context, RestContext
from firesteel.rest.logs import OPERATORS, json_object
from firesteel.rest.params import JobIdParam
from firesteel.types import JobID

router = APIRouter(tags=["jobs"])


class LineagePlace(TypedDict):
    vertex: str
    format: str | None
    path: NotRequired[str]
    table: NotRequired[str]
    columns: list[Column] | None


Edge = TypedDict("Edge", {"from": str, "to": str})
OperatorEdge = TypedDict("OperatorEdge", {"from": int, "to": int})


class Lineage(TypedDict):
    job_id: str
    name: str
    mode: str
    inputs: list[LineagePlace]
    outputs: list[LineagePlace]
    edges: list[Edge]


class Operator(TypedDict):
    id: int
    name: str
    description: str
    rows: int | None
    metrics: dict[str, str]


class SinkOperators(TypedDict):
    vertex: str
    operators: list[Operator]
    edges: list[OperatorEdge]


class OperatorsMessage(TypedDict):
    job_id: str
    attempt: int
    rows: dict[str, int]
    """Operators by vertex, where the physical plan is unambiguous."""
    sinks: list[SinkOperators]


@router.get("/jobs/{jobid}/lineage", response_model=Lineage, summary="What a job reads and writes")
async def lineage(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    job = await context.gateway.request_job(caller.read(job_id))
    _, operators = await _operators(context, job_id, job)
    # A graph may have thousands of columns.
    return encoded(await asyncio.to_thread(lambda: encode(mask(render_lineage(job, operators)))))


@router.get(
    "/jobs/{jobid}/operators", response_model=OperatorsMessage, summary="Rows per physical operator of the last attempt"
)
async def operators(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """Empty until the attempt has ended, and for streams and scripts, for which Spark does not report operators."""
    job = await context.gateway.request_job(caller.read(job_id))
    attempt, found = await _operators(context, job_id, job)
    return encoded(await asyncio.to_thread(lambda: encode(mask(render_operators(job_id, attempt, found)))))


async def _operators(context: RestContext, job_id: JobID, job: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The last attempt, and the operators that its driver recorded."""
    numbers = await context.logs.attempts(job_id)
    if not numbers:  # its files expired or are on another node; the details may still have the operators
        told = _mapping(job.get("progress"))
        return (job.get("attempt") or 0) if "operators" in told else 0, {
            "rows": told.get("rows"),
            "sinks": told.get("operators"),
        }
    # A file that was truncated by a kill, or written by user code in the driver, counts as missing.
    file = context.logs.directory(job_id, numbers[-1]) / OPERATORS
    return numbers[-1], await asyncio.to_thread(json_object, file) or {}


def render_lineage(job: Mapping[str, Any], operators: Mapping[str, Any]) -> Lineage:
    """`operators` are those of the last attempt, as recorded by the driver; they may be empty."""
    graph: Mapping[str, Any] = job.get("graph") or {}
    vertices: list[dict[str, Any]] = graph.get("vertices") or []
    sources = [v for v in vertices if v["kind"] == "source"]
    scans = _scans(operators)
    return {
        "job_id": job["job_id"],
        "name": job["name"],
        "mode": job["mode"],
        "inputs": [_place(v, _columns(v, sources, scans)) for v in sources],
        "outputs": [_place(v, None) for v in vertices if v["kind"] == "sink"],
        "edges": [{"from": name, "to": v["name"]} for v in job["vertices"] for name in v["inputs"]],
    }


def render_operators(job_id: str, attempt: int, found: Mapping[str, Any]) -> OperatorsMessage:
    rows = _mapping(found.get("rows"))
    return {
        "job_id": job_id,
        "attempt": attempt,
        "rows": {vertex: count for vertex, count in rows.items() if isinstance(count, int)},
        "sinks": [_sink(vertex, _mapping(sink)) for vertex, sink in _mapping(found.get("sinks")).items()],
    }


def _sink(vertex: str, sink: Mapping[str, Any]) -> SinkOperators:
    return {
        "vertex": vertex,
        "operators": [_operator(o) for o in _mappings(sink.get("operators"))],
        "edges": [
            {"from": _int(e.get("fromId")) or 0, "to": _int(e.get("toId")) or 0} for e in _mappings(sink.get("edges"))
        ],
    }


def _operator(o: Mapping[str, Any]) -> Operator:
    return {
        "id": _int(o.get("id")) or 0,
        "name": str(o.get("name", "")),
        "description": str(o.get("description", "")),
        "rows": _int(o.get("rows")),
        "metrics": {str(k): str(v) for k, v in _mapping(o.get("metrics")).items()},
    }


def _place(vertex: Mapping[str, Any], columns: list[Column] | None) -> LineagePlace:
    place: LineagePlace = {"vertex": vertex["name"], "format": vertex.get("format"), "columns": columns}
    if path := vertex.get("path"):
        place["path"] = path
    if table := vertex.get("table") or (vertex.get("options") or {}).get("dbtable"):
        place["table"] = table
    return place


def _columns(source: Mapping[str, Any], sources: list[dict[str, Any]], scans: list[str]) -> list[Column] | None:
    if schema := source.get("schema"):
        return columns_of_schema(schema)
    path: str = source.get("path") or source.get("table") or ""
    meant = [s for s in scans if path and path.removeprefix("file:").rstrip("/*") in s]
    if sum((s.get("path") or s.get("table")) == path for s in sources) > 1:
        meant = []  # two vertices read the same, so their scans cannot be told apart
    if len(sources) == 1 and len(scans) == 1:
        meant = scans
    found = [c for c in map(columns_of_scan, meant) if c is not None]
    # Each sink has its own scan, which reads the columns that the sink needs.
    merged = {json.dumps(column): column for columns in found for column in columns}
    return list(merged.values()) or None


def _scans(operators: Mapping[str, Any]) -> list[str]:
    described = [
        str(o.get("description"))
        for sink in _mapping(operators.get("sinks")).values()
        for o in _mappings(_mapping(sink).get("operators"))
    ]
    return [d for d in described if "ReadSchema: " in d]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None
