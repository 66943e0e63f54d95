"""One job in the contract's shapes: states, times, attempts, rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.rest.desk import submission_of
from tests.rest.flink_world import SINK, SOURCE, batch_graph, batch_progress, stream_graph, stream_progress

from firesteel.failure import Failure, FailureKind
from firesteel.flink_rest.details import (
    failure_words,
    render_config,
    render_execution_result,
    render_job,
    restart_words,
)
from firesteel.flink_rest.exceptions import render_exceptions
from firesteel.flink_rest.io_messages import io_message
from firesteel.flink_rest.plan import render_plan
from firesteel.flink_rest.subtasks import render_execution, render_times, render_vertex, summary
from firesteel.flink_rest.view import UNASSIGNED, JobView
from firesteel.jobgraph.model import JobGraph, NoRestart
from firesteel.jobmaster.execution_graph import bare, execution_graph
from firesteel.jobmaster.machine import ExceptionEntry, JobState
from firesteel.jobmaster.past import Past, PastAttempt
from firesteel.rest.states import EXECUTION_STATES, execution_state
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID, vertex_id

JOB = "a" * 32
STAMPS = {"CREATED": 1001.0, "RUNNING": 1002.0}
FAILURE = Failure(
    FailureKind.USER_CODE, "division by zero", vertex=SINK, error_class="ZeroDivisionError", traceback="  in f\n"
)


def view(
    graph: JobGraph | None = None,
    state: JobState | None = None,
    *,
    progress: dict[str, Any] | None = None,
    result: JobResult | None = None,
    counted: dict[str, int] | None = None,
    now: float = 1010.0,
) -> JobView:
    graph = graph or batch_graph("etl")
    state = state or JobState(NoRestart(), attempt=1, status=JobStatus.RUNNING, engine_id="e1", timestamps=STAMPS)
    data = execution_graph(submission_of(graph, JOB), state, progress or {}, now=now, result=result)
    return JobView(data, now, counted or {})


def result_of(status: JobStatus, *, failure: Failure | None = None) -> JobResult:
    return JobResult(JobID(JOB), "etl", status, failure, 1000.0, 1002.0, 1008.0, 1, 0, "d", owner="alice")


# -- states and times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", JobStatus)
def test_every_job_state_is_an_execution_state(status: JobStatus) -> None:
    assert execution_state(status) in EXECUTION_STATES


@pytest.mark.parametrize("status", [s for s in JobStatus if not s.terminal])
def test_a_job_can_be_shown_in_every_state(status: JobStatus) -> None:
    message = render_job(view(state=JobState(NoRestart(), attempt=1, status=status, timestamps=STAMPS)))
    assert message["state"] == status.value
    assert message["end-time"] == -1
    assert set(message["timestamps"]) == {s.value for s in JobStatus}
    assert sum(message["status-counts"].values()) == len(message["vertices"]) == 3


def test_a_running_job_runs_since_it_had_its_slot() -> None:
    message = render_job(view())
    assert (message["start-time"], message["duration"]) == (1_000_000, 10_000)
    for vertex in message["vertices"]:
        assert (vertex["status"], vertex["start-time"], vertex["end-time"]) == ("RUNNING", 1_002_000, -1)
        assert vertex["duration"] == 8000
        assert vertex["tasks"]["RUNNING"] == 1


def test_parallelism_is_the_vertexs_else_the_jobs_else_one() -> None:
    assert {v["name"]: v["parallelism"] for v in render_job(view())["vertices"]} == {SOURCE: 2, "agg": 2, SINK: 1}
    plain = batch_graph("etl").model_copy(update={"parallelism": None})
    assert {v["name"]: v["parallelism"] for v in render_job(view(plain))["vertices"]} == {SOURCE: 1, "agg": 1, SINK: 1}


def test_a_sink_that_is_done_before_the_job_is_finished() -> None:
    states = {v["name"]: v["status"] for v in render_job(view(progress=batch_progress(1005.0)))["vertices"]}
    assert states == {SOURCE: "RUNNING", "agg": "RUNNING", SINK: "FINISHED"}
    sink = next(v for v in render_job(view(progress=batch_progress(1005.0)))["vertices"] if v["name"] == SINK)
    assert (sink["end-time"], sink["duration"]) == (1_005_000, 3000)


def test_a_waiting_job_has_not_begun() -> None:
    waiting = view(state=JobState(NoRestart(), status=JobStatus.CREATED, timestamps={"CREATED": 1001.0}))
    (vertex, *_) = render_job(waiting)["vertices"]
    assert (vertex["status"], vertex["start-time"], vertex["duration"]) == ("SCHEDULED", -1, -1)
    execution = render_execution(waiting.vertices[0], waiting.vertices[0].execution)
    assert (execution["taskmanager-id"], execution["endpoint"]) == (UNASSIGNED, UNASSIGNED)
    assert execution["status-duration"] == {
        "CREATED": 1000,
        "SCHEDULED": 9000,
        "DEPLOYING": -1,
        "INITIALIZING": -1,
        "RUNNING": -1,
    }


def test_times_of_a_finished_job() -> None:
    state = JobState(NoRestart(), attempt=1, status=JobStatus.FINISHED, timestamps={**STAMPS, "FINISHED": 1008.0})
    job = view(state=state, result=result_of(JobStatus.FINISHED))
    times = render_times(job.vertices[0])["subtasks"][0]
    assert times["duration"] == 8000
    assert {s: t for s, t in times["timestamps"].items() if t} == {
        "CREATED": 1_000_000,
        "SCHEDULED": 1_001_000,
        "RUNNING": 1_002_000,
        "FINISHED": 1_008_000,
    }
    vertex = render_vertex(job.vertices[0])
    assert vertex["subtasks"][0]["status-duration"]["RUNNING"] == 6000
    assert vertex["aggregated"]["status-duration"]["RUNNING"]["avg"] == 6000
    assert vertex["aggregated"]["metrics"]["accumulated-busy-time"]["max"] == -1


# -- attempts -------------------------------------------------------------------------------------------------------


def restarted(status: JobStatus, attempt: int) -> JobView:
    entries = tuple(ExceptionEntry(FAILURE, 1000.0 + n, n, {"type": "USER_ERROR"}) for n in (1, 2))
    past = Past()
    for n in (1, 2):
        past = past.after(PastAttempt(n, 999.5 + n, 1000.0 + n, f"e{n}", f"10.0.0.{n}:15002"), {})
    place = {"engine_id": "e3", "endpoint": "10.0.0.3:15002", "started_at": 1003.0}
    state = JobState(NoRestart(), attempt=attempt, status=status, timestamps=STAMPS, exceptions=entries, past=past)
    return view(state=replace(state, **place))  # type: ignore[arg-type]


def test_attempts_of_the_job_are_attempts_of_the_subtask() -> None:
    executions = restarted(JobStatus.RUNNING, 3).vertices[0].executions
    assert [(e.attempt, e.state, e.start, e.end, e.endpoint, e.engine_id) for e in executions] == [
        (2, "RUNNING", 1_003_000, -1, "10.0.0.3:15002", "e3"),
        (1, "FAILED", 1_001_500, 1_002_000, "10.0.0.2:15002", "e2"),
        (0, "FAILED", 1_000_500, 1_001_000, "10.0.0.1:15002", "e1"),
    ]
    earlier = render_execution(restarted(JobStatus.RUNNING, 3).vertices[0], executions[2])
    assert (earlier["duration"], earlier["status-duration"]["RUNNING"]) == (500, 500)


def test_while_it_waits_to_restart_the_failed_attempt_is_the_current_one() -> None:
    executions = restarted(JobStatus.RESTARTING, 2).vertices[0].executions
    assert [(e.attempt, e.state, e.end) for e in executions] == [(1, "FAILED", 1_002_000), (0, "FAILED", 1_001_000)]


def test_while_it_waits_for_a_slot_the_next_attempt_is_the_current_one() -> None:
    executions = restarted(JobStatus.CREATED, 2).vertices[0].executions
    assert [(e.attempt, e.state) for e in executions] == [(2, "SCHEDULED"), (1, "FAILED"), (0, "FAILED")]


def test_rows_belong_to_the_current_attempt() -> None:
    job = replace(restarted(JobStatus.RUNNING, 3), counted={SOURCE: 7})
    source = job.vertices[0]
    assert render_execution(source, source.executions[0])["metrics"]["write-records"] == 7
    assert render_execution(source, source.executions[1])["metrics"]["write-records"] == 0


# -- rows -----------------------------------------------------------------------------------------------------------


def metrics(job: JobView) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {v.name: (v.io.read_records, v.io.write_records, v.io.read_bytes) for v in job.vertices}


def complete(job: JobView) -> set[bool]:
    messages = [io_message(v.io) for v in job.vertices]
    return {bool(v) for message in messages for k, v in message.items() if k.endswith("-complete")}


def test_what_a_batch_job_may_still_tell_is_being_loaded() -> None:
    assert set(metrics(view()).values()) == {(None, None, None)}
    assert complete(view()) == {False}


@pytest.mark.parametrize("status", [s for s in JobStatus if s is not JobStatus.RUNNING])
def test_what_nobody_will_ever_tell_is_not_being_loaded(status: JobStatus) -> None:
    assert complete(view(state=JobState(NoRestart(), attempt=1, status=status, timestamps=STAMPS))) == {True}


def test_a_stream_without_a_batch_has_read_nothing() -> None:
    assert complete(view(stream_graph("s"))) == {True}


def test_sinks_write_what_they_read_where_spark_does_not_count() -> None:
    progress = stream_progress(3, 1005.0)
    del progress["sinks"][SINK]["output_rows"]
    assert metrics(view(stream_graph("s"), progress=progress)) == {SOURCE: (860, 860, None), SINK: (860, 860, None)}


def test_rows_of_a_stream_come_from_its_queries() -> None:
    job = view(stream_graph("s"), progress=stream_progress(3, 1005.0))
    assert metrics(job) == {SOURCE: (860, 860, None), SINK: (860, 850, None)}


def test_rows_of_a_batch_come_from_operators_and_bytes_from_the_plan() -> None:
    job = view(progress=batch_progress(1005.0), counted={SOURCE: 100, SINK: 10})
    assert metrics(job) == {SOURCE: (100, 100, 924), "agg": (100, 10, None), SINK: (10, 10, None)}


def test_exact_rows_of_a_stream_win() -> None:
    progress = stream_progress(3, 1005.0) | {"vertices": {SOURCE: 900, SINK: 800}}
    assert metrics(view(stream_graph("s"), progress=progress)) == {SOURCE: (900, 900, None), SINK: (900, 800, None)}


def test_what_two_sources_read_together_belongs_to_neither() -> None:
    graph = JobGraph.model_validate(
        {
            "name": "join",
            "mode": "streaming",
            "vertices": [
                {"kind": "source", "name": "a", "format": "rate"},
                {"kind": "source", "name": "b", "format": "rate"},
                {"kind": "source", "name": "t", "format": "csv", "path": "/t", "static": True},
                {"kind": "sql", "name": "j", "query": "SELECT * FROM a JOIN b JOIN t", "inputs": ["a", "b", "t"]},
                {"kind": "sink", "name": "both", "input": "j", "format": "parquet", "path": "/o"},
                {"kind": "sql", "name": "k", "query": "SELECT * FROM a JOIN t", "inputs": ["a", "t"]},
                {"kind": "sink", "name": "one", "input": "k", "format": "parquet", "path": "/p"},
            ],
        }
    )
    sinks = {"both": {"rows": 30, "bytes_read": 5}, "one": {"rows": 12, "bytes_read": 7}}
    known = metrics(view(graph, progress={"sinks": sinks}))
    assert known["a"] == (12, 12, 7)  # but for the table that is read once, `one` has this source only
    assert known["b"] == (None, None, None)
    assert known["both"] == (None, None, 5)


# -- plan, config, failures -----------------------------------------------------------------------------------------


def test_plan_nodes_join_with_vertices_and_what_users_wrote_is_no_html() -> None:
    graph = JobGraph.model_validate(
        {
            "name": "<b>",
            "vertices": [
                {"kind": "source", "name": "a", "format": "csv", "path": "s3a://key:hush@bucket/x"},
                {
                    "kind": "sql",
                    "name": "q",
                    "query": "SELECT '<script>alert(1)</script>'\n FROM a",
                    "inputs": ["a"],
                    "description": "it's <i>",
                },
                {
                    "kind": "sink",
                    "name": "o",
                    "input": "q",
                    "format": "parquet",
                    "path": "/o",
                    "options": {"x": "secret"},
                },
            ],
        }
    )
    job = view(graph)
    plan = render_plan(job)
    assert [n["id"] for n in plan["nodes"]] == [v["id"] for v in render_job(job)["vertices"]]
    assert "inputs" not in plan["nodes"][0]
    assert plan["nodes"][1]["inputs"] == [{"id": vertex_id("a"), "num": 0, "exchange": "blocking", "ship_strategy": ""}]
    texts = [n["description"].removesuffix("<br/>") for n in plan["nodes"]]
    assert "hush" not in texts[0]
    assert "<script>" not in texts[1]
    assert "&lt;script&gt;" in texts[1]
    assert "&lt;i&gt;" in texts[1]
    assert "secret" not in texts[2]


def test_edges_are_as_spark_plans_them_where_that_is_known() -> None:
    job = view(progress={"edges": {"agg": {SOURCE: "HASH"}}})
    nodes = {n["id"]: n for n in render_plan(job)["nodes"]}
    assert [i["ship_strategy"] for i in nodes[vertex_id("agg")]["inputs"]] == ["HASH"]
    assert [i["ship_strategy"] for i in nodes[vertex_id(SINK)]["inputs"]] == [""]


def test_config_shows_spark_settings_without_their_secrets() -> None:
    graph = stream_graph("s", spark={"spark.sql.shuffle.partitions": "8", "spark.hadoop.fs.s3a.secret.key": "hush"})
    config = render_config(view(graph))["execution-config"]
    assert config["user-config"]["spark.sql.shuffle.partitions"] == "8"
    assert "hush" not in str(config)


@pytest.mark.parametrize(
    ("restart", "words"),
    [
        ({}, "deactivated"),
        ({"type": "none"}, "deactivated"),
        ({"type": "fixed-delay", "attempts": 3, "delay": "1 s"}, "#3 restart attempts"),
        (
            {"type": "exponential-delay", "initial_delay": "1 s", "max_delay": "1 min", "multiplier": 2.0},
            "from 1 s to 1 min",
        ),
        ({"type": "failure-rate", "max_failures": 3, "interval": "5 min", "delay": "1 s"}, "3 failures in 5 min"),
    ],
)
def test_restart_strategies_have_words(restart: dict[str, Any], words: str) -> None:
    assert words in restart_words(restart)


def test_failures_say_where_and_why_without_secrets() -> None:
    name, message, stack = failure_words(
        {"kind": "user code", "vertex": "v", "message": "password=hush", "root_cause": "E", "traceback": "token=hush"}
    )
    assert name == "E"
    assert "vertex 'v'" in message
    assert "hush" not in stack


def test_exceptions_are_newest_first_and_truncated() -> None:
    history = render_exceptions(restarted(JobStatus.RUNNING, 3), 1, {})["exceptionHistory"]
    assert history["truncated"] is True
    (entry,) = history["entries"]
    assert entry["timestamp"] == 1_002_000
    assert entry["exceptionName"] == "ZeroDivisionError"
    assert entry["taskName"] == f"{SINK} (1/1) - execution #1"
    assert entry["stacktrace"].endswith("  in f\n")
    assert entry["failureLabels"] == {"type": "USER_ERROR"}


def test_exceptions_can_be_filtered_by_label() -> None:
    job = restarted(JobStatus.RUNNING, 3)
    assert len(render_exceptions(job, 20, {"type": "USER_ERROR"})["exceptionHistory"]["entries"]) == 2
    assert render_exceptions(job, 20, {"type": "OTHER"})["exceptionHistory"]["entries"] == []


def test_a_job_of_which_the_result_only_is_known_can_be_shown() -> None:
    job = JobView(bare(result_of(JobStatus.FAILED, failure=FAILURE)), 1010.0)
    message = render_job(job)
    assert message["vertices"] == []
    assert message["plan"]["nodes"] == []
    assert message["timestamps"]["FAILED"] == 1_008_000
    (entry,) = render_exceptions(job, 20, {})["exceptionHistory"]["entries"]
    assert entry["exceptionName"] == "ZeroDivisionError"
    assert render_config(job)["execution-config"]["job-parallelism"] == 1


def test_result_of_a_failed_job_has_its_cause() -> None:
    state = JobState(NoRestart(), attempt=1, status=JobStatus.FAILED, timestamps=STAMPS)
    message = render_execution_result(view(state=state, result=result_of(JobStatus.FAILED, failure=FAILURE)))
    assert message["status"] == {"id": "COMPLETED"}
    result = message["job-execution-result"]
    assert (result["application-status"], result["net-runtime"]) == ("FAILED", 8000)
    assert result["failure-cause"]["class"] == "ZeroDivisionError"
    assert render_execution_result(view())["status"] == {"id": "IN_PROGRESS"}


def test_summary_of_several_values() -> None:
    assert summary([4, 1, 3, 2, 5]) == {
        "min": 1,
        "max": 5,
        "avg": 3,
        "sum": 15,
        "median": 3,
        "p25": 2,
        "p75": 4,
        "p95": 5,
    }
