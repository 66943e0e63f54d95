"""Pipelines written in Python.

    job = Job("paid_orders")
    orders = job.source("orders", "csv", path="orders.csv", schema="id BIGINT, paid BOOLEAN", options={"header": True})
    paid = job.sql("paid", "SELECT * FROM orders WHERE paid")
    job.sink("result", input=paid, format="parquet", path="out", mode="overwrite")

A Job is only a description; nothing runs. `firesteel run FILE` finds it, and `job.graph()` returns the JobGraph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, NewType, TypedDict, Unpack

from pydantic import BaseModel

from firesteel.errors import Problem

from .admission import Policy, admit
from .document import Document, Loc
from .model import Deduplicate, JobGraph, Resources, Settings, Watermark

RUN_NAME = "__firesteel__"
"""`__name__` of a pipeline file while its Job is taken from it."""

Handle = NewType("Handle", str)
"""A vertex, to be used as an input of another one. It is its name, so plain names work as well."""


class VertexFields(TypedDict, total=False):
    description: str
    parallelism: int
    resources: Resources | Mapping[str, Any]


class RelationFields(VertexFields, total=False):
    watermark: Watermark | Mapping[str, Any]
    deduplicate: Deduplicate | Mapping[str, Any]
    cache: bool


class Job:
    """A pipeline in the making.

    Methods add a vertex and return its handle; `graph()` reports all problems at once.

    Args:
        name: the name of the job.
        mode: `batch` or `streaming`.
        settings: fields of Settings: restart, spark, artifacts, checkpoint_interval,
            checkpoint_retention, row_metrics, placement, notify.
        variables: names and defaults of the variables `${name}` in strings; None is a variable that must be given.
    """

    def __init__(
        self,
        name: str,
        mode: str = "batch",
        *,
        description: str | None = None,
        parallelism: int | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        frame = sys._getframe(1)
        self.file = frame.f_code.co_filename
        """The file that makes the job; relative paths start at its directory."""
        top = {"name": name, "mode": mode, "description": description, "parallelism": parallelism, **fields}
        self._top = _plain({**top, "settings": settings}) | ({"variables": dict(variables)} if variables else {})
        self._vertices: list[dict[str, Any]] = []
        self._problems: list[Problem] = []
        self._lines: dict[Loc, int] = {(): frame.f_lineno}

    def source(
        self,
        name: str,
        format: str,  # noqa: A002  the word that Spark and the YAML use
        *,
        path: str | PurePath | None = None,
        table: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        static: bool | None = None,
        **fields: Unpack[RelationFields],
    ) -> Handle:
        """Add a source, which reads rows from outside. `static` reads a table once in a streaming job."""
        own = {"format": format, "path": path, "table": table, "schema": schema, "options": options, "static": static}
        return self._add("source", name, own, fields)

    def sql(
        self, name: str, query: str, inputs: Sequence[str] | None = None, **fields: Unpack[RelationFields]
    ) -> Handle:
        """Add a query over other vertices, which it reads by name; by default `inputs` is taken from the query."""
        return self._add("sql", name, {"query": query, "inputs": inputs}, fields)

    def python(
        self,
        name: str,
        function: str | Callable[..., Any],
        inputs: Sequence[str] | str = (),
        args: Mapping[str, Any] | None = None,
        **fields: Unpack[RelationFields],
    ) -> Handle:
        """Add a function of DataFrames, `module:function` or the function itself: one DataFrame per input, `args` by

        name.
        """
        reference = self._reference(name, "function", function)
        given = [inputs] if isinstance(inputs, str) else list(inputs)
        return self._add("python", name, {"function": reference, "inputs": given, "args": args}, fields)

    def sink(
        self,
        name: str,
        input: str,  # noqa: A002  the word that the YAML uses
        *,
        format: str | None = None,  # noqa: A002
        path: str | PurePath | None = None,
        table: str | None = None,
        mode: str | None = None,
        overwrite: str | None = None,
        keys: Sequence[str] | None = None,
        partition_by: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
        output_mode: str | None = None,
        trigger: str | None = None,
        foreach_batch: str | Callable[..., Any] | None = None,
        delivery: str | None = None,
        **fields: Unpack[VertexFields],
    ) -> Handle:
        """Add a sink, which writes the rows of `input`."""
        own = {
            "input": input,
            "format": format,
            "path": path,
            "table": table,
            "mode": mode,
            "overwrite": overwrite,
            "keys": keys,
            "partition_by": partition_by,
            "options": options,
            "output_mode": output_mode,
            "trigger": trigger,
            "foreach_batch": foreach_batch and self._reference(name, "foreach_batch", foreach_batch),
            "delivery": delivery,
        }
        return self._add("sink", name, own, fields)

    def script(
        self,
        name: str,
        file: str | PurePath,
        args: Sequence[Any] | None = None,
        api: str | None = None,
        **fields: Unpack[VertexFields],
    ) -> Handle:
        """Add a plain PySpark program, which must be the only vertex."""
        return self._add("script", name, {"file": file, "args": args, "api": api}, fields)

    def document(self) -> Document:
        """The job as written, not yet checked."""
        data = {**self._top, "vertices": [dict(v) for v in self._vertices]}
        return Document(data, dict(self._lines), tuple(self._problems), self._shown_file())

    def graph(self, base_dir: Path | None = None, *, variables: Mapping[str, str] | None = None) -> JobGraph:
        """The validated JobGraph.

        Args:
            base_dir: where relative paths start; by default the directory of the file that made the job.
            variables: values for the variables of the job.

        Raises:
            InvalidPipelineError: with everything that is wrong.
        """
        file = self._shown_file()
        directory = base_dir or (Path(file).parent.absolute() if file else Path.cwd())
        return admit(self.document(), Policy(base_dir=directory), variables=variables or {}).graph

    def _shown_file(self) -> str | None:
        return self.file if not self.file.startswith("<") else None

    def _add(self, kind: str, name: str, own: Mapping[str, Any], fields: Mapping[str, Any]) -> Handle:
        line = self._caller_line()
        loc = ("vertices", len(self._vertices))
        if line:
            self._lines[loc] = line
        self._vertices.append({"kind": kind, "name": name, **_plain({**own, **fields})})
        return Handle(name)

    def _caller_line(self) -> int | None:
        """The line in the file of the job that led to this vertex, perhaps through helpers in other files."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            if frame.f_back is None:
                return None
            frame = frame.f_back
        return frame.f_lineno

    def _reference(self, vertex: str, field: str, function: str | Callable[..., Any]) -> str:
        if isinstance(function, str):
            return function
        module = getattr(function, "__module__", None) or ""
        name = getattr(function, "__qualname__", None) or type(function).__name__
        if not name.isidentifier():
            message = f"'{name}' is not defined at the top level of a module, so no other process can find it"
            fix = "move the function to the top level of a module"
            file, line = self._shown_file(), self._caller_line()
            self._problems.append(Problem(message, fix, vertex, field, file, line))
        if module in ("__main__", RUN_NAME):
            # The file itself is the module; the driver imports it by its name.
            module = Path(getattr(getattr(function, "__code__", None), "co_filename", self.file)).stem
        return f"{module}:{name}"


def _plain(value: Any) -> Any:
    """Fields as JSON values; those without a value are omitted."""
    match value:
        case BaseModel():
            return value.model_dump(mode="json", by_alias=True, exclude_none=True)
        case Enum():
            return value.value
        case PurePath():
            return str(value)
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items() if v is not None}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return value
