"""Facts that a streaming attempt reports before its queries start: where they start from, and what keeps their state.

They are only shown; nothing else depends on them, and the queries find all of this by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.attempts import checkpoints
from firesteel.attempts.attempt import AttemptSpec, EventLog
from firesteel.errors import FiresteelError
from firesteel.jobgraph.model import JobGraph, Sink, Source, inputs_of
from firesteel.savepoint.manifest import MANIFEST
from firesteel.savepoint.naming import plain
from firesteel.savepoint.take import find
from firesteel.spark_connect.exchanges import plan_of_query, plans_of, ship_strategies, ship_strategies_of_query
from firesteel.spark_connect.settings import CHANGELOG, DEFAULT_CHANGELOG, DEFAULT_STATE_STORE, STATE_STORE


def tell_origins(spec: AttemptSpec, log: EventLog, *, restored: bool) -> None:
    """`restored`: this attempt has made the checkpoints from the savepoint that the job names."""
    wanted = spec.graph.settings.restore
    savepoint = {"savepoint": wanted.path, "trigger": _trigger_id(wanted.path)} if wanted and restored else {}
    for sink in spec.graph.sinks:
        # Not where only Spark can look into the checkpoint: there, the first batch that is reported tells.
        with contextlib.suppress(FiresteelError, OSError):
            batch = checkpoints.batches(sink, spec).committed
            if batch != checkpoints.NONE or savepoint:
                log.emit("origin", vertex=sink.name, batch=batch, **savepoint)


def rows_by_source(graph: JobGraph, sink: str, sources: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What a batch has read, by vertex, where Spark's names of its sources leave no doubt."""
    todo, found = [sink], dict[str, Source]()
    while todo:
        vertex = graph.by_name[todo.pop()]
        if isinstance(vertex, Source) and not vertex.static:
            found[vertex.name] = vertex
        todo += inputs_of(vertex)
    if len(found) == 1:
        return {next(iter(found)): sum(s.get("numInputRows") or 0 for s in sources)}
    rows: dict[str, int] = {}
    for name, vertex in found.items():
        marks = [m for m in (vertex.path, vertex.table, vertex.options.get("subscribe")) if m]
        matching = [s for s in sources if any(m.rstrip("/*") in str(s.get("description", "")) for m in marks)]
        if len(matching) == 1:
            rows[name] = matching[0].get("numInputRows") or 0
    places = [(v.path, v.table) for v in found.values()]
    return rows if len(set(places)) == len(places) else {}


def tell_edges_of(query: Any, graph: JobGraph, sink: str, log: EventLog) -> None:
    """How rows get from vertex to vertex in a query that has done a batch."""
    vertex = graph.by_name[sink]
    with contextlib.suppress(Exception):  # as below
        if isinstance(vertex, Sink):
            log.emit("edges", edges=ship_strategies_of_query(graph, vertex, plan_of_query(query)))


def tell_edges(graph: JobGraph, frames: Mapping[str, Any], log: EventLog) -> None:
    """How rows get from vertex to vertex in a batch, as Spark plans it."""
    with contextlib.suppress(Exception):  # a private corner of PySpark; what is not told is not shown
        edges = ship_strategies(graph, plans_of(graph, frames))
        log.emit("edges", edges=edges)


def _trigger_id(savepoint: str) -> str:
    try:
        return find(plain(savepoint).removesuffix(f"/{MANIFEST}")).trigger_id
    except (FiresteelError, OSError):
        return ""


def tell_state_store(spark: Any, log: EventLog) -> None:
    """As the session has it: the job's own settings over the engine's over Spark's."""
    from pyspark.errors import PySparkException

    with contextlib.suppress(PySparkException):
        provider: str = spark.conf.get(STATE_STORE, None) or DEFAULT_STATE_STORE
        changelog: str = spark.conf.get(CHANGELOG, None) or DEFAULT_CHANGELOG
        log.emit("state-store", provider=provider, changelog="RocksDB" in provider and changelog.lower() == "true")
