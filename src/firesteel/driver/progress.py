"""How far an attempt is: its events, folded into a view whose size depends on the number of vertices only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SO_FAR = "so-far"
"""The event with which a new event log begins: the view of everything in the logs before it."""

_OF_A_BATCH = ("batch", "rows_per_second", "duration_ms", "state_rows", "watermark")
_OF_TASKS = ("tasks", "completed", "running", "stages", "stages_done", "bytes_read")


class ProgressView:
    """Fold events in their order; `to_json` is what there is to show."""

    def __init__(self) -> None:
        self._phase = ""
        self._updated_at = 0.0
        self._result: str | None = None
        self._sinks: dict[str, dict[str, Any]] = {}
        self._vertices: dict[str, int] = {}

    def fold(self, event: Mapping[str, Any]) -> None:
        fresh = not self._updated_at
        self._updated_at = event.get("t", self._updated_at)
        match event["type"]:
            case "phase":
                self._phase = event["phase"]
            case "stopping":
                self._phase = "stopping"
            case "progress":
                self._sink(event).update({k: event[k] for k in _OF_TASKS if k in event})
            case "query":
                self._sink(event).update(state="running", query_id=event["query_id"], run_id=event["run_id"])
            case "batch":
                self._batch(event)
            case "sink":
                self._sink(event).update(state=event["state"])
            case "result":
                self._result = event["state"]
            case "so-far" if fresh:
                self._take_over(event["view"])
            case _:
                pass

    def _sink(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return self._sinks.setdefault(event["vertex"], {})

    def _batch(self, event: Mapping[str, Any]) -> None:
        sink = self._sink(event)
        sink.update({k: event.get(k) for k in _OF_A_BATCH})
        sink["rows"] = sink.get("rows", 0) + event["rows"]
        written = event.get("output_rows", -1)
        if written >= 0:  # Spark says -1 for sinks that do not count
            sink["output_rows"] = sink.get("output_rows", 0) + written
        for name, rows in (event.get("vertices") or {}).items():
            self._vertices[name] = self._vertices.get(name, 0) + (rows or 0)

    def _take_over(self, view: Mapping[str, Any]) -> None:
        self._phase = view["phase"]
        self._result = view["result"]
        self._sinks = {name: dict(values) for name, values in view["sinks"].items()}
        self._vertices = dict(view["vertices"])

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self._phase,
            "updated_at": self._updated_at,
            "result": self._result,
            "sinks": {name: dict(values) for name, values in self._sinks.items()},
            "vertices": dict(self._vertices),
            "query_runs": {name: values["run_id"] for name, values in self._sinks.items() if "run_id" in values},
        }
