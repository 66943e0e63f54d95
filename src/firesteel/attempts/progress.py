"""The progress of an attempt: its events, folded into a view whose size depends only on the number of vertices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from firesteel.attempts import committed
from firesteel.attempts.committed import Committed, CommittedBatch, Origin
from firesteel.metrics.jobs import are_values

SO_FAR = "so-far"
"""The event with which a new event log begins: the view of everything in the logs before it."""

_OF_A_BATCH = ("batch", "rows_per_second", "duration_ms", "state_rows", "watermark")
_OF_TASKS = ("tasks", "completed", "running", "stages", "stages_done", "bytes_read")


SHIP_STRATEGIES = frozenset({"FORWARD", "HASH", "BROADCAST", "REBALANCE", "RANGE", "GLOBAL"})
"""How rows get from one vertex to another, in Flink's words."""
_NUMBERS = ("t", "batch", "rows", "rows_per_second", "duration_ms", "state_rows", "output_rows")
_LARGEST = 2**53
_SHAPES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "phase": {"phase": (str,)},
    "stopping": {},
    "progress": {"vertex": (str,), **dict.fromkeys(_OF_TASKS, (int,))},
    "query": {"vertex": (str,), "query_id": (str,), "run_id": (str,)},
    "state-store": {"provider": (str,)},
    "edges": {"edges": (dict,)},
    "origin": {"vertex": (str,), "batch": (int,)},
    "batch": {"vertex": (str,), "rows": (int,)},
    "sink": {"vertex": (str,), "state": (str,)},
    "result": {"state": (str,)},
    "metrics": {"values": (dict,)},
    SO_FAR: {"view": (dict,)},
}
"""The fields that events of each type must have to be folded into the view."""


def is_event(event: Any) -> bool:
    """Whether a line of an event log can be folded and shown. Code of a job can write anything there (S16)."""
    if not isinstance(event, dict) or not isinstance(event.get("type"), str) or not _plain(event):
        return False
    numbers = (event[k] for k in _NUMBERS if event.get(k) is not None)
    if not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        return False
    needed = _SHAPES.get(event["type"], {})
    if not all(isinstance(event.get(k), kinds) and not isinstance(event[k], bool) for k, kinds in needed.items()):
        return False
    match event["type"]:
        case "edges":
            return _are_edges(event["edges"])
        case "origin":
            return committed.is_origin(event)
        case "metrics":
            return are_values(event["values"])
        case "batch":
            counts, reads = event.get("vertices") or {}, event.get("reads") or {}
            return (
                isinstance(counts, dict)
                and all(isinstance(n, int | None) for n in counts.values())
                and isinstance(reads, dict)
                and all(isinstance(n, int) for n in reads.values())
            )
        case "so-far":
            view = event["view"]
            sinks, counts, logs = view.get("sinks"), view.get("vertices"), view.get("checkpoints")
            return (
                isinstance(view.get("phase"), str)
                and "result" in view
                and isinstance(sinks, dict)
                and all(_is_sink(s) for s in sinks.values())
                and isinstance(counts, dict)
                and all(isinstance(n, int) for n in counts.values())
                and isinstance(view.get("state_store"), dict)
                and _are_edges(view.get("edges"))
                and are_values(view.get("metrics", {}))
                and isinstance(logs, dict)
                and all(committed.makes_sense(log) for log in logs.values())
            )
    return True


def _is_sink(data: Any) -> bool:
    """Whether a value describes a sink: its numbers are added to those of other attempts, and shown as numbers."""
    if not isinstance(data, dict):
        return False
    counts = [data.get(k, 0) for k in ("rows", "output_rows", "busy_ms")]
    reads = data.get("reads", {})
    numbers = [data[k] for k in (*_OF_A_BATCH, *_OF_TASKS) if k != "watermark" and data.get(k) is not None]
    return (
        isinstance(reads, dict)
        and all(isinstance(n, int) and not isinstance(n, bool) for n in (*counts, *reads.values()))
        and all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    )


def _are_edges(data: Any) -> bool:
    return isinstance(data, dict) and all(
        isinstance(inputs, dict) and all(isinstance(word, str) and word in SHIP_STRATEGIES for word in inputs.values())
        for inputs in data.values()
    )


