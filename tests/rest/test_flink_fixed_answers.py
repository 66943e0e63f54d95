"""What is empty or refused by design: rows of a table, and the routes that are made of them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.rest import flink_world
from tests.rest.desk import ADMIN
from tests.rest.flink_schema import Operation, operations
from tests.rest.flink_world import RUNNING, SUBSTITUTIONS, FlinkWorld
from tests.rest.golden_replay import Golden, goldens
from tests.rest.native_people import ALICE, BOB, EYE

from firesteel.flink_rest.coverage import ROWS
from firesteel.flink_rest.fixed import PATH, QUERY, filled
from firesteel.flink_rest.fixed import router as fixed_router
from firesteel.flink_rest.guards import GUARDS
from firesteel.flink_rest.routes import FLINK
from firesteel.flink_rest.schemas import published
from firesteel.flink_rest.table import Asker, ContractRow, How

ROOT = Path(__file__).parents[2]
FIXED = [row for row in ROWS if row.answer is not None]
OURS = {
    "get_jobs_JOBID_accumulators-includeSerializedValue_running": "its job has accumulators",
    "get_jobs_JOBID_vertices_VERTEXID_subtasks_accumulators_finished": "it has the endpoint of another machine",
    "get_jobs_JOBID_vertices_VERTEXID_subtasks_accumulators_running": "there are as many subtasks as the parallelism is",
    "delete_datasets_DATASETID_unknown": "the id is drawn",
    **dict.fromkeys(
        (
            f"get_jobs_JOBID_vertices_VERTEXID_subtasks_SUBTASKINDEX_attempts_ATTEMPT_accumulators_{state}"
            for state in ("finished", "running")
        ),
        "it has the id of an execution graph",
    ),
}
"""Answers of Flink that cannot be equal to ours, and why."""

OPEN = {"/jobs/{jobid}/yarn-stop", "/jobs/{jobid}/vertices/{vertexid}/jm-operator-metrics"}
"""Below a job, and the same for every id: they say nothing of whether there is one."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> FlinkWorld:
    return FlinkWorld(tmp_path_factory.mktemp("world"), flink_world.OVERRIDES)


@pytest.fixture
def world(shared: FlinkWorld) -> FlinkWorld:
    shared.reset()
    return shared


def ask(world: FlinkWorld, row: ContractRow, principal: Any = ADMIN) -> Any:
    request = flink_world.request_for(world, row.method, row.path.replace("{operatorUid}", "op"))
    return world.desk.client(principal).request(row.method, request.pop("url"), **request, follow_redirects=False)


def recorded() -> list[str]:
    empty = {row.key: row for row in FIXED if row.how is How.EMPTY and row.answer is not None}
    return [
        name
        for name, golden in goldens().items()
        if (row := empty.get((golden.method, golden.template))) is not None
        and row.answer is not None
        and golden.status == row.answer.status
        and name not in OURS
    ]


# -- the rows ---------------------------------------------------------------------------------------------------------------


def test_what_is_empty_has_its_answer_and_what_is_implemented_has_none() -> None:
    assert [r.key for r in ROWS if r.how is How.EMPTY and r.answer is None] == []
    assert [r.key for r in ROWS if r.how is How.IMPLEMENTED and r.answer is not None] == []


def test_every_asker_has_its_guard_and_every_parameter_its_check() -> None:
    assert set(GUARDS) == set(Asker) == {row.answer.asker for row in FIXED if row.answer}
    assert {name for row in FIXED for name in re.findall(r"\{(\w+)\}", row.path)} == set(PATH)
    assert {name for row in FIXED if row.answer for name in row.answer.query} == set(QUERY)


def test_each_row_has_one_route_and_nobody_wrote_another() -> None:
    made = [(m, route.path) for route in fixed_router.routes for m in sorted(route.methods)]  # type: ignore[attr-defined]
    assert sorted(made) == sorted(row.key for row in FIXED)
    others = {
        (m, route.path)  # type: ignore[attr-defined]
        for router in FLINK.routers
        if router is not fixed_router
        for route in router.routes
        for m in route.methods  # type: ignore[attr-defined]
    }
    assert others.isdisjoint(made)
    assert others.isdisjoint(row.key for row in ROWS if row.how is not How.IMPLEMENTED)


