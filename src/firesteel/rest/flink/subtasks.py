"""A vertex from the inside: its subtask and that one's executions. Pure; `vertices` has the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from firesteel.rest.flink.rows import Io, IOMetrics
from firesteel.rest.flink.states import EXECUTION_STATES, counts
from firesteel.rest.flink.view import SUBTASK, Execution, VertexView

Summary = dict[str, int]
"""min, max, avg, sum, median, p25, p75 and p95."""

Aggregated = TypedDict("Aggregated", {"metrics": dict[str, Summary], "status-duration": dict[str, Summary]})

SubtaskMessage = TypedDict(
    "SubtaskMessage",
    {
        "subtask": int,
        "status": str,
        "attempt": int,
        "endpoint": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "metrics": IOMetrics,
        "taskmanager-id": str,
        "status-duration": dict[str, int],
        "start_time": int,
    },
)


class VertexMessage(TypedDict):
    id: str
    name: str
    parallelism: int
    maxParallelism: int
    now: int
    subtasks: list[SubtaskMessage]
    aggregated: Aggregated


class SubtaskTimes(TypedDict):
    subtask: int
    endpoint: str
    host: str
    duration: int
    timestamps: dict[str, int]


class SubtaskTimesMessage(TypedDict):
    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimes]


VertexTaskManager = TypedDict(
    "VertexTaskManager",
    {
        "endpoint": str,
        "status": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "metrics": IOMetrics,
        "status-counts": dict[str, int],
        "taskmanager-id": str,
        "aggregated": Aggregated,
    },
)


class VertexTaskManagersMessage(TypedDict):
    id: str
    name: str
    now: int
    taskmanagers: list[VertexTaskManager]


VertexAccumulators = TypedDict("VertexAccumulators", {"id": str, "user-accumulators": list[Any]})
SubtaskAccumulators = TypedDict(
    "SubtaskAccumulators", {"subtask": int, "attempt": int, "endpoint": str, "user-accumulators": list[Any]}
)
AttemptAccumulators = TypedDict(
    "AttemptAccumulators", {"subtask": int, "attempt": int, "id": str, "user-accumulators": list[Any]}
)


class SubtasksAccumulators(TypedDict):
    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulators]


_LASTING = EXECUTION_STATES[: EXECUTION_STATES.index("RUNNING") + 1]
"""The states whose duration is told: those that something else follows."""
NOT_ENTERED = -1


def render_vertex(vertex: VertexView) -> VertexMessage:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.parallelism,
        "now": vertex.job.now,
        "subtasks": [render_execution(vertex, vertex.execution)],
        "aggregated": _aggregated(vertex),
    }


def render_execution(vertex: VertexView, execution: Execution) -> SubtaskMessage:
    return {
        "subtask": SUBTASK,
        "status": execution.state,
        "attempt": execution.attempt,
        "endpoint": execution.endpoint,
        "start-time": execution.start,
        "end-time": execution.end,
        "duration": execution.duration(vertex.job.now),
        "metrics": _io(vertex, execution).message(),
        "taskmanager-id": execution.engine_id,
        "status-duration": status_durations(execution, vertex.job.now),
        "start_time": execution.start,
    }


def _io(vertex: VertexView, execution: Execution) -> Io:
    """Nobody remembers how far an attempt was that failed."""
    return vertex.io if execution is vertex.execution else Io()


def status_durations(execution: Execution, now: int) -> dict[str, int]:
    """How long each state lasted: until the one that was entered next, or until now."""
    entered = sorted((at, EXECUTION_STATES.index(state)) for state, at in execution.timestamps.items() if at)
    durations = dict.fromkeys(_LASTING, NOT_ENTERED)
    for number, (at, state) in enumerate(entered):
        until = entered[number + 1][0] if number + 1 < len(entered) else now
        if EXECUTION_STATES[state] in durations:
            durations[EXECUTION_STATES[state]] = max(0, until - at)
    return durations


def render_times(vertex: VertexView) -> SubtaskTimesMessage:
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


def render_task_managers(vertex: VertexView) -> VertexTaskManagersMessage:
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
                "metrics": vertex.io.message(),
                "status-counts": counts([vertex.state]),
                "taskmanager-id": execution.engine_id,
                "aggregated": _aggregated(vertex),
            }
        ],
    }


def render_accumulators(vertex: VertexView) -> VertexAccumulators:
    return {"id": vertex.id, "user-accumulators": []}


def render_subtasks_accumulators(vertex: VertexView) -> SubtasksAccumulators:
    execution = vertex.execution
    return {
        "id": vertex.id,
        "parallelism": vertex.parallelism,
        "subtasks": [
            {
                "subtask": SUBTASK,
                "attempt": execution.attempt,
                "endpoint": execution.endpoint,
                "user-accumulators": [],
            }
        ],
    }


def render_attempt_accumulators(vertex: VertexView, execution: Execution) -> AttemptAccumulators:
    name = f"{vertex.job.job_id}_{vertex.id}_{SUBTASK}_{execution.attempt}"
    return {"subtask": SUBTASK, "attempt": execution.attempt, "id": name, "user-accumulators": []}


def _aggregated(vertex: VertexView) -> Aggregated:
    """Over all subtasks, of which there is one."""
    metrics: Mapping[str, Any] = vertex.io.message()
    values = {
        name: -1 if isinstance(value, str) else value  # no number is -1 here
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
