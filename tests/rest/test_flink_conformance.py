"""Flink's contract is kept: every operation is there and answers as specified, and as a real Flink cluster answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rest import flink_world
from tests.rest.flink_schema import Operation, operations
from tests.rest.flink_world import SUBSTITUTIONS, FlinkWorld, prepare
from tests.rest.golden_deviations import DEVIATIONS
from tests.rest.golden_replay import Golden, goldens, replay

from firesteel.flink_rest.coverage import ROWS
from firesteel.flink_rest.coverage_page import COMMAND, render
from firesteel.flink_rest.table import How

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flink-rest.md"
COVERAGE = {row.key: row for row in ROWS}

OPTIONAL: dict[str, set[str]] = {
    "GET /jobs/{jobid}": {"stream-graph"},
    "GET /jobs/{jobid}/execution-result": {"job-execution-result"},
    "GET /jobs/{jobid}/vertices/{vertexid}/backpressure": {"backpressureLevel", "end-timestamp", "subtasks"},
    "GET /jobs/{jobid}/vertices/{vertexid}/flamegraph": {"data"},
    "GET /jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}": {"other-concurrent-attempts"},
    "GET /jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}/attempts/{attempt}": {"other-concurrent-attempts"},
    "GET /overview": {"taskmanagers-blocked", "slots-free-and-blocked"},
    "GET /taskmanagers/{taskmanagerid}": {"blocked"},
    "GET /config": {"isHistoryServer"},
}
"""What Flink itself leaves out where it has nothing to say, or without a scheduler that we do not have."""

REFUSED_WITH: dict[str, int] = {
    "PATCH /jobs/{jobid}/rescaling": 409,
}
"""The status of operations that are refused; 404 for the others."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> FlinkWorld:
    return FlinkWorld(tmp_path_factory.mktemp("world"), flink_world.OVERRIDES)


@pytest.fixture
def world(shared: FlinkWorld) -> FlinkWorld:
    shared.reset()
    return shared


# -- the document ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", goldens().values(), ids=goldens().keys())
def test_flink_answers_fit_the_amended_document(golden: Golden) -> None:
    """Our amendments are enough, so that what we check our answers against is what Flink does."""
    operation = operations().get(f"{golden.method} {golden.template}")
    if operation is not None and golden.status == operation.status:
        assert operation.problems(golden.body) == []


def test_a_wrong_answer_does_not_fit() -> None:
    status = operations()["GET /jobs/{jobid}/status"]
    assert status.problems({"status": "RUNNING"}) == []
    assert status.problems({"status": "DANCING"})
    assert operations()["GET /jobs/{jobid}/metrics"].problems([{"id": "uptime", "value": 3}])
    assert operations()["GET /jobs/overview"].problems({"jobs": [{"start-time": "now"}]})


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("operation", operations().values(), ids=operations().keys())
def test_every_operation_answers_as_specified(operation: Operation, prefix: str, world: FlinkWorld) -> None:
    row = COVERAGE[operation.method, operation.path]
    request = flink_world.request_for(world, operation.method, operation.path)
    response = world.desk.client().request(operation.method, f"{prefix}{request.pop('url')}", **request)
    body: Any = response.json()
    if row.how is How.REFUSED:
        assert response.status_code == REFUSED_WITH.get(operation.name, 404), body
        assert list(body) == ["errors"]
        return
    assert response.status_code == operation.status, body
    assert operation.problems(body) == []
    missing = (
        operation.properties - (set(body) if isinstance(body, dict) else set()) - OPTIONAL.get(operation.name, set())
    )
    assert isinstance(body, list) or not missing


# -- the golden answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", goldens())
def test_answer_is_like_that_of_flink(name: str, world: FlinkWorld) -> None:
    assert [d for d in differences(world, name) if not any(v.covers(name, d) for v in DEVIATIONS)] == []


