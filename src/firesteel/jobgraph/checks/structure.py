"""Checks of names, inputs and cycles: is it a graph at all?"""

from __future__ import annotations

from firesteel.jobgraph.model import AnyVertex, Interactive, JobGraph, Script, Sink, inputs_of
from firesteel.jobgraph.nearest import listed, suggestion

from .context import Context


def check(c: Context) -> None:
    _duplicates(c)
    _program_alone(c)
    _resources(c)
    if any(isinstance(v, Script | Interactive) for v in c.graph.vertices):
        return
    _inputs(c)
    _cycles(c)


def _duplicates(c: Context) -> None:
    first: dict[str, AnyVertex] = {}
    for v in c.graph.vertices:
        other = first.setdefault(v.name.lower(), v)
        if other is v:
            continue
        c.excused.add(v.name.lower())
        line = c.line(other)
        where = f" on line {line}" if line else ""
        if other.name == v.name:
            c.add(v, "name", f"another vertex{where} has the same name", "rename one of them")
        else:
            message = f"the name differs from '{other.name}'{where} only in case, which SQL ignores"
            c.add(v, "name", message, "rename one of them")


def _program_alone(c: Context) -> None:
    if len(c.graph.vertices) < 2:
        return
    for v in c.graph.vertices:
        if isinstance(v, Script | Interactive):
            fix = "move the other vertices into a pipeline of their own"
            c.add(v, "kind", f"a {v.kind} must be the only vertex of its pipeline", fix)


def _resources(c: Context) -> None:
    without = [v for v in c.graph.vertices if v.resources is None]
    if without and len(without) < len(c.graph.vertices):
        for v in without:
            fix = "add resources here, or remove them everywhere"
            c.add(v, "resources", "is missing, and other vertices have it", fix)


def _inputs(c: Context) -> None:
    readable = [v.name for v in c.graph.vertices if not isinstance(v, Sink)]
    kinds = {v.name.lower(): v for v in c.graph.vertices}
    for v in c.graph.vertices:
        field = "input" if isinstance(v, Sink) else "inputs"
        for name in dict.fromkeys(inputs_of(v)):
            if not c.is_known(name):
                meant = c.spelling.nearest(name, (n for n in readable if n != v.name))
                others = listed(n for n in readable if n != v.name)
                otherwise = f"the vertices are {others}" if others else "add a source"
                c.add(v, field, f"there is no vertex '{name}'", suggestion(meant, otherwise))
                c.excused.add((meant or "").lower())
            elif isinstance(kinds.get(name.lower()), Sink):
                c.add(v, field, f"'{name}' is a sink and cannot be read", f"read what '{name}' reads")


def _cycles(c: Context) -> None:
    for cycle in cycles(c.graph):
        path = " → ".join((*cycle, cycle[0]))
        c.add(c.graph.by_name[cycle[0]], "", f"is part of a cycle: {path}", "remove one of these inputs")


def cycles(graph: JobGraph) -> list[tuple[str, ...]]:
    """The cycles of a graph in the direction of the data, each beginning with the vertex that the file has first."""
    order = {v.name: i for i, v in enumerate(graph.vertices)}
    found: dict[frozenset[str], tuple[str, ...]] = {}
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> None:
        if name in path:
            loop = path[path.index(name) :][::-1]  # the path goes from readers to inputs
            start = loop.index(min(loop, key=order.__getitem__))
            found.setdefault(frozenset(loop), (*loop[start:], *loop[:start]))
        elif name not in done and name in graph.by_name:
            path.append(name)
            for i in inputs_of(graph.by_name[name]):
                visit(i)
            path.pop()
            done.add(name)

    for v in graph.vertices:
        visit(v.name)
    return list(found.values())


def check_readers(c: Context) -> None:
    """Check that there is a sink, and that everything leads to one. Runs last: see `Context.excused`."""
    if c.partial or c.graph.is_program:
        return
    if not c.graph.sinks:
        c.add_top("vertices", "there is no sink, so nothing would be written", "add a vertex of kind sink")
        return
    for v in c.graph.vertices:
        if not isinstance(v, Sink) and not c.graph.consumers.get(v.name) and v.name.lower() not in c.excused:
            c.add(v, "", "nothing reads it", "add a vertex that reads it, or remove it")
