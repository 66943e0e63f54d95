"""Whether the state in a savepoint fits a new graph (I31). Pure: takes graphs and saved state, returns a verdict.

The old graph and the new one are compared where both can be read, otherwise the columns in the state. Code counts as
unknown, and is examined again when the query starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from firesteel.jobgraph.model import JobGraph, OutputMode, Sink, Source
from firesteel.jobgraph.state_shape import Shape, shape_of
from firesteel.jobgraph.state_sql import KeptState, StateKind
from firesteel.savepoint import sources
from firesteel.savepoint.evidence import DEFAULT_STORE, SavedOperator, SavedState
from firesteel.savepoint.verdict import Level, RestoreFinding, Verdict

KINDS: Mapping[str, StateKind] = {
    "stateStoreSave": StateKind.AGGREGATION,
    "sessionWindowStateStoreSaveExec": StateKind.SESSION,
    "symmetricHashJoin": StateKind.JOIN,
    "dedupe": StateKind.DEDUPLICATION,
    "dedupeWithinWatermark": StateKind.DEDUPLICATION_IN_WATERMARK,
    "globalLimit": StateKind.LIMIT,
}
_ANONYMOUS = "_groupingexpression"
_SESSION_START = "sessionStartTime"


def judge(
    old: Mapping[str, Any],
    new: JobGraph,
    states: Mapping[str, SavedState | None],
    *,
    plans: Mapping[str, tuple[KeptState, ...]] = MappingProxyType({}),
    allow_non_restored_state: bool = False,
) -> Verdict:
    """Whether the queries of `new` can start from a savepoint.

    Args:
        old: the graph of the savepoint, as its manifest has it.
        states: the saved state of each sink; None for a query that had committed nothing.
        plans: the state that the queries of sinks keep according to Spark, for those whose graph has code.
    """
    before = _graph(old)
    findings: list[RestoreFinding] = []
    for name in states:
        if name not in {s.name for s in new.sinks}:
            level = Level.CHANGES if allow_non_restored_state else Level.NOT
            left = "is skipped" if allow_non_restored_state else "would be skipped (allow_non_restored_state)"
            findings.append(RestoreFinding(level, name, f"the job has no such sink; its state {left}"))
    for sink in new.sinks:
        if sink.name not in states:
            findings.append(
                RestoreFinding(Level.CHANGES, sink.name, "the savepoint has no such sink; it starts without state")
            )
        elif (state := states[sink.name]) is not None:
            findings += _query(before, new, sink, state, plans.get(sink.name))
    return Verdict(tuple(dict.fromkeys(findings)))


def _graph(plain: Mapping[str, Any]) -> JobGraph | None:
    try:
        return JobGraph.model_validate(plain)
    except ValidationError:
        return None


def _query(
    before: JobGraph | None, new: JobGraph, sink: Sink, state: SavedState, planned: tuple[KeptState, ...] | None
) -> Iterator[RestoreFinding]:
    shape = shape_of(new, sink)
    if shape.unclear and planned is not None:
        at = shape.unclear[-1][0]
        shape = replace(shape, kept=tuple((at, kept) for kept in planned), unclear=())
    else:
        planned = None
    old_sink = next((s for s in before.sinks if s.name == sink.name), None) if before else None
    old = shape_of(before, old_sink) if before and old_sink else None
    for vertex, why in shape.unclear:
        yield RestoreFinding(Level.UNKNOWN, vertex, f"{why}: its state is checked when the query starts")
    found = [*_operators(shape, old, state, sink.name)]
    if old is not None and not found and not old.unclear and not shape.unclear and planned is None:
        found = [*_same_operators(old, shape, state)]
    elif not found:
        found = [*_columns(shape, state)]
    yield from found
    if before is not None and old is not None and old_sink is not None:
        yield from sources.compare(old.sources, shape.sources, sink.name)
        yield from _changes(before, new, old, shape, known={f.vertex for f in found})
        yield from _output(old_sink, sink, stateful=bool(state.operators))
    yield from _settings(new, state)


def _operators(shape: Shape, old: Shape | None, state: SavedState, sink: str) -> Iterator[RestoreFinding]:
    """Operators that were added or removed. Code may keep state too, so a missing one is certain only without code."""
    if not state.complete:
        yield RestoreFinding(Level.UNKNOWN, sink, "its state is in an unknown format")
        return
    saved = Counter(KINDS[o.name] for o in state.operators if o.name in KINDS)
    kept = Counter(k.kind for _, k in shape.kept)
    for kind in kept - saved:
        vertex = [v for v, k in shape.kept if k.kind is kind][-1]
        yield RestoreFinding(Level.NOT, vertex, f"its {kind} is new, and the savepoint has no state for it")
    if shape.unclear:
        return
    for kind in saved - kept:
        at = next((v for v, k in (old.kept if old else ()) if k.kind is kind), sink)
        yield RestoreFinding(Level.NOT, at, f"the savepoint has the state of {_a(kind)} that the query no longer has")
    for operator in state.operators:
        if operator.name not in KINDS:
            yield RestoreFinding(
                Level.NOT, sink, f"the savepoint has state of code ({operator.name}) that the query no longer has"
            )


def _a(kind: StateKind) -> str:
    return f"{'an' if kind is StateKind.AGGREGATION else 'a'} {kind}"


def _same_operators(old: Shape, new: Shape, state: SavedState) -> Iterator[RestoreFinding]:
    """Compare operators that are all known, with equally many of each kind."""
    if [k.kind for _, k in old.kept] != [k.kind for _, k in new.kept]:
        yield RestoreFinding(
            Level.NOT, new.kept[-1][0], "its stateful operators are in another order than in the savepoint"
        )
        return
    for (_, was), (vertex, now) in zip(old.kept, new.kept, strict=True):
        if was.keys != now.keys:
            yield _changed_keys(vertex, was, now)
        elif was.values != now.values:
            yield _changed_values(vertex, was, now)


def _changed_keys(vertex: str, was: KeptState, now: KeptState) -> RestoreFinding:
    if [_last(k) for k in was.keys] == [_last(k) for k in now.keys] and was.values == now.values:
        return RestoreFinding(
            Level.CHANGES, vertex, f"{_by(now)}, and the savepoint {_by(was)}: check that they are the same column"
        )
    return RestoreFinding(Level.NOT, vertex, f"it {_by(now)}, and its state in the savepoint {_by(was)}")


def _by(kept: KeptState) -> str:
    verb = {StateKind.JOIN: "joins on", StateKind.LIMIT: "limits"}.get(kept.kind, "goes by")
    return f"{verb} {', '.join(kept.keys) or 'nothing'}"


def _changed_values(vertex: str, was: KeptState, now: KeptState) -> RestoreFinding:
    added = [v for v in now.values if v not in was.values]
    removed = [v for v in was.values if v not in now.values]
    parts = [f"{', '.join(added)} added"] * bool(added) + [f"{', '.join(removed)} removed"] * bool(removed)
    what = " and ".join(parts) or "they are in another order"
    return RestoreFinding(Level.NOT, vertex, f"its aggregates are not those of the savepoint: {what}")


def _last(key: str) -> str:
    return key.rpartition(".")[2] if key.replace(".", "").replace("_", "").isalnum() else key


def _columns(shape: Shape, state: SavedState) -> Iterator[RestoreFinding]:
    """Compare the keys by their names in the state, for queries whose old text is not known."""
    for kind in (
        StateKind.AGGREGATION,
        StateKind.SESSION,
        StateKind.DEDUPLICATION,
        StateKind.DEDUPLICATION_IN_WATERMARK,
    ):
        kept = [(v, k) for v, k in shape.kept if k.kind is kind]
        saved = [o for o in state.operators if KINDS.get(o.name) is kind]
        if len(kept) == len(saved) == 1 and (names := _key_names(saved[0])) is not None:
            vertex, now = kept[0]
            yield from _named(vertex, now, names)


def _key_names(operator: SavedOperator) -> list[str] | None:
    store = operator.stores.get(DEFAULT_STORE)
    return None if store is None else [c.name for c in store.keys if c.name != _SESSION_START]


def _named(vertex: str, now: KeptState, names: Sequence[str]) -> Iterator[RestoreFinding]:
    keys = [k for k in now.keys if not k.startswith("SESSION_WINDOW(")]
    if "*" in keys or "UNION" in keys:
        return
    if len(keys) != len(names) or any(not _may_be(k, n) for k, n in zip(keys, names, strict=True)):
        yield RestoreFinding(
            Level.NOT, vertex, f"it {_by(now)}, and its state in the savepoint goes by {', '.join(names)}"
        )


def _may_be(key: str, name: str) -> bool:
    if name.startswith(_ANONYMOUS):
        return True
    if key.startswith("window("):
        return name == "window"
    last = _last(key).strip("`")
    return not last.replace("_", "").isalnum() or last.lower() == name.lower()


def _changes(
    before: JobGraph, new: JobGraph, old: Shape, shape: Shape, *, known: set[str | None]
) -> Iterator[RestoreFinding]:
    """Differences on the way to the sink that do not affect the state."""
    for name in shape.vertices:
        if name in known or isinstance(new.by_name[name], Source):
            continue
        if name not in old.vertices:
            yield RestoreFinding(Level.CHANGES, name, "is new on the way to the sink")
        elif before.by_name[name] != new.by_name[name]:
            yield RestoreFinding(Level.CHANGES, name, "has changed; rows before the savepoint went through the old one")
    for name in old.vertices:
        if name not in shape.vertices and name not in known and not isinstance(before.by_name[name], Source):
            yield RestoreFinding(Level.CHANGES, name, "is no longer on the way to the sink")


def _output(was: Sink, now: Sink, *, stateful: bool) -> Iterator[RestoreFinding]:
    modes = (was.output_mode or OutputMode.APPEND, now.output_mode or OutputMode.APPEND)
    if modes[0] is not modes[1]:
        level = Level.NOT if stateful and OutputMode.APPEND in modes else Level.CHANGES
        text = f"its output mode was {modes[0]} and is {modes[1]}"
        if level is Level.NOT:
            text += ", so rows that the state holds would be written again or never"
        yield RestoreFinding(level, now.name, text)
    if (was.format, was.path, was.table, was.foreach_batch) != (now.format, now.path, now.table, now.foreach_batch):
        yield RestoreFinding(Level.CHANGES, now.name, "it writes to another place than the savepoint's query")


def _settings(new: JobGraph, state: SavedState) -> Iterator[RestoreFinding]:
    if not state.operators:
        return
    for key, held in state.settings.items():
        wanted = new.settings.spark.get(key)
        if wanted is not None and wanted != held:
            yield RestoreFinding(Level.CHANGES, None, f"{key} stays {held}, as in the savepoint")
    if new.parallelism is not None and state.partitions not in (None, str(new.parallelism)):
        yield RestoreFinding(
            Level.CHANGES, None, f"the state stays in {state.partitions} partitions, whatever the parallelism"
        )
