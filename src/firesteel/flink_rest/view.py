"""One job in the terms of the contract.

A vertex of the graph is a job vertex. One driver per attempt runs it, and Spark's tasks are not visible. So a vertex has one
subtask, whose executions are the job's attempts (attempt 1 is execution 0), and which is located at the job's engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from firesteel.jobmaster.rows import Io, io_of_vertices
from firesteel.rest.states import ENDED, EXECUTION_STATES, NOT_YET, execution_state, ms
from firesteel.status import JobStatus
from firesteel.types import JobID, vertex_id

UNASSIGNED = "(unassigned)"
SUBTASK = 0
"""The index of the only subtask."""

_WAITING = (JobStatus.INITIALIZING, JobStatus.CREATED)
"""The location when no attempt runs and the next one has no slot yet."""


@dataclass(frozen=True, slots=True)
class Execution:
    """An attempt of the job, as an execution of a vertex's subtask."""

    attempt: int
    """From 0."""
    state: str
    start: int
    """Milliseconds; NOT_YET when it has not begun."""
    end: int
    timestamps: Mapping[str, int]
    """When each execution state was entered; 0 if it was not."""
    engine_id: str = UNASSIGNED
    endpoint: str = UNASSIGNED

    def duration(self, now: int) -> int:
        if self.start == NOT_YET:
            return NOT_YET
        return max(0, (now if self.end == NOT_YET else self.end) - self.start)


@dataclass(frozen=True)
class JobView:
    """Wraps the Dispatcher's details of a job (`jobmaster.execution_graph`)."""

    data: Mapping[str, Any]
    at: float
    """The time of the request."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """Row counts per vertex that became known after the attempt; see `rows`."""

    @property
    def job_id(self) -> JobID:
        return JobID(self.data["job_id"])

    @property
    def owner(self) -> str:
        return str(self.data.get("owner", ""))

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def status(self) -> JobStatus:
        return JobStatus(self.data["status"])

    @property
    def streaming(self) -> bool:
        return bool(self.data["mode"] == "streaming")

    @property
    def job_type(self) -> str:
        return "STREAMING" if self.streaming else "BATCH"

    @property
    def now(self) -> int:
        return ms(self.at)

    @property
    def start(self) -> int:
        return ms(self.data["submitted_at"])

    @property
    def end(self) -> int:
        ended = self.data["ended_at"]
        return NOT_YET if ended is None else ms(ended)

    @property
    def duration(self) -> int:
        return (self.now if self.end == NOT_YET else self.end) - self.start

    @property
    def graph(self) -> Mapping[str, Any]:
        """The job graph; empty for an ended job of which only the result is known."""
        return self.data.get("graph") or {}

    @property
    def progress(self) -> Mapping[str, Any]:
        progress: Mapping[str, Any] = self.data["progress"]
        return progress

    @property
    def checkpoints(self) -> Mapping[str, Mapping[str, Any]]:
        """The committed batches of each sink (`driver.committed`), over all attempts."""
        logs: Mapping[str, Mapping[str, Any]] = self.data.get("checkpoints") or {}
        return logs

    @property
    def parallelism(self) -> int | None:
        """None if Spark decides."""
        return self.data.get("parallelism")

    @cached_property
    def timestamps(self) -> dict[str, int]:
        """When each job state was entered; 0 if it was not."""
        known: Mapping[str, float] = {"INITIALIZING": self.data["submitted_at"], **self.data["timestamps"]}
        if self.data["ended_at"] is not None:
            known = {**known, self.status.value: self.data["ended_at"]}
        return {s.value: ms(known[s.value]) if s.value in known else 0 for s in JobStatus}

    @cached_property
    def io(self) -> Mapping[str, Io]:
        return io_of_vertices(self.data, self.counted)

    @cached_property
    def vertices(self) -> tuple[VertexView, ...]:
        return tuple(VertexView(self, v) for v in self.data["vertices"])

    def vertex(self, wanted: str) -> VertexView | None:
        """The vertex of that id."""
        return next((v for v in self.vertices if v.id == wanted), None)

    @property
    def exceptions(self) -> Sequence[Mapping[str, Any]]:
        """Failures, newest first. If only the result of a job is known, the failure that ended it."""
        found: Sequence[Mapping[str, Any]] = self.data["exceptions"]
        failure = self.data["failure"]
        if found or failure is None:
            return found
        entry = {**failure, "root_cause": failure["error_class"], "labels": {}}
        return [{**entry, "at": self.data["ended_at"], "attempt": self.data["attempt"]}]

    @property
    def current_attempt(self) -> int:
        """From 0."""
        attempt: int = self.data["attempt"]
        return attempt if self.status in _WAITING else max(0, attempt - 1)

    @property
    def engine_id(self) -> str:
        """The engine of the current attempt; a classic driver has none."""
        return UNASSIGNED if self.status in _WAITING else self.data.get("engine_id") or UNASSIGNED

    @property
    def endpoint(self) -> str:
        """The address of that engine."""
        return UNASSIGNED if self.engine_id == UNASSIGNED else self.data.get("endpoint") or UNASSIGNED

    @cached_property
    def earlier(self) -> Mapping[int, Execution]:
        """The failed attempts that are still remembered, by their number from 0."""
        return {a["number"] - 1: _past(a) for a in self.data.get("attempts") or ()}

    def location(self, attempt: int) -> tuple[str, str]:
        """The engine of an attempt (from 0), and its address."""
        if attempt == self.current_attempt:
            return self.engine_id, self.endpoint
        past = self.earlier.get(attempt)
        return (UNASSIGNED, UNASSIGNED) if past is None else (past.engine_id, past.endpoint)

    def executions(self, vertex: VertexView) -> tuple[Execution, ...]:
        """The executions of the vertex's subtask, the current one first."""
        current = self.current_attempt
        failed = self.earlier.get(current)
        earlier = [e for n, e in sorted(self.earlier.items(), reverse=True) if n < current]
        return (self._execution(vertex, None if failed is None else failed.end), *earlier)

    def _execution(self, vertex: VertexView, failed_at: int | None) -> Execution:
        stamps = self.timestamps
        waiting = self.status in _WAITING
        # A leader that takes over a job enters RUNNING anew; the attempt began when it was placed.
        placed = ms(self.data.get("started_at") or 0) or stamps["RUNNING"]
        start = NOT_YET if waiting else placed or NOT_YET
        end = NOT_YET
        if vertex.state in ENDED:
            # For a sink that ends before the job, it is only known that it had ended at the driver's last report.
            end = self.end if self.end != NOT_YET else failed_at or ms(self.progress.get("updated_at") or self.at)
        entered = {
            "CREATED": stamps["RESTARTING"] if self.current_attempt else stamps["INITIALIZING"],
            "SCHEDULED": stamps["CREATED"],
            "RUNNING": max(start, 0),
            "CANCELING": stamps["CANCELLING"] or (stamps["FAILING"] if vertex.state == "CANCELING" else 0),
        }
        if end != NOT_YET:
            entered[vertex.state] = end
        return Execution(
            self.current_attempt,
            vertex.state,
            start,
            end,
            _stamps(entered),
            self.engine_id,
            self.endpoint,
        )


