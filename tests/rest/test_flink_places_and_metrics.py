"""Where failures were, and what is measured of vertices: numbers that a dashboard can show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import graph_of
from tests.rest.desk import submission_of
from tests.rest.flink_world import (
    ADDRESS,
    ENGINE,
    FAILED,
    FINISHED,
    RESTARTING,
    RUNNING,
    SECOND_ENGINE,
    SINK,
    SOURCE,
    FlinkWorld,
    committed_batches,
    stream_progress,
)

from firesteel.attempts.committed import Committed, CommittedBatch
from firesteel.failure import Failure, FailureKind
from firesteel.flink_rest.details import failure_words
from firesteel.jobgraph.model import JobGraph, NoRestart
from firesteel.jobmaster.machine import ExceptionEntry, JobState
from firesteel.jobmaster.measures import busy_share
from firesteel.status import JobStatus
from firesteel.types import JobID, vertex_id

JOB = JobID("c" * 32)


@pytest.fixture
def world(tmp_path: Path) -> FlinkWorld:
    return FlinkWorld(tmp_path)


def put(world: FlinkWorld, graph: JobGraph, state: JobState, progress: dict[str, Any] | None = None) -> None:
    world.desk.gateway.add(submission_of(graph, JOB, submitted_at=world.started), state, progress=progress)


# -- places ---------------------------------------------------------------------------------------------------------


def entries(world: FlinkWorld, job: str = JOB) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        world.desk.client().get(f"/jobs/{job}/exceptions").json()["exceptionHistory"]["entries"]
    )
    return found


def test_failures_of_all_attempts_have_task_engine_and_address(world: FlinkWorld) -> None:
    places = [(e["taskName"], e["taskManagerId"], e["endpoint"]) for e in entries(world, RESTARTING)]
    assert places == [
        (f"{SINK} (1/1) - execution #1", ENGINE, ADDRESS),
        (f"{SINK} (1/1) - execution #0", SECOND_ENGINE, "10.0.0.7:15002"),
    ]


def failed(failure: Failure, attempt: int = 1) -> JobState:
    entry = ExceptionEntry(failure, 1000.0, attempt)
    state = JobState(NoRestart(), attempt=attempt, engine_id="e1", endpoint="10.0.0.1:15002", exceptions=(entry,))
    return replace(state, status=JobStatus.FAILING if attempt else JobStatus.CREATED)


@pytest.mark.parametrize(
    ("kind", "task"),
    [(FailureKind.USER_CODE, "etl (1/1) - execution #0"), (FailureKind.KILLED, None), (FailureKind.ENGINE_LOST, None)],
)
def test_what_a_program_raises_is_the_programs(world: FlinkWorld, kind: FailureKind, task: str | None) -> None:
    put(world, graph_of({"kind": "script", "name": "etl", "file": "/x.py"}), failed(Failure(kind, "boom")))
    (entry,) = entries(world)
    assert (entry.get("taskName"), entry["taskManagerId"], entry["endpoint"]) == (task, "e1", "10.0.0.1:15002")


def test_a_job_that_never_had_an_engine_names_none(world: FlinkWorld) -> None:
    graph = graph_of({"kind": "script", "name": "etl", "file": "/x.py"})
    put(world, graph, failed(Failure(FailureKind.ENGINE_START, "no memory"), attempt=0))
    (entry,) = entries(world)
    assert not {"taskName", "endpoint", "taskManagerId"} & set(entry)


@pytest.mark.parametrize(
    ("kind", "error_class", "message", "first"),
    [
        (
            "data error",
            "DIVIDE_BY_ZERO",
            "(STREAM_FAILED) [DIVIDE_BY_ZERO] Division by zero.",
            "DIVIDE_BY_ZERO: data error in vertex 'v': Division by zero.",
        ),
        ("data error", "DIVIDE_BY_ZERO", "[DIVIDE_BY_ZERO] No.", "DIVIDE_BY_ZERO: data error in vertex 'v': No."),
        ("invalid pipeline", "", "invalid pipeline: no sink", "invalid pipeline in vertex 'v': no sink"),
        (
            "user code",
            "ZeroDivisionError",
            "ZeroDivisionError: division by zero",
            "ZeroDivisionError: user code in vertex 'v': division by zero",
        ),
        ("user code", "X", "about [X] something", "X: user code in vertex 'v': about [X] something"),
    ],
)
def test_no_word_stands_twice(kind: str, error_class: str, message: str, first: str) -> None:
    failure = {"kind": kind, "error_class": error_class, "message": message, "vertex": "v"}
    assert failure_words(failure)[2].splitlines()[0] == first


# -- how busy -------------------------------------------------------------------------------------------------------


def log_of(*batches: tuple[float, int]) -> Committed:
    log = Committed()
    for number, (at, duration_ms) in enumerate(batches):
        log = log.committing(CommittedBatch(number, at, duration_ms))
    return log


@pytest.mark.parametrize(
    ("log", "share"),
    [
        (log_of(), None),
        (log_of((990.0, 5000), (1000.0, 5000)), 10 / 15),
        (log_of(*((float(n), 500) for n in range(951, 1001))), 0.505),
        (log_of((900.0, 1000), (1000.0, 30_000)), 0.5),
        (log_of((990.0, 90_000), (1000.0, 10_000)), 1.0),
        (log_of((900.0, 1000)), 0.0),
    ],
)
def test_share_of_the_last_minute_that_batches_took(log: Committed, share: float | None) -> None:
    found = busy_share(log, 1000.0)
    assert found == (None if share is None else pytest.approx(share, abs=0.001))


def test_back_pressure_is_shown_as_measured(world: FlinkWorld) -> None:
    path = f"/jobs/{RUNNING}/vertices/{vertex_id(SOURCE)}/backpressure"
    message = world.desk.client().get(path).json()
    (subtask,) = message["subtasks"]
    assert (message["status"], message["backpressure-level"], subtask["ratio"]) == ("ok", "ok", 0.0)
    # One batch of 12 ms a second.
    assert subtask["busyRatio"] == pytest.approx(0.012, abs=0.002)
    assert subtask["idleRatio"] == pytest.approx(1 - subtask["busyRatio"], abs=0.001)


def test_nothing_is_measured_of_what_does_not_run(world: FlinkWorld) -> None:
    path = f"/jobs/{FINISHED}/vertices/{vertex_id(SOURCE)}/backpressure"
    assert world.desk.client().get(path).json() == {"status": "deprecated"}


def test_the_graph_of_the_dashboard_has_all_its_numbers_for_every_vertex(world: FlinkWorld) -> None:
    names = "backPressuredTimeMsPerSecond,busyTimeMsPerSecond,numRecordsInPerSecond"
    for name in (SOURCE, SINK):
        below = f"/jobs/{RUNNING}/vertices/{vertex_id(name)}/subtasks/metrics"
        values = {m["id"]: m for m in world.desk.client().get(f"{below}?get={names}").json()}
        assert set(values) == set(names.split(","))
        assert values["busyTimeMsPerSecond"]["max"] == pytest.approx(12, abs=2)
        assert values["backPressuredTimeMsPerSecond"]["max"] == 0
        assert (values["numRecordsInPerSecond"]["max"], values["numRecordsInPerSecond"]["skew"]) == (20.0, 0.0)


def join() -> JobGraph:
    return graph_of(
        {"kind": "source", "name": "a", "format": "rate"},
        {"kind": "source", "name": "b", "format": "rate"},
        {"kind": "sql", "name": "both", "query": "SELECT * FROM a JOIN b USING (value)", "inputs": ["a", "b"]},
        {"kind": "sink", "name": "o", "input": "both", "format": "parquet", "path": "/o", "output_mode": "append"},
        mode="streaming",
    )


def test_rows_and_times_of_a_join_whose_sources_are_told_apart(world: FlinkWorld) -> None:
    sink = {"batch": 3, "rows": 30, "rows_per_second": 15.0, "output_rows": 7, "busy_ms": 2000}
    progress = {
        "updated_at": world.now,
        "sinks": {"o": {**sink, "reads": {"a": 10, "b": 20}}},
        "checkpoints": {"o": committed_batches(3, world.now).to_json()},
    }
    state = JobState(NoRestart(), attempt=1, status=JobStatus.RUNNING, engine_id="e1", started_at=world.now - 10)
    put(world, join(), state, progress)
    metrics = {v["name"]: v["metrics"] for v in world.desk.client().get(f"/jobs/{JOB}").json()["vertices"]}
    rows = {n: (m["read-records"], m["write-records"]) for n, m in metrics.items()}
    assert rows == {"a": (10, 10), "b": (20, 20), "both": (30, 7), "o": (7, 7)}
    assert all(m["accumulated-busy-time"] == 2000.0 for m in metrics.values())
    assert all(m["accumulated-idle-time"] == pytest.approx(8000, abs=50) for m in metrics.values())
    below = (
        f"/jobs/{JOB}/vertices/{vertex_id('both')}/subtasks/0/metrics?get=numRecordsInPerSecond,numRecordsOutPerSecond"
    )
    rates = {m["id"]: float(m["value"]) for m in world.desk.client().get(below).json()}
    assert rates == {"numRecordsInPerSecond": 15.0, "numRecordsOutPerSecond": 3.5}


def test_the_output_mode_of_a_stream_is_described(world: FlinkWorld) -> None:
    graph = join().model_dump(mode="json", by_alias=True, exclude_none=True)
    graph["vertices"][-1]["output_mode"] = "update"
    put(world, JobGraph.model_validate(graph), JobState(NoRestart()), stream_progress(1, world.now))
    nodes = world.desk.client().get(f"/jobs/{JOB}/plan").json()["plan"]["nodes"]
    assert nodes[-1]["description"] == "Sink o: format=[parquet], path=[/o], output_mode=[update]<br/>"


def test_an_ended_job_says_where_it_was(world: FlinkWorld) -> None:
    job = world.desk.gateway.jobs[FAILED]
    job["endpoint"] = ADDRESS
    (subtask,) = world.desk.client().get(f"/jobs/{FAILED}/vertices/{vertex_id(SINK)}").json()["subtasks"]
    assert (subtask["taskmanager-id"], subtask["endpoint"]) == (ENGINE, ADDRESS)
