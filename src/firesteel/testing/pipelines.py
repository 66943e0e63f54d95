"""Running a pipeline in a test: on given input rows, returning its output rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import uuid4

from firesteel.client.model import JobResult
from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import AVAILABLE_NOW, JobGraph, Mode, OutputMode, Sink, Source
from firesteel.testing.mini_cluster import MiniCluster

Row: TypeAlias = Mapping[str, Any]
Input: TypeAlias = Sequence[Row] | Path
"""Rows, or files in the format of the source."""
_RELATION = ("name", "description", "parallelism", "resources", "watermark", "deduplicate", "cache", "static")
_INFERENCE = "spark.sql.streaming.schemaInference"


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The output of a finished pipeline."""

    result: JobResult
    rows: Mapping[str, list[dict[str, Any]]]
    """Rows by sink, in no particular order."""
    stdout: str
    """The printed output of the pipeline's own code or the script."""


def run_pipeline(
    cluster: MiniCluster,
    path: Path | str,
    *,
    inputs: Mapping[str, Input] = MappingProxyType({}),
    variables: Mapping[str, str] = MappingProxyType({}),
    args: Sequence[str] = (),
    timeout: float = 120.0,
) -> PipelineRun:
    """Run a pipeline, or a PySpark script, to its end.

    Every sink writes to a temporary directory instead of its own path, so nothing else is touched. A stream processes the
    available data and ends.

    Args:
        path: the pipeline's file, as for `firesteel run`.
        inputs: replacements for the data of sources, by the name of the source.
        variables: values of the pipeline's variables.
        args: arguments of a script.
        timeout: seconds that it may take, including the start of the engine.

    Raises:
        InvalidPipelineError: the pipeline has errors.
        JobFailedError: the job failed; `failure` says why.
        JobTimeoutError: it did not end in time.
        ValueError: an input names no source, or a sink has an output mode whose rows cannot be read back.
    """
    graph = load_pipeline(Path(path), variables=variables).graph
    scratch = cluster.scratch / "pipelines" / uuid4().hex
    if graph.script is not None:
        script = graph.script.model_copy(update={"args": tuple(args)}) if args else graph.script
        graph = graph.with_(vertices=(script,))
    graph = redirected(with_inputs(graph, inputs, scratch / "inputs"), scratch / "sinks")
    settings = {"directory": str(Path.cwd())}
    graph = graph.with_(settings=graph.settings.model_copy(update=settings))
    job = cluster.client.submit(graph, upload=False)
    result = job.result(timeout)
    rows = {sink.name: read_rows(scratch / "sinks" / sink.name) for sink in graph.sinks}
    return PipelineRun(result, rows, job.logs("stdout"))


def with_inputs(graph: JobGraph, inputs: Mapping[str, Input], directory: Path) -> JobGraph:
    """The graph with other files for its sources. Rows are written to files in `directory`."""
    sources = {v.name: v for v in graph.vertices if isinstance(v, Source)}
    if unknown := sorted(set(inputs) - set(sources)):
        raise ValueError(f"the pipeline has no source '{unknown[0]}'; its sources are: {', '.join(sources) or 'none'}")
    changed = {name: _source(sources[name], given, directory / name) for name, given in inputs.items()}
    if not changed:
        return graph
    # A stream's source may have no schema if it did not read files before.
    inferring = {_INFERENCE: "true"} if graph.mode is Mode.STREAMING else {}
    settings = graph.settings.model_copy(update={"spark": {**inferring, **graph.settings.spark}})
    return graph.with_(vertices=tuple(changed.get(v.name, v) for v in graph.vertices), settings=settings)


def _source(source: Source, given: Input, directory: Path) -> Source:
    if isinstance(given, Path):
        return source.model_copy(update={"path": str(given.absolute()), "table": None})
    directory.mkdir(parents=True)
    kept = {name: getattr(source, name) for name in _RELATION}
    if source.schema_ is not None:  # Spark converts the values to it
        text = "".join(json.dumps(dict(row), default=_plain) + "\n" for row in given)
        (directory / "rows.json").write_text(text, "utf-8")
        strict = {"mode": "FAILFAST"}
        return Source(**kept, format="json", path=str(directory), schema_=source.schema_, options=strict)
    if not given:
        raise ValueError(
            f"source '{source.name}' has no schema, so it needs at least one row to derive the columns from"
        )
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([dict(row) for row in given]), directory / "rows.parquet")
    return Source(**kept, format="parquet", path=str(directory))


def _plain(value: object) -> str:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"a row has a value of type {type(value).__name__}, which cannot be written to JSON")


def redirected(graph: JobGraph, directory: Path) -> JobGraph:
    """The graph with every sink writing Parquet files into a directory of its own below `directory`."""

    def elsewhere(sink: Sink) -> Sink:
        if sink.output_mode not in (None, OutputMode.APPEND):
            raise ValueError(
                f"sink '{sink.name}' has the output mode '{sink.output_mode.value}'; only appended rows can be read back"
            )
        trigger = AVAILABLE_NOW if graph.mode is Mode.STREAMING else None
        return Sink(
            name=sink.name, input=sink.input, format="parquet", path=str(directory / sink.name), trigger=trigger
        )

    return graph.with_(vertices=tuple(elsewhere(v) if isinstance(v, Sink) else v for v in graph.vertices))


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """All rows of the Parquet files that Spark wrote into `directory`; none when it wrote none."""
    from pyarrow import dataset

    if not any(directory.glob("*.parquet")):
        return []
    rows: list[dict[str, Any]] = dataset.dataset(directory, format="parquet").to_table().to_pylist()
    return rows
