"""The plan of a job: its graph, in the form of the contract."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from firesteel.flink_rest.view import JobView, VertexView
from firesteel.masking import mask_text
from firesteel.rest.answers import Json
from firesteel.types import vertex_id

_LONGEST = 2000
"""The length of a description in characters; a query may be too long for a box."""

_SHOWN = {
    "source": ("format", "path", "table"),
    "sql": ("query",),
    "python": ("function",),
    "sink": ("format", "path", "table", "mode", "output_mode", "foreach_batch"),
    "script": ("file",),
}
"""The fields that best describe a vertex, by kind. Options are left out, as they may hold secrets."""


def render_plan(job: JobView) -> Json:
    texts = {v["name"]: v for v in job.graph.get("vertices", ())}
    return {
        "jid": job.job_id,
        "name": job.name,
        "type": job.job_type,
        "nodes": [_node(v, texts.get(v.name, {})) for v in job.vertices],
    }


def _node(vertex: VertexView, graph: Mapping[str, Any]) -> Json:
    node: Json = {
        "id": vertex.id,
        "operator": "",
        "parallelism": vertex.parallelism,
        "operator_strategy": "",
        "description": description(vertex, graph),
        "optimizer_properties": {},
    }
    if vertex.inputs:
        exchange = "pipelined_bounded" if vertex.job.streaming else "blocking"
        node["inputs"] = [
            {"id": vertex_id(name), "num": number, "exchange": exchange, "ship_strategy": ship_strategy(vertex, name)}
            for number, name in enumerate(vertex.inputs)
        ]
    return node


def ship_strategy(vertex: VertexView, name: str) -> str:
    """The strategy in Spark's plan, once the driver has reported it. Before that, and if it is ambiguous, it is empty."""
    edges: Mapping[str, Mapping[str, str]] = vertex.job.progress.get("edges") or {}
    return edges.get(vertex.name, {}).get(name, "")


def description(vertex: VertexView, graph: Mapping[str, Any]) -> str:
    """The description as HTML, which clients expect: all text of users is escaped (S15)."""
    return "".join(f"{html.escape(_short(mask_text(line)))}<br/>" for line in _lines(vertex, graph))


def _lines(vertex: VertexView, graph: Mapping[str, Any]) -> Iterator[str]:
    kind: str = vertex.data["kind"]
    shown = [key for key in _SHOWN.get(kind, ()) if graph.get(key)]
    if vertex.job.streaming and "mode" in shown:
        shown.remove("mode")  # only for batch; a stream has output_mode
    said = [f"{key}=[{' '.join(str(graph[key]).split())}]" for key in shown]
    yield f"{kind.capitalize()} {vertex.name}: {', '.join(said)}" if said else f"{kind.capitalize()} {vertex.name}"
    if words := vertex.data.get("description"):
        yield str(words)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
