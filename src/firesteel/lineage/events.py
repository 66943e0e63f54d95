"""OpenLineage run events of a job, from its execution graph. Pure.

The run is the job: its run id is the job id, so every leader says the same, and sending an event twice is harmless. Secrets are
masked before anything gets here.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from firesteel.jobgraph.columns import columns_of_schema
from firesteel.status import JobStatus

_SPEC = "https://openlineage.io/spec"
SCHEMA_URL = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = "spark.openlineage.parent"
"""What schedulers with an OpenLineage integration set for Spark jobs: RunId, JobNamespace, JobName."""


class RunState(StrEnum):
    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


FINAL = {
    JobStatus.FINISHED: RunState.COMPLETE,
    JobStatus.FAILED: RunState.FAIL,
    JobStatus.CANCELED: RunState.ABORT,
}


def run_event(
    state: RunState,
    at: float,
    job: Mapping[str, Any],
    *,
    namespace: str,
    producer: str,
    spark: str = "",
    columns: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """`job` is an execution graph; `columns` is what `lineage.columns.column_lineage` found."""
    return _Writer(job, namespace, producer, spark, columns or {}).event(state, at)


class _Writer:
    def __init__(
        self,
        job: Mapping[str, Any],
        namespace: str,
        producer: str,
        spark: str,
        columns: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        self._job = job
        self._namespace = namespace
        self._producer = producer
        self._spark = spark
        self._columns = columns
        graph = job.get("graph")
        self._graph: Mapping[str, Any] = graph if isinstance(graph, dict) else {}
        self._vertices: list[Mapping[str, Any]] = [v for v in self._graph.get("vertices") or () if isinstance(v, dict)]

    def event(self, state: RunState, at: float) -> dict[str, Any]:
        return {
            "eventType": state.value,
            "eventTime": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "producer": self._producer,
            "schemaURL": SCHEMA_URL,
            "run": {"runId": str(uuid.UUID(self._job["job_id"])), "facets": self._run_facets(state)},
            "job": {"namespace": self._namespace, "name": self._job["name"], "facets": self._job_facets()},
            "inputs": [self._input(v) for v in self._vertices if v["kind"] == "source" and _is_place(v)],
            "outputs": [self._output(v, state) for v in self._vertices if v["kind"] == "sink" and _is_place(v)],
        }

    def _facet(self, name: str, version: str, content: Mapping[str, Any]) -> dict[str, Any]:
        url = f"{_SPEC}/facets/{version}/{name}.json#/$defs/{name}"
        return {"_producer": self._producer, "_schemaURL": url, **content}

    def _run_facets(self, state: RunState) -> dict[str, Any]:
        engine = {"version": self._spark, "name": "spark"} if self._spark else None
        facets: dict[str, Any] = {}
        if engine:
            facets["processing_engine"] = self._facet("ProcessingEngineRunFacet", "1-1-1", engine)
        if parent := self._parent():
            facets["parent"] = self._facet("ParentRunFacet", "1-2-0", parent)
        failure = self._job.get("failure")
        if state is RunState.FAIL and isinstance(failure, dict):
            said = {"message": str(failure.get("message") or "unknown"), "programmingLanguage": "PYTHON"}
            if failure.get("traceback"):
                said["stackTrace"] = str(failure["traceback"])
            facets["errorMessage"] = self._facet("ErrorMessageRunFacet", "1-0-1", said)
        return facets

    def _parent(self) -> dict[str, Any] | None:
        settings = self._graph.get("settings")
        spark = settings.get("spark") if isinstance(settings, dict) else None
        if not isinstance(spark, dict):
            return None
        run, namespace, name = (spark.get(_PARENT + key) for key in ("RunId", "JobNamespace", "JobName"))
        try:
            run_id = str(uuid.UUID(str(run)))
        except ValueError:
            return None
        if not namespace or not name:
            return None
        return {"run": {"runId": run_id}, "job": {"namespace": str(namespace), "name": str(name)}}

    def _job_facets(self) -> dict[str, Any]:
        program = any(v["kind"] in ("script", "session") for v in self._vertices)
        kind = {
            "processingType": "STREAMING" if self._job.get("mode") == "streaming" else "BATCH",
            "integration": "FIRESTEEL",
            "jobType": "JOB" if program else "PIPELINE",
        }
        facets = {"jobType": self._facet("JobTypeJobFacet", "2-0-4", kind)}
        if description := self._graph.get("description"):
            facets["documentation"] = self._facet("DocumentationJobFacet", "1-1-0", {"description": description})
        if owner := self._job.get("owner"):
            facets["ownership"] = self._facet("OwnershipJobFacet", "1-0-1", {"owners": [{"name": owner}]})
        queries = [v["query"] for v in self._vertices if v["kind"] == "sql"]
        if len(queries) == 1:
            facets["sql"] = self._facet("SQLJobFacet", "1-1-0", {"query": queries[0], "dialect": "spark"})
        return facets

    def _input(self, vertex: Mapping[str, Any]) -> dict[str, Any]:
        namespace, name = place_of(vertex)
        facets: dict[str, Any] = {}
        schema = vertex.get("schema")
        if schema and (columns := columns_of_schema(schema)):
            facets["schema"] = self._facet("SchemaDatasetFacet", "1-2-0", {"fields": [dict(c) for c in columns]})
        dataset: dict[str, Any] = {"namespace": namespace, "name": name, "facets": facets}
        rows = self._rows(vertex)
        if rows is not None:
            counted = self._facet("InputStatisticsInputDatasetFacet", "1-0-0", {"rowCount": rows})
            dataset["inputFacets"] = {"inputStatistics": counted}
        return dataset

    def _output(self, vertex: Mapping[str, Any], state: RunState) -> dict[str, Any]:
        namespace, name = place_of(vertex)
        facets: dict[str, Any] = {}
        if columns := self._columns.get(vertex["name"]):
            facets["schema"] = self._facet(
                "SchemaDatasetFacet", "1-2-0", {"fields": [{"name": c["name"]} for c in columns]}
            )
            fields = {c["name"]: {"inputFields": self._origins(c["from"])} for c in columns}
            facets["columnLineage"] = self._facet("ColumnLineageDatasetFacet", "1-2-0", {"fields": fields})
        dataset: dict[str, Any] = {"namespace": namespace, "name": name, "facets": facets}
        rows = self._rows(vertex)
        if state is RunState.COMPLETE and rows is not None:
            counted = self._facet("OutputStatisticsOutputDatasetFacet", "1-0-2", {"rowCount": rows})
            dataset["outputFacets"] = {"outputStatistics": counted}
        return dataset

    def _origins(self, origins: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        by_name = {v["name"]: v for v in self._vertices}
        found = []
        for origin in origins:
            vertex = by_name.get(origin["vertex"])
            if vertex is None or not _is_place(vertex):
                continue
            namespace, name = place_of(vertex)
            transformation = {"type": "DIRECT", "subtype": origin["how"], "description": "", "masking": False}
            found.append(
                {"namespace": namespace, "name": name, "field": origin["column"], "transformations": [transformation]}
            )
        return found

    def _rows(self, vertex: Mapping[str, Any]) -> int | None:
        rows = self._job.get("rows")
        count = rows.get(vertex["name"]) if isinstance(rows, dict) else None
        return count if type(count) is int and count >= 0 else None


def _is_place(vertex: Mapping[str, Any]) -> bool:
    return bool(vertex.get("path") or vertex.get("table") or _options(vertex))


def place_of(vertex: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of a dataset, by OpenLineage's conventions."""
    options = _options(vertex)
    if path := vertex.get("path"):
        return _of_path(str(path))
    if "kafka.bootstrap.servers" in options:
        servers = options["kafka.bootstrap.servers"].split(",")[0].strip()
        return f"kafka://{servers}", options.get("topic") or options.get("subscribe") or options.get(
            "subscribePattern"
        ) or ""
    table = str(vertex.get("table") or options.get("dbtable") or "")
    if url := options.get("url", "").removeprefix("jdbc:"):
        parts = urlsplit(url)
        database = parts.path.strip("/")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", f"{database}.{table}" if database else table
    if table:
        return "spark", table
    return "spark", f"{vertex.get('format') or 'unknown'}:{vertex['name']}"


def _of_path(path: str) -> tuple[str, str]:
    parts = urlsplit(path)
    if not parts.scheme or len(parts.scheme) == 1 or parts.scheme == "file":
        return "file", parts.path if parts.scheme == "file" else path
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.lstrip("/") or "/"


def _options(vertex: Mapping[str, Any]) -> Mapping[str, str]:
    options = vertex.get("options")
    return {str(k): str(v) for k, v in options.items()} if isinstance(options, dict) else {}
