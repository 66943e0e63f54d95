"""A job graph as a tree for terminals: sinks at the left, what they read below them."""

from __future__ import annotations

from collections.abc import Iterable

from .model import AVAILABLE_NOW, AnyVertex, Interactive, JobGraph, Python, Script, Sink, Source, Sql, inputs_of

_QUERY_WIDTH = 60


def tree(graph: JobGraph) -> str:
    """One line per vertex; a vertex with several readers is shown in full once and referred to afterwards.

    Vertices that lead to no sink come last, so that a broken graph can be shown too.
    """
    lines = [f"{graph.name} ({graph.mode})"]
    shown: set[str] = set()
    roots = [v.name for v in graph.vertices if isinstance(v, Sink | Script | Interactive)]
    reached = _reachable(graph, roots)
    read = {name for v in graph.vertices if v.name not in reached for name in inputs_of(v)}
    rest = [v.name for v in graph.vertices if v.name not in reached and v.name not in read]
    roots += rest or [v.name for v in graph.vertices if v.name not in reached][:1]
    for i, name in enumerate(roots):
        lines += _branch(graph, name, "", i == len(roots) - 1, shown)
    return "\n".join(lines)


def _branch(graph: JobGraph, name: str, indent: str, last: bool, shown: set[str]) -> list[str]:
    stem, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
    vertex = graph.by_name.get(name)
    if vertex is None:
        return [f"{indent}{stem}{name} (missing)"]
    if name in shown:
        return [f"{indent}{stem}{name} (shown above)"]
    shown.add(name)
    lines = [f"{indent}{stem}{name}  {describe(vertex)}"]
    inputs = list(dict.fromkeys(inputs_of(vertex)))
    for i, child in enumerate(inputs):
        lines += _branch(graph, child, indent + below, i == len(inputs) - 1, shown)
    return lines


def describe(vertex: AnyVertex) -> str:
    """A vertex in a few words."""
    match vertex:
        case Source():
            return _words("source", vertex.format, vertex.path or vertex.table, "static" if vertex.static else None)
        case Sql():
            return _words("sql", _short(vertex.query))
        case Python():
            return _words("python", vertex.function)
        case Sink():
            how = vertex.foreach_batch or vertex.format
            return _words("sink", how, vertex.output_mode or vertex.mode, vertex.path or vertex.table, _trigger(vertex))
        case Script():
            return _words("script", vertex.file, *vertex.args)
        case Interactive():
            return _words("session", f"until idle for {vertex.idle_timeout}")


def _trigger(sink: Sink) -> str | None:
    if sink.trigger is None:
        return None
    return sink.trigger if sink.trigger == AVAILABLE_NOW else f"every {sink.trigger}"


def _short(query: str) -> str:
    line = " ".join(query.split())
    return line if len(line) <= _QUERY_WIDTH else line[: _QUERY_WIDTH - 1] + "…"


def _words(*words: str | None) -> str:
    return " ".join(w for w in words if w)


def _reachable(graph: JobGraph, roots: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name not in seen and name in graph.by_name:
            seen.add(name)
            todo.extend(inputs_of(graph.by_name[name]))
    return seen
