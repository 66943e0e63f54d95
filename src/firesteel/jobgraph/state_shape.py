"""The state that the query of each sink keeps, and its streams, along the whole way from the sources to the sink."""

from __future__ import annotations

from dataclasses import dataclass, field

from .model import JobGraph, Python, Relation, Sink, Source, Sql
from .state_sql import KeptState, StateKind, query_state

_MOST = 500
"""The most vertices on all ways to a sink that are followed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The query of one sink."""

    kept: tuple[tuple[str, KeptState], ...]
    """Vertex and state, the sources' side first."""
    sources: tuple[Source, ...]
    """The streams that it reads, in the order in which Spark counts them, each as often as it is read."""
    unclear: tuple[tuple[str, str], ...]
    """Vertices whose state the graph does not tell, and why."""
    vertices: tuple[str, ...]
    """All vertices on the way."""


@dataclass(slots=True)
class _Walk:
    kept: list[tuple[str, KeptState]] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    unclear: dict[str, str] = field(default_factory=dict)
    vertices: dict[str, None] = field(default_factory=dict)
    steps: int = 0


def shape_of(graph: JobGraph, sink: Sink) -> Shape:
    """The state that the query of `sink` keeps. The graph is complete and valid."""
    walk = _Walk()
    streams = _streams(graph)
    _follow(graph, sink.input, streams, walk)
    return Shape(tuple(walk.kept), tuple(walk.sources), tuple(walk.unclear.items()), tuple(walk.vertices))


def _streams(graph: JobGraph) -> frozenset[str]:
    """Names of the vertices that are streams, without case."""
    found: set[str] = set()
    for v in graph.topological():
        match v:
            case Source():
                streaming = not v.static
            case Sql() | Python():
                streaming = any(i.lower() in found for i in v.inputs)
            case _:
                streaming = False
        if streaming:
            found.add(v.name.lower())
    return frozenset(found)


def _follow(graph: JobGraph, name: str, streams: frozenset[str], walk: _Walk) -> None:
    vertex = graph.by_name.get(name)
    walk.steps += 1
    if vertex is None or name.lower() not in streams:
        return
    if walk.steps > _MOST:
        walk.unclear[name] = "there are too many ways to the sink"
        return
    walk.vertices[name] = None
    spelling = {v.name.lower(): v.name for v in graph.vertices}
    match vertex:
        case Source():
            walk.sources.append(vertex)
        case Sql():
            inputs = frozenset(i.lower() for i in vertex.inputs)
            state = query_state(vertex.query, streams & inputs)
            reads = [spelling[r] for r in state.reads if r in inputs and r in spelling]
            for read in reads or vertex.inputs:
                _follow(graph, read, streams, walk)
            walk.kept += [(name, kept) for kept in state.kept]
            if state.unclear:
                walk.unclear[name] = state.unclear
        case Python():
            for read in vertex.inputs:
                _follow(graph, read, streams, walk)
            walk.unclear[name] = f"{vertex.function} is code"
        case _:
            return
    _deduplicate(vertex, walk)


def _deduplicate(vertex: Relation, walk: _Walk) -> None:
    if vertex.deduplicate is not None:
        columns = tuple(c.lower() for c in vertex.deduplicate.columns)
        within = vertex.deduplicate.within_watermark
        kind = StateKind.DEDUPLICATION_IN_WATERMARK if within else StateKind.DEDUPLICATION
        walk.kept.append((vertex.name, KeptState(kind, columns)))