def _plain(value: Any, depth: int = 8) -> bool:
    """Numbers that JSON clients know, text that is text, and not too deep."""
    match value:
        case None | bool():
            return True
        case int():
            return -_LARGEST <= value <= _LARGEST
        case float():
            return math.isfinite(value)
        case str():
            return not any("\ud800" <= c <= "\udfff" for c in value)
        case dict():
            return depth > 0 and all(_plain(k) and _plain(v, depth - 1) for k, v in value.items())
        case list():
            return depth > 0 and all(_plain(v, depth - 1) for v in value)
        case _:
            return False


class ProgressView:
    """Folds events in their order; `to_json` is what is shown."""

    def __init__(self) -> None:
        self._phase = ""
        self._updated_at = 0.0
        self._result: str | None = None
        self._sinks: dict[str, dict[str, Any]] = {}
        self._vertices: dict[str, int] = {}
        self._checkpoints: dict[str, Committed] = {}
        self._state_store: dict[str, Any] = {}
        self._edges: dict[str, dict[str, str]] = {}
        self._metrics: dict[str, float] = {}

    def fold(self, event: Mapping[str, Any]) -> None:
        fresh = not self._updated_at
        self._updated_at = event.get("t", self._updated_at)
        match event["type"]:
            case "phase" | "stopping":
                self._phase = event["phase"] if event["type"] == "phase" else "stopping"
            case "progress":
                self._sink(event).update({k: event[k] for k in _OF_TASKS if k in event})
            case "query":
                self._sink(event).update(state="running", query_id=event["query_id"], run_id=event["run_id"])
            case "state-store":
                self._state_store = {"provider": event["provider"], "changelog": event.get("changelog") is True}
            case "edges":
                self._edges = {**self._edges, **event["edges"]}
            case "origin":
                origin = Origin(
                    event["batch"], event.get("t") or 0, event.get("savepoint", ""), event.get("trigger", "")
                )
                self._checkpoints[event["vertex"]] = self._log(event).going_on(origin)
            case "batch":
                self._batch(event)
            case "sink":
                self._sink(event).update(state=event["state"])
            case "result":
                self._result = event["state"]
            case "metrics":
                self._metrics = dict(event["values"])
            case "so-far" if fresh:
                self._take_over(event["view"])
            case _:
                pass

    def _sink(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return self._sinks.setdefault(event["vertex"], {})

    def _log(self, event: Mapping[str, Any]) -> Committed:
        return self._checkpoints.get(event["vertex"], Committed())

    def _batch(self, event: Mapping[str, Any]) -> None:
        sink = self._sink(event)
        sink.update({k: event.get(k) for k in _OF_A_BATCH})
        lasted = round(event.get("duration_ms") or 0)
        sink["busy_ms"] = sink.get("busy_ms", 0) + lasted
        number = event.get("batch")
        if number is not None and number >= 0:
            batch = CommittedBatch(round(number), event.get("t") or 0, max(0, lasted))
            self._checkpoints[event["vertex"]] = self._log(event).committing(batch)
        sink["rows"] = sink.get("rows", 0) + event["rows"]
        written = event.get("output_rows", -1)
        if written >= 0:  # Spark says -1 for sinks that do not count
            sink["output_rows"] = sink.get("output_rows", 0) + written
        for name, rows in (event.get("reads") or {}).items():
            reads = sink.setdefault("reads", {})
            reads[name] = reads.get(name, 0) + rows
        for name, rows in (event.get("vertices") or {}).items():
            self._vertices[name] = self._vertices.get(name, 0) + (rows or 0)

    def _take_over(self, view: Mapping[str, Any]) -> None:
        self._phase = view["phase"]
        self._result = view["result"]
        self._sinks = {name: dict(values) for name, values in view["sinks"].items()}
        self._vertices = dict(view["vertices"])
        self._checkpoints = {name: Committed.from_json(log) for name, log in view["checkpoints"].items()}
        self._state_store = dict(view["state_store"])
        self._edges = view["edges"]
        self._metrics = dict(view.get("metrics", {}))

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self._phase,
            "updated_at": self._updated_at,
            "result": self._result,
            "sinks": {name: dict(values) for name, values in self._sinks.items()},
            "vertices": dict(self._vertices),
            "checkpoints": {name: log.to_json() for name, log in self._checkpoints.items()},
            "state_store": dict(self._state_store),
            "edges": self._edges,
            "metrics": dict(self._metrics),
            "query_runs": {name: values["run_id"] for name, values in self._sinks.items() if "run_id" in values},
        }
