"""Finds the vertex that an error came from. Spark fuses vertices into one plan, so this is read from the error's text.

In order: the vertex that was being compiled; the one whose query the message quotes; the one whose function stands in the
Python traceback; the source whose files could not be read; else the sink whose query it was.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from firesteel.driver.failure import causes_of
from firesteel.jobgraph.model import JobGraph, Python, Source, Sql, inputs_of

_QUOTED = re.compile(r"== SQL \(line \d+, position \d+\) ==\n(.*?)\n[ \t]*\^", re.DOTALL)
"""The lines of a query that Spark points at."""
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,7}), in ')
_LEAST = 4
"""Characters: what is shorter stands in too many queries."""


def vertex_of(error: BaseException, graph: JobGraph) -> str | None:
    """The vertex that an error came from; None when nothing shows it, as when a driver could not reach its engine."""
    if (compiled := getattr(error, "firesteel_vertex", None)) is not None:
        return str(compiled)
    sink: str | None = getattr(error, "firesteel_sink", None)
    text = str(error)
    near = _upstream(graph, sink) if sink in graph.by_name else set(graph.by_name)
    whole = "\n".join([text, *(message for _, message in causes_of(error))])
    for candidates in (_by_query(graph, text), _by_function(graph, text), _by_path(graph, whole)):
        if len(found := candidates & near) == 1:
            return found.pop()
    return sink or None


def _by_query(graph: JobGraph, text: str) -> set[str]:
    lines = [line.strip() for block in _QUOTED.findall(text) for line in block.splitlines()]
    lines = [line for line in lines if len(line) >= _LEAST]
    if not lines:
        return set()
    # Spark cuts long lines, with dots where they go on.
    parts = [line.removeprefix("...").removesuffix("...") for line in lines]
    return {v.name for v in graph.vertices if isinstance(v, Sql) and all(p in v.query for p in parts)}


def _by_function(graph: JobGraph, text: str) -> set[str]:
    """Of several functions in one file it is the one in whose lines the error was made."""
    of_module: set[str] = set()
    of_function: set[str] = set()
    for path, line in _FRAME.findall(text):
        for vertex in graph.vertices:
            if not isinstance(vertex, Python):
                continue
            module, _, function = vertex.function.partition(":")
            file = f"/{module.replace('.', '/')}"
            if f"/{path}".endswith((f"{file}.py", f"{file}/__init__.py")):
                of_module.add(vertex.name)
                if int(line) in _lines_of(path, function):
                    of_function.add(vertex.name)
    return of_function or of_module


def _lines_of(path: str, function: str) -> range:
    """Of a function at the top of a file of the job; empty when that cannot be found out."""
    try:
        parsed = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return range(0)
    for node in parsed.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _by_path(graph: JobGraph, text: str) -> set[str]:
    sources = {v.name: v.path.rstrip("/*") for v in graph.vertices if isinstance(v, Source) and v.path}
    return {name for name, path in sources.items() if len(path) >= _LEAST and path in text}


def _upstream(graph: JobGraph, sink: str | None) -> set[str]:
    """A sink, and all that its query is made of."""
    found: set[str] = set()
    todo = [sink] if sink is not None else []
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += inputs_of(graph.by_name[name])
    return found
