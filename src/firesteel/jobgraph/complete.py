"""Completion of a graph: fills in the inputs of queries, absolute paths, and where its Python modules are.

The same pipeline written in YAML, SQL or Python is the same graph after this step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .ddl import without_colons
from .formats import FORMATS
from .model import AnyVertex, Artifacts, Interactive, JobGraph, Mode, Python, Script, Sink, Source, Sql, function_refs
from .modes import CHECKPOINT_LOCATION, save_mode
from .pymodules import find_module, in_directory

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FORMATS = {name.lower(): name for name in FORMATS}


def complete(graph: JobGraph, base_dir: Path | None) -> JobGraph:
    """Complete `graph`. Without `base_dir` relative paths stay as they are. Idempotent."""
    spelling: dict[str, str] = {}
    for v in graph.vertices:
        spelling.setdefault(v.name.lower(), v.name)
    vertices = tuple(_vertex(v, spelling, base_dir, graph.mode) for v in graph.vertices)
    graph = graph.with_(vertices=vertices)
    if base_dir is None:
        return graph
    changes: dict[str, Any] = {"artifacts": _artifacts(graph, base_dir)}
    if (restore := graph.settings.restore) is not None:
        changes["restore"] = restore.model_copy(update={"path": absolute(restore.path, base_dir)})
    return graph.with_(settings=graph.settings.model_copy(update=changes))


def _vertex(v: AnyVertex, spelling: dict[str, str], base_dir: Path | None, mode: Mode) -> AnyVertex:
    """Give names of other vertices the spelling of their declaration: to Spark, view names have no case."""
    match v:
        case Source():
            schema = without_colons(v.schema_.strip()) if v.schema_ else v.schema_
            return v.model_copy(
                update={"format": _format(v.format), "path": absolute(v.path, base_dir), "schema_": schema}
            )
        case Sql():
            query = v.query.strip().removesuffix(";").rstrip()
            return v.model_copy(update={"query": query, "inputs": _sql_inputs(query, v.inputs, spelling)})
        case Python():
            return v.model_copy(update={"inputs": tuple(spelling.get(n.lower(), n) for n in v.inputs)})
        case Sink():
            sink = v.model_copy(
                update={
                    "input": spelling.get(v.input.lower(), v.input),
                    "format": _format(v.format) if v.format else v.format,
                    "path": absolute(v.path, base_dir),
                    "options": _sink_options(v.options, base_dir),
                }
            )
            return sink.model_copy(update={"mode": save_mode(sink, mode)})
        case Script():
            return v.model_copy(update={"file": absolute(v.file, base_dir)})
        case Interactive():
            return v


def _sink_options(options: Mapping[str, str], base_dir: Path | None) -> Mapping[str, str]:
    """Complete the checkpoint path of a stream, and give its option one spelling: to Spark, options have no case."""
    completed = dict(options)
    for name in [n for n in options if n.lower() == CHECKPOINT_LOCATION.lower()]:
        value = completed.pop(name)
        completed[CHECKPOINT_LOCATION] = absolute(value, base_dir) or value
    return completed


def _sql_inputs(query: str, declared: tuple[str, ...], spelling: dict[str, str]) -> tuple[str, ...]:
    if declared:
        return tuple(spelling.get(n.lower(), n) for n in declared)
    from .sqltext import read_query

    found = (spelling.get(n.lower()) for n in read_query(query).reads)
    return tuple(dict.fromkeys(n for n in found if n is not None))


def _format(name: str) -> str:
    return _FORMATS.get(name.lower(), name)


def absolute(path: str | None, base_dir: Path | None) -> str | None:
    """`path` against the directory of the pipeline, unless it has a scheme such as `s3a:` or `file:`."""
    if path is None or base_dir is None or not path or _SCHEME.match(path):
        return path
    return os.path.normpath(base_dir.absolute() / path)


def is_local(path: str) -> bool:
    """Whether the path is one of this machine."""
    return path.startswith("file:") or not _SCHEME.match(path)


def _artifacts(graph: JobGraph, base_dir: Path) -> Artifacts:
    given = graph.settings.artifacts
    py_files = _absolute_all(given.py_files, base_dir)
    here = os.path.normpath(base_dir.absolute())
    if here not in py_files and any(
        in_directory(module, base_dir) and not _in_py_files(module, py_files)
        for module in sorted({ref.partition(":")[0] for _, _, ref in function_refs(graph)})
    ):
        py_files = (*py_files, here)
    return Artifacts(
        py_files=py_files,
        archives=_absolute_all(given.archives, base_dir),
        files=_absolute_all(given.files, base_dir),
        jars=_absolute_all(given.jars, base_dir),
    )


def _in_py_files(module: str, py_files: tuple[str, ...]) -> bool:
    return any(find_module(module, py_files=[entry], base_dir=None, environment=False) for entry in py_files)


def _absolute_all(paths: Iterable[str], base_dir: Path) -> tuple[str, ...]:
    return tuple(absolute(p, base_dir) or p for p in paths)
