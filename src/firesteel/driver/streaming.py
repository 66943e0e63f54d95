"""Runs streaming graphs: starts and watches one query per sink."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.attempts import checkpoints
from firesteel.attempts.attempt import AttemptSpec, EventLog
from firesteel.attempts.checkpoints import checkpoint_location
from firesteel.driver import artifacts, stream_facts
from firesteel.driver.cancel import Cancelled, CancelSwitch
from firesteel.driver.stop import StopSwitch
from firesteel.durations import seconds
from firesteel.errors import (
    EnvironmentNotReadyError,
    FiresteelError,
    InvalidPipelineError,
    Problem,
    QueryStoppedError,
    SupersededError,
)
from firesteel.fs import generations
from firesteel.fs.store import locate, open_store
from firesteel.jobgraph.model import AVAILABLE_NOW, JobGraph, Sink, spark_interval
from firesteel.jobgraph.state_shape import shape_of
from firesteel.jobgraph.state_sql import KeptState
from firesteel.savepoint import writer
from firesteel.savepoint.manifest import SinkPlaces, is_file_sink
from firesteel.savepoint.plan_text import kept_by_plan
from firesteel.savepoint.restore import restore as restore_savepoint
from firesteel.spark_connect.analysed import analysed
from firesteel.spark_connect.compiler import ROWS, CompiledGraph, registered_format
from firesteel.spark_connect.session import EngineSession

POLL_SECONDS = 0.25
LONGEST_POLL_SECONDS = 2.0
DEFAULT_TRIGGER = "0 seconds"
"""As fast as batches finish, which is Spark's own default."""
RACE = "Race while writing batch"
"""Spark's words for a batch that is in the log of a file sink already. An attempt that was given up may have finished the one
batch whose plan it had written before its checkpoint was taken over. It is the batch that we have planned, too: with the
same rows, as the plan is in the checkpoint. Started again, the query finds it written, and goes on after it."""
STOP_POLL_SECONDS = 0.05
STOP_SECONDS = 60.0
"""How long a stop waits for the current batch of a query. One that takes longer is interrupted: what it has read is in
its checkpoint and what it has written is not committed, so a later run of the same query does it again, as a whole."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    stopped: bool
    batches: Mapping[str, int]
    """The last committed batch per sink; -1 when there is none."""


def run(
    spec: AttemptSpec,
    session: EngineSession,
    compiled: CompiledGraph,
    log: EventLog,
    cancel: CancelSwitch,
    stop: StopSwitch,
) -> StreamEnd:
    """Start a query per sink and return when all have ended; one that fails ends the others."""
    queries: dict[str, Any] = {}
    try:
        places = checkpoints.take_over(spec)
        _tell_unfenced(spec, log)
        refuse_live_outputs(spec)
        restored = restore(spec, log, compiled, places)
        log.emit("phase", phase="running")
        refuse_foreign_outputs(spec, places)
        stream_facts.tell_origins(spec, log, restored=restored)
        stream_facts.tell_state_store(session.spark, log)
        for sink in spec.graph.sinks:
            # A query that was started but not yet noted would be left running by a cancel in between.
            with cancel.shielded():
                query = _start(sink, spec, compiled.frames[sink.name], session.spark, places[sink.name])
                queries[sink.name] = query
            if (output := _file_output(sink)) is not None:
                writer.claim(output, spec.attempt.job_id)
            log.emit("query", vertex=sink.name, query_id=str(query.id), run_id=str(query.runId))
        endless = {s.name for s in spec.graph.sinks if _trigger_of(s, spec.graph) != AVAILABLE_NOW}
        repeated: set[str] = set()

        def again(name: str, error: Exception) -> Any:
            if not spec.given_up or name in repeated or RACE not in str(error):
                return None
            repeated.add(name)
            log.emit(
                "note", text=f"sink '{name}': the last batch of attempt {spec.given_up} was written by it after all"
            )
            with cancel.shielded():
                sink = spec.graph.by_name[name]
                assert isinstance(sink, Sink)
                queries[name] = _start(sink, spec, compiled.frames[name], session.spark, places[name])
            return queries[name]

        watch = _Watch(
            queries, log, stop, poll=poll_seconds(spec.graph), endless=endless, graph=spec.graph, again=again
        )
        watch.run()
    except BaseException as error:
        # Whatever it was is raised again below, or what it means for an attempt that was given up. A query that cannot be
        # stopped here ends with the session, which the leader releases before anything follows.
        with contextlib.suppress(Cancelled):
            for query in queries.values():
                with contextlib.suppress(Exception):
                    query.stop()
            _release_outputs(spec)
        if isinstance(error, Exception):
            _tell_superseded(spec, error)
        raise
    _release_outputs(spec)
    return StreamEnd(watch.stopping, {s.name: _last_batch(s, spec, watch.committed) for s in spec.graph.sinks})


def _tell_unfenced(spec: AttemptSpec, log: EventLog) -> None:
    for sink in spec.graph.sinks if spec.given_up else ():
        place = checkpoint_location(sink, spec)
        if generations.at(place) is None:
            text = (
                f"sink '{sink.name}': attempt {spec.given_up} was given up, and cannot be kept from writing to {place}, as "
                "directories cannot be renamed there; make sure that its processes have ended"
            )
            log.emit("note", text=text)


def _tell_superseded(spec: AttemptSpec, error: Exception) -> None:
    """A query whose checkpoint was taken over fails in many ways, none of which says so."""
    taken: SupersededError | None = None
    with contextlib.suppress(OSError, FiresteelError):
        taken = checkpoints.taken_by(spec)
    if taken is not None and not isinstance(error, SupersededError):
        taken.firesteel_sink = getattr(error, "firesteel_sink", "")
        raise taken from error


def _last_batch(sink: Sink, spec: AttemptSpec, committed: Mapping[str, int]) -> int:
    """The checkpoint knows best; where only Spark can look into it, what the query reported last."""
    try:
        return checkpoints.batches(sink, spec).committed
    except Exception:
        # Only told, never acted upon: the next attempt reads the checkpoint itself.
        return committed.get(sink.name, checkpoints.NONE)


def restore(spec: AttemptSpec, log: EventLog, compiled: CompiledGraph, places: Mapping[str, str]) -> bool:
    """Make the checkpoints of a job that starts from a savepoint; False when an earlier attempt has done so.

    `places`: where each sink has its checkpoint.

    Raises:
        InvalidPipelineError: there is no savepoint, or it does not fit the job.
    """
    wanted = spec.graph.settings.restore
    if wanted is None:
        return False
    log.emit("phase", phase="restoring")
    sinks = {s.name: SinkPlaces.of(s, places[s.name]) for s in spec.graph.sinks}
    restored = restore_savepoint(
        wanted.path,
        spec.attempt.job_id,
        sinks,
        graph=None if wanted.allow_incompatible_state else spec.graph,
        plans=lambda: _plans(spec.graph, compiled),
        allow_non_restored_state=wanted.allow_non_restored_state,
    )
    for sink in restored:
        after = f"continues after batch {sink.batch}" if sink.batch != checkpoints.NONE else "starts from nothing"
        log.emit("note", text=f"sink '{sink.name}' {after}" + (f"; {sink.note}" if sink.note else ""))
    return bool(restored)


def _plans(graph: JobGraph, compiled: CompiledGraph) -> dict[str, tuple[KeptState, ...]]:
    """What the queries keep whose state is made by code, by sink."""
    found: dict[str, tuple[KeptState, ...]] = {}
    for sink in graph.sinks:
        if shape_of(graph, sink).unclear and (text := analysed(compiled.frames[sink.name])):
            kept = kept_by_plan(text)
            if kept is not None:
                found[sink.name] = kept
    return found


def _file_output(sink: Sink) -> str | None:
    """The directory of a sink in which Spark keeps a log of its batches."""
    return sink.path if is_file_sink(sink) else None


def _release_outputs(spec: AttemptSpec) -> None:
    for sink in spec.graph.sinks:
        if (output := _file_output(sink)) is not None:
            writer.release(output, spec.attempt.job_id)


def refuse_live_outputs(spec: AttemptSpec) -> None:
    """Refuse outputs that a running job writes to, before anything is changed there."""
    problems = [
        Problem(
            f"'{output}' is being written to by job {other}",
            "stop that job first, or give this one a path of its own",
            vertex=sink.name,
            field="path",
        )
        for sink in spec.graph.sinks
        if (output := _file_output(sink)) is not None
        and (other := writer.live_writer(output, spec.attempt.job_id)) is not None
    ]
    if problems:
        raise InvalidPipelineError(problems)


def refuse_foreign_outputs(spec: AttemptSpec, places: Mapping[str, str]) -> None:
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
        if _file_output(sink) is not None
        and _exists(f"{sink.path}/_spark_metadata", sink)
        and not _exists(f"{places[sink.name]}/metadata", sink)
    ]
    if problems:
        raise InvalidPipelineError(problems)


def _exists(path: str, sink: Sink) -> bool:
    try:
        location = locate(path, sink.name, {})
        return open_store(location).kind(location.root) is not None
    except (InvalidPipelineError, EnvironmentNotReadyError):
        return False  # a file system that only Spark can look into


def _start(sink: Sink, spec: AttemptSpec, frame: Any, spark: Any, checkpoint: str) -> Any:
    writer = frame.writeStream.queryName(sink.name).options(**sink.options)
    writer = writer.option("checkpointLocation", checkpoint)
    if sink.output_mode:
        writer = writer.outputMode(sink.output_mode.value)
    writer = writer.trigger(**trigger(sink, spec.graph))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.foreach_batch:
        function = artifacts.self_contained(sink.foreach_batch, spec)
        return writer.foreachBatch(function).start()
    assert sink.format is not None
    writer = writer.format(registered_format(sink.format, spark, artifacts.resolve_by(spec)))
    return writer.toTable(sink.table) if sink.table else writer.start(sink.path)


def trigger(sink: Sink, graph: JobGraph) -> dict[str, Any]:
    text = _trigger_of(sink, graph)
    return {"availableNow": True} if text == AVAILABLE_NOW else {"processingTime": spark_interval(text)}


def _trigger_of(sink: Sink, graph: JobGraph) -> str:
    return sink.trigger or graph.settings.checkpoint_interval or DEFAULT_TRIGGER


def poll_seconds(graph: JobGraph) -> float:
    """How often to look at the queries: ten times for each batch of the fastest, within limits.

    Each look is two questions to the engine. A hundred streams that were all looked at four times a second kept the engines
    busier than their batches of every half minute.
    """
    triggers = [_trigger_of(sink, graph) for sink in graph.sinks]
    shortest = min(0.0 if text == AVAILABLE_NOW else seconds(text) for text in triggers)
    return min(max(shortest / 10, POLL_SECONDS), LONGEST_POLL_SECONDS)


class _Watch:
    """Follows the queries of an attempt to their end, and brings them there when a stop is asked for."""

    def __init__(
        self,
        queries: dict[str, Any],
        log: EventLog,
        stop: StopSwitch,
        *,
        poll: float,
        endless: Collection[str] = (),
        graph: JobGraph | None = None,
        again: Callable[[str, Exception], Any] = lambda name, error: None,
    ) -> None:
        """
        Args:
            endless: sinks whose queries do not end by themselves.
            again: starts the query of a sink that has failed once more, where that helps; None where it does not.
        """
        self._again = again
        self._open = dict(queries)
        self._endless = endless
        self._graph = graph
        self._poll = poll
        self._log = log
        self._stop = stop
        self._seen: dict[str, int] = {}
        self._at: dict[str, Any] = {}
        """The last report of each query when the stop was asked for."""
        self._stop_by = 0.0
        self.stopping = False
        self.committed: dict[str, int] = {}

    def run(self) -> None:
        while self._open:
            if self._stop.requested and not self.stopping:
                self._begin_to_stop()
            for name, query in list(self._open.items()):
                active = query.isActive
                first = name not in self._seen
                for progress in _new_progress(query, self._seen.get(name, -1)):
                    self._tell(name, progress)
                if first and name in self._seen and self._graph is not None:
                    stream_facts.tell_edges_of(query, self._graph, name, self._log)
                if not active:
                    self._ended(name, query)
                elif self.stopping and self._between_batches(name, query):
                    query.stop()
            if self._open:
                self._rest()

    def _rest(self) -> None:
        """Until it is time to look again, or a stop is asked for."""
        if self.stopping:
            time.sleep(STOP_POLL_SECONDS)
            return
        again = time.monotonic() + self._poll
        while (left := again - time.monotonic()) > 0 and not self._stop.requested:
            time.sleep(min(left, POLL_SECONDS))

    def _tell(self, name: str, progress: dict[str, Any]) -> None:
        batch: int = progress["batchId"]
        if _tell(self._log, name, progress, self._graph):
            self._seen[name] = self.committed[name] = batch
        else:
            # An idle trigger reports the coming batch, which will be reported again once it is there.
            self.committed[name] = batch - 1

    def _ended(self, name: str, query: Any) -> None:
        error = query.exception()
        if error is not None:
            if not self.stopping and (query := self._again(name, error)) is not None:
                self._open[name] = query
                return
            error.firesteel_sink = name
            raise error
        if name in self._endless and not self.stopping:
            stopped = QueryStoppedError(
                "its query was stopped on the engine, but not by this job: either by code that has a session there, or "
                "because the engine was told to end; its checkpoint is unchanged"
            )
            stopped.firesteel_sink = name
            raise stopped
        del self._open[name]
        self._log.emit("sink", vertex=name, state="ended")

    def _begin_to_stop(self) -> None:
        self.stopping = True
        self._stop_by = time.monotonic() + STOP_SECONDS
        self._at = {name: _report(query) for name, query in self._open.items()}
        self._log.emit("stopping")

    def _between_batches(self, name: str, query: Any) -> bool:
        """Whether the batch that was under way when the stop came is committed, or there was none."""
        if not query.status["isTriggerActive"] or _report(query) != self._at[name]:
            return True
        if time.monotonic() < self._stop_by:
            return False
        self._log.emit("note", text=f"sink '{name}': its batch took longer than {STOP_SECONDS:g} s and was interrupted")
        return True


def _report(query: Any) -> Any:
    """What tells one progress report from the next; None before the first. Spark reports after the commit."""
    newest = query.lastProgress
    if newest is None:
        return None
    data = _as_dict(newest)
    return data["batchId"], data.get("timestamp")


def _new_progress(query: Any, last: int) -> list[dict[str, Any]]:
    """Progress reports newer than batch `last`, the newest of each."""
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


def _tell(log: EventLog, name: str, progress: dict[str, Any], graph: JobGraph | None) -> bool:
    """Write a batch down; False when the report is of a trigger that found nothing to do."""
    sources = progress.get("sources") or []
    # PySpark's progress object computes the totals in properties; what is in its dictionary are the sources.
    rows = sum(s.get("numInputRows") or 0 for s in sources)
    durations = progress.get("durationMs") or {}
    if not rows and not durations.get("addBatch"):
        return False
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
        reads=stream_facts.rows_by_source(graph, name, sources) if graph else {},
        sources=[{"description": s.get("description", ""), "rows": s.get("numInputRows") or 0} for s in sources],
        vertices={k: dict(v.asDict() if hasattr(v, "asDict") else v).get(ROWS) for k, v in observed.items()},
    )
    return True


def _finite(value: Any) -> float:
    """Spark writes rates of nothing per nothing as NaN."""
    number = float(value or 0.0)
    return number if math.isfinite(number) else 0.0