def test_facts_keep_their_type_and_stand_within_texts() -> None:
    facts = {"a": 3, "b": "x"}
    assert filled({"n": "{a}", "t": "{b} is {a}", "l": [{"b": "{b}"}, 1, None]}, facts) == {
        "n": 3,
        "t": "x is 3",
        "l": [{"b": "x"}, 1, None],
    }
    with pytest.raises(KeyError):
        filled("{c}", facts)


# -- the answers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", FIXED, ids=lambda r: f"{r.method} {r.path}")
def test_the_answer_is_the_row_to_the_letter(row: ContractRow, world: FlinkWorld) -> None:
    assert row.answer is not None
    response = ask(world, row)
    assert response.status_code == row.answer.status
    if row.answer.body == "":
        assert (response.content, response.headers["content-type"]) == (b"", "text/plain")
    elif "{" not in json.dumps(row.answer.body).replace("{}", "").replace('{"', ""):
        assert response.json() == row.answer.body
    else:
        assert "{" not in re.sub(r'\{(?=["}])', "", response.text), "a name that stands for nothing"


@pytest.mark.parametrize("name", recorded())
def test_an_empty_answer_is_that_of_flink_to_the_letter(name: str, world: FlinkWorld) -> None:
    golden: Golden = goldens()[name]

    def here(text: str) -> str:
        for theirs, ours in SUBSTITUTIONS.items():
            text = text.replace(theirs, ours)
        return text

    response = world.desk.client().request(golden.method, here(golden.path))
    if golden.body == "":
        assert response.content == b""
    else:
        assert response.json() == json.loads(here(json.dumps(golden.body)))


def test_there_are_recorded_answers_of_most_that_is_empty() -> None:
    assert len(recorded()) >= 8
    assert set(OURS) <= set(goldens())


@pytest.mark.parametrize("row", FIXED, ids=lambda r: f"{r.method} {r.path}")
def test_a_fixed_answer_is_for_those_who_may_ask(row: ContractRow, world: FlinkWorld) -> None:
    assert row.answer is not None
    owner, tenant, viewer = (ask(world, row, who) for who in (ALICE, BOB, EYE))
    if row.path.startswith("/taskmanagers"):
        assert [a.status_code for a in (owner, tenant, viewer)] == [403, 403, 403]
        return
    assert owner.status_code == row.answer.status
    if row.method != "GET":
        assert viewer.status_code == 403
    if row.path.startswith("/jobs/") and row.path not in OPEN:
        assert tenant.status_code == (404 if row.method == "GET" else 403)
        assert row.method != "GET" or tenant.json() == {"errors": [f"Job {RUNNING} not found"]}
    else:
        assert tenant.status_code == row.answer.status


# -- schemas ----------------------------------------------------------------------------------------------------------------


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flink_schemas", ROOT / "scripts" / "flink_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_schemas_are_those_of_the_document() -> None:
    made = script()
    assert made.FILE.read_text("utf-8") == made.render(), (
        "src/firesteel/flink_rest/schemas.json is stale; run: make docs"
    )
    assert "Apache License 2.0" in published()["notice"]


@pytest.mark.parametrize("operation", operations().values(), ids=operations().keys())
def test_the_document_of_a_node_has_the_schema_that_flink_publishes(operation: Operation, world: FlinkWorld) -> None:
    row = next(row for row in ROWS if row.key == (operation.method, operation.path))
    responses = world.desk.app.openapi()["paths"][operation.path][operation.method.lower()]["responses"]
    if row.how is How.REFUSED:
        assert str(operation.status) not in responses
        return
    assert responses[str(operation.status)]["content"] == {"application/json": {"schema": operation.schema}}


def test_the_document_of_a_node_has_all_schemas_that_it_refers_to(world: FlinkWorld) -> None:
    document = world.desk.app.openapi()
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert wanted <= set(document["components"]["schemas"])
    assert any(name.startswith("flink.") for name in wanted)
