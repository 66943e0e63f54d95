"""The subtask of a vertex and its executions. Pure; `vertices` has the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.flink_rest.io_messages import io_message
from firesteel.flink_rest.view import SUBTASK, Execution, VertexView
from firesteel.jobmaster.rows import Io
from firesteel.rest.answers import Json
from firesteel.rest.states import EXECUTION_STATES, counts

Summary = dict[str, int]
"""min, max, avg, sum, median, p25, p75 and p95."""


_LASTING = EXECUTION_STATES[: EXECUTION_STATES.index("RUNNING") + 1]
"""The states whose duration is shown: those that are not final."""
NOT_ENTERED = -1


def render_vertex(vertex: VertexView) -> Json:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.parallelism,
        "now": vertex.job.now,
        "subtasks": [render_execution(vertex, vertex.execution)],
        "aggregated": _aggregated(vertex),
    }


def render_execution(vertex: VertexView, execution: Execution) -> Json:
    return {
        "subtask": SUBTASK,
        "status": execution.state,
        "attempt": execution.attempt,
        "endpoint": execution.endpoint,
        "start-time": execution.start,
        "end-time": execution.end,
        "duration": execution.duration(vertex.job.now),
        "metrics": io_message(_io(vertex, execution)),
        "taskmanager-id": execution.engine_id,
        "status-duration": status_durations(execution, vertex.job.now),
        "start_time": execution.start,
    }


def _io(vertex: VertexView, execution: Execution) -> Io:
    """Input and output; empty for failed attempts, whose progress is not kept."""
    return vertex.io if execution is vertex.execution else Io()


def status_durations(execution: Execution, now: int) -> dict[str, int]:
    """How long each state lasted: until the next one was entered, or until now."""
    entered = sorted((at, EXECUTION_STATES.index(state)) for state, at in execution.timestamps.items() if at)
    durations = dict.fromkeys(_LASTING, NOT_ENTERED)
    for number, (at, state) in enumerate(entered):
        until = entered[number + 1][0] if number + 1 < len(entered) else now
        if EXECUTION_STATES[state] in durations:
            durations[EXECUTION_STATES[state]] = max(0, until - at)
    return durations


def render_times(vertex: VertexView) -> Json:
    execution = vertex.execution
    begun = min((at for at in execution.timestamps.values() if at), default=vertex.job.now)
    ended = vertex.job.now if execution.end < 0 else execution.end
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": vertex.job.now,
        "subtasks": [
            {
                "subtask": SUBTASK,
                "endpoint": execution.endpoint,
                "host": execution.endpoint,  # Flink's own dashboard reads this one
                "duration": max(0, ended - begun),
                "timestamps": dict(execution.timestamps),
            }
        ],
    }


def render_task_managers(vertex: VertexView) -> Json:
    execution = vertex.execution
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": vertex.job.now,
        "taskmanagers": [
            {
                "endpoint": execution.endpoint,
                "status": vertex.state,
                "start-time": execution.start,
                "end-time": execution.end,
                "duration": execution.duration(vertex.job.now),
                "metrics": io_message(vertex.io),
                "status-counts": counts([vertex.state]),
                "taskmanager-id": execution.engine_id,
                "aggregated": _aggregated(vertex),
            }
        ],
    }


def _aggregated(vertex: VertexView) -> Json:
    """Aggregates over the one subtask."""
    metrics: Mapping[str, Any] = io_message(vertex.io)
    values = {
        name: -1 if isinstance(value, str) else value  # a missing number is -1 here
        for name, value in metrics.items()
        if not isinstance(value, bool)
    }
    durations = status_durations(vertex.execution, vertex.job.now)
    return {
        "metrics": {name: summary([value]) for name, value in values.items()},
        "status-duration": {state: summary([value]) for state, value in durations.items()},
    }


def summary(values: Sequence[int]) -> Summary:
    ordered = sorted(values)
    last = len(ordered) - 1
    at = {
        name: ordered[round(last * share)]
        for name, share in (("median", 0.5), ("p25", 0.25), ("p75", 0.75), ("p95", 0.95))
    }
    total = sum(ordered)
    return {"min": ordered[0], "max": ordered[-1], "avg": total // len(ordered), "sum": total, **at}
