"""The plan of a job: its graph, in the contract's shape."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from firesteel.flink_rest.view import JobView, VertexView
from firesteel.masking import mask_text
from firesteel.rest.answers import Json
from firesteel.rest.vertex_ids import vertex_id

_LONGEST = 2000
"""Characters of a description; a query may be longer than anybody wants to see in a box."""

_SHOWN = {
    "source": ("format", "path", "table"),
    "sql": ("query",),
    "python": ("function",),
    "sink": ("format", "path", "table", "mode", "output_mode", "foreach_batch"),
    "script": ("file",),
}
"""What says best what a vertex of a kind does. Options are left out: they hold more secrets than insights."""


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
    """As Spark's plan has it, once the driver has told. Before that, and where it is in doubt, nothing is said of an edge."""
    edges: Mapping[str, Mapping[str, str]] = vertex.job.progress.get("edges") or {}
    return edges.get(vertex.name, {}).get(name, "")


def description(vertex: VertexView, graph: Mapping[str, Any]) -> str:
    """As HTML, which is what clients take it for: everything that a user wrote is escaped (S15)."""
    return "".join(f"{html.escape(_short(mask_text(line)))}<br/>" for line in _lines(vertex, graph))


def _lines(vertex: VertexView, graph: Mapping[str, Any]) -> Iterator[str]:
    kind: str = vertex.data["kind"]
    shown = [key for key in _SHOWN.get(kind, ()) if graph.get(key)]
    if vertex.job.streaming and "mode" in shown:
        shown.remove("mode")  # of a batch; what a stream writes is its output_mode
    said = [f"{key}=[{' '.join(str(graph[key]).split())}]" for key in shown]
    yield f"{kind.capitalize()} {vertex.name}: {', '.join(said)}" if said else f"{kind.capitalize()} {vertex.name}"
    if words := vertex.data.get("description"):
        yield str(words)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