@pytest.mark.parametrize(
    ("name", "changed", "difference"),
    [
        ("get_jobs_JOBID_status_running", {"status": "RUNNING", "more": 1}, "$.more: is missing"),
        ("get_jobs_JOBID_status_running", {}, "$.status: is not in the contract"),
        ("get_jobs_JOBID_status_running", {"status": 1}, "$.status: text in place of int"),
        ("get_jobs_JOBID_status_running", {"status": "COMPLETED"}, "$.status: 'RUNNING' is none of"),
        ("get_jobs_JOBID_config_running", {"jid": "a" * 32, "name": "b" * 32}, "$.name: 'golden-running' is no id"),
        ("get_jobs_JOBID_plan_running", {"plan": {"nodes": [{}]}}, "$.plan.nodes[].description: is not in"),
        (
            "get_jobs_JOBID_exceptions_running",
            {"exceptionHistory": {"entries": [1]}},
            "$.exceptionHistory.entries: is empty",
        ),
        ("get_config_cluster", {"refresh-interval": 3001}, "$.refresh-interval: 3000 in place of 3001"),
        (
            "get_jobs_JOBID_checkpoints_config_running",
            {"mode": "at_least_once", "externalization": {"enabled": False}},
            "$.externalization.enabled: True in place of False",
        ),
        ("get_jobs_JOBID_status_running", {"errors": ["no"]}, "$: is no error"),
        ("get_jobs_JOBID_plan_error-malformed-job", {"errors": ["a.b.CException: other\n\tat x"]}, "$.errors: 'Bad"),
        ("get_jobs_JOBID_plan_error-malformed-job", {}, "$.errors: is not in the contract"),
    ],
)
def test_a_different_answer_is_noticed(name: str, changed: Any, difference: str, world: FlinkWorld) -> None:
    golden = replace(goldens()[name], body=changed)
    found = replay(golden, world.desk.client(), SUBSTITUTIONS)
    assert [d for d in found if d.startswith(difference)], found


def test_a_different_status_or_time_is_noticed(world: FlinkWorld) -> None:
    golden = replace(goldens()["get_jobs_JOBID_status_running"], status=202)
    assert replay(golden, world.desk.client(), SUBSTITUTIONS) == ["status: 200 in place of 202"]
    world.desk.gateway.jobs[flink_world.RUNNING]["submitted_at"] /= 1000
    found = replay(goldens()["get_jobs_JOBID_running"], world.desk.client(), SUBSTITUTIONS)
    assert [d for d in found if d.startswith("$.start-time: ")], found


def test_every_deviation_is_one_and_is_documented(world: FlinkWorld) -> None:
    used = set()
    undocumented = set()
    for name, golden in goldens().items():
        world.reset()
        for difference in differences(world, name):
            used |= {d for d in DEVIATIONS if d.covers(name, difference)}
            row = COVERAGE.get((golden.method, golden.template))
            if row is not None and not row.differs:
                undocumented.add(row.key)
    assert [d for d in DEVIATIONS if d not in used] == [], "these are not needed any more"
    assert sorted(undocumented) == [], "say in firesteel.flink_rest.coverage how they differ"


def differences(world: FlinkWorld, name: str) -> list[str]:
    files = prepare(world, name)
    return replay(goldens()[name], world.desk.client(), SUBSTITUTIONS, files=files)


# -- the table ------------------------------------------------------------------------------------------------------


def test_the_table_has_every_operation_of_the_document() -> None:
    assert {row.key for row in ROWS if row.specified} == {(o.method, o.path) for o in operations().values()}
    assert len(COVERAGE) == len(ROWS)


def test_what_is_said_to_be_there_is_there(world: FlinkWorld) -> None:
    paths = world.desk.app.openapi()["paths"]
    there = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert {row.key for row in ROWS if row.how is not How.REFUSED} - there == {("GET", "/")}, "which is no JSON"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), f"docs/reference/flink-rest.md is stale; run: {COMMAND}"
