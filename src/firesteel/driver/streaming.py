"""Streaming graphs: one query per sink, started and watched."""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import Any

from firesteel.driver import artifacts
from firesteel.driver.attempt import AttemptSpec, EventLog
from firesteel.driver.cancel import Cancelled, CancelSwitch
from firesteel.errors import EnvironmentNotReadyError, InvalidPipelineError, Problem
from firesteel.jobgraph.formats import BatchCommit, lookup
from firesteel.jobgraph.model import AVAILABLE_NOW, JobGraph, Sink, spark_interval
from firesteel.sinks.store import locate, open_store
from firesteel.spark.compiler import ROWS, CompiledGraph, registered_format
from firesteel.spark.session import EngineSession

POLL_SECONDS = 0.25
DEFAULT_TRIGGER = "0 seconds"
"""As fast as batches finish, which is Spark's own default."""


def checkpoint_location(sink: Sink, spec: AttemptSpec) -> str:
    """Where a sink's query keeps its progress; the same for every attempt of a job."""
    return sink.options.get("checkpointLocation") or f"{spec.checkpoints}/{sink.name}"


def run(
    spec: AttemptSpec, session: EngineSession, compiled: CompiledGraph, log: EventLog, cancel: CancelSwitch
) -> None:
    """Start a query per sink and return when all have ended; one that fails ends the others."""
    queries: dict[str, Any] = {}
    try:
        log.emit("phase", phase="running")
        refuse_foreign_outputs(spec)
        for sink in spec.graph.sinks:
            # A query that was started but not yet noted would be left running by a cancel in between.
            with cancel.shielded():
                query = _start(sink, spec, compiled.frames[sink.name], session.spark)
                queries[sink.name] = query
            log.emit("query", vertex=sink.name, query_id=str(query.id), run_id=str(query.runId))
        _watch(queries, log)
    except BaseException:
        with contextlib.suppress(Cancelled):
            for query in queries.values():
                with contextlib.suppress(Exception):
                    query.stop()
        raise


def refuse_foreign_outputs(spec: AttemptSpec) -> None:
    """A new query on the output of another one would lose rows without a word: Spark's file sink skips batches whose
    number is in its log already, and both queries count from 0."""
    problems = [
        Problem(
            f"'{sink.path}' holds the output of another streaming query (it has a _spark_metadata log)",
            "give this job a path of its own, remove the old output, or set the options.checkpointLocation of that query",
            vertex=sink.name,
            field="path",
        )
        for sink in spec.graph.sinks
        if sink.path
        and sink.format
        and lookup(sink.format).commit is BatchCommit.STAGED_FILES
        and _exists(f"{sink.path}/_spark_metadata", sink)
        and not _exists(f"{checkpoint_location(sink, spec)}/metadata", sink)
    ]
    if problems:
        raise InvalidPipelineError(problems)


def _exists(path: str, sink: Sink) -> bool:
    try:
        location = locate(path, sink.name, {})
        return open_store(location).kind(location.root) is not None
    except (InvalidPipelineError, EnvironmentNotReadyError):
        return False  # a file system that only Spark can look into


def _start(sink: Sink, spec: AttemptSpec, frame: Any, spark: Any) -> Any:
    writer = frame.writeStream.queryName(sink.name).options(**sink.options)
    writer = writer.option("checkpointLocation", checkpoint_location(sink, spec))
    if sink.output_mode:
        writer = writer.outputMode(sink.output_mode.value)
    writer = writer.trigger(**trigger(sink, spec.graph))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.foreach_batch:
        function = artifacts.self_contained(sink.foreach_batch, spec.graph.settings.artifacts)
        return writer.foreachBatch(function).start()
    assert sink.format is not None
    writer = writer.format(registered_format(sink.format, spark, artifacts.resolve_function))
    return writer.toTable(sink.table) if sink.table else writer.start(sink.path)


def trigger(sink: Sink, graph: JobGraph) -> dict[str, Any]:
    text = sink.trigger or graph.settings.checkpoint_interval or DEFAULT_TRIGGER
    return {"availableNow": True} if text == AVAILABLE_NOW else {"processingTime": spark_interval(text)}


def _watch(queries: dict[str, Any], log: EventLog) -> None:
    seen: dict[str, int] = {}
    open_queries = dict(queries)
    while open_queries:
        for name, query in list(open_queries.items()):
            active = query.isActive
            for progress in _new_progress(query, seen.get(name, -1)):
                seen[name] = progress["batchId"]
                _tell(log, name, progress)
            if active:
                continue
            error = query.exception()
            if error is not None:
                error.firesteel_sink = name
                raise error
            del open_queries[name]
            log.emit("sink", vertex=name, state="ended")
        if open_queries:
            time.sleep(POLL_SECONDS)


def _new_progress(query: Any, last: int) -> list[dict[str, Any]]:
    """Progress reports newer than batch `last`. Idle triggers report the coming batch again and again: once is enough."""
    newest = query.lastProgress
    if newest is None:
        return []
    data = _as_dict(newest)
    if data["batchId"] <= last:
        return []
    if data["batchId"] == last + 1:
        return [data]
    recent = [_as_dict(p) for p in query.recentProgress]
    by_batch = {p["batchId"]: p for p in recent if p["batchId"] > last}
    return [by_batch[b] for b in sorted(by_batch)]


def _as_dict(progress: Any) -> dict[str, Any]:
    data: dict[str, Any] = progress if isinstance(progress, dict) else json.loads(progress.json)
    return data


def _tell(log: EventLog, name: str, progress: dict[str, Any]) -> None:
    sources = progress.get("sources") or []
    # PySpark's progress object computes the totals in properties; what is in its dictionary are the sources.
    rows = sum(s.get("numInputRows") or 0 for s in sources)
    durations = progress.get("durationMs") or {}
    if not rows and not durations.get("addBatch"):
        return  # a trigger that found nothing to do
    observed = progress.get("observedMetrics") or {}
    log.emit(
        "batch",
        vertex=name,
        batch=progress["batchId"],
        rows=rows,
        rows_per_second=sum(_finite(s.get("processedRowsPerSecond")) for s in sources),
        duration_ms=durations.get("triggerExecution", 0),
        output_rows=(progress.get("sink") or {}).get("numOutputRows", -1),
        state_rows=sum(s.get("numRowsTotal", 0) for s in progress.get("stateOperators", [])),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        sources=[{"description": s.get("description", ""), "rows": s.get("numInputRows") or 0} for s in sources],
        vertices={k: dict(v.asDict() if hasattr(v, "asDict") else v).get(ROWS) for k, v in observed.items()},
    )


def _finite(value: Any) -> float:
    """Spark writes rates of nothing per nothing as NaN."""
    number = float(value or 0.0)
    return number if math.isfinite(number) else 0.0