@dataclass(frozen=True)
class VertexView:
    job: JobView
    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        return vertex_id(self.name)

    @property
    def owner(self) -> str:
        return str(self.data.get("owner", ""))

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def inputs(self) -> Sequence[str]:
        inputs: Sequence[str] = self.data["inputs"]
        return inputs

    @property
    def parallelism(self) -> int:
        return self.data.get("parallelism") or self.job.parallelism or 1

    @property
    def state(self) -> str:
        return execution_state(JobStatus(self.data["status"]))

    @property
    def io(self) -> Io:
        return self.job.io[self.name]

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        return self.job.executions(self)

    @property
    def execution(self) -> Execution:
        """The current execution."""
        return self.executions[0]

    def sinks(self) -> Iterable[str]:
        """The sinks that this vertex is a part of: itself, or all that read it."""
        readers: dict[str, list[VertexView]] = {}
        for vertex in self.job.vertices:
            for name in vertex.inputs:
                readers.setdefault(name, []).append(vertex)
        todo: list[VertexView] = [self]
        seen: dict[str, VertexView] = {}
        while todo:
            vertex = todo.pop()
            if vertex.name not in seen:
                seen[vertex.name] = vertex
                todo += readers.get(vertex.name, [])
        return [name for name, vertex in seen.items() if vertex.data["kind"] == "sink"]


def _past(attempt: Mapping[str, Any]) -> Execution:
    start, end = ms(attempt["started_at"]), ms(attempt["ended_at"])
    return Execution(
        attempt["number"] - 1,
        "FAILED",
        start or NOT_YET,
        end,
        _stamps({"SCHEDULED": start, "RUNNING": start, "FAILED": end}),
        attempt["engine_id"] or UNASSIGNED,
        attempt["endpoint"] or UNASSIGNED,
    )


def _stamps(entered: Mapping[str, int]) -> dict[str, int]:
    return {state: entered.get(state, 0) for state in EXECUTION_STATES}
