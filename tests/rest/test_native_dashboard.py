"""What the dashboard asks for beside the rest: rows of jobs, checks of pipelines, the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, BOB, EYE, MARKUP, ONE, TWO, put

YAML = """name: etl
vertices:
  - {kind: source, name: orders, format: csv, path: /data/in}
  - {kind: sql, name: big, query: SELECT * FROM orders WHERE amount > 100}
  - {kind: sink, name: out, input: big, format: parquet, path: /data/out}
"""
AS_YAML = {"content-type": "application/yaml"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_rows_of_jobs_name_their_owners_and_show_nobody_elses(desk: Desk) -> None:
    put(desk, ONE)
    put(desk, TWO, owner="bob")
    (row,) = desk.client(ALICE).get("/jobs/list").json()["jobs"]
    assert (row["id"], row["owner"], row["ended"]) == (ONE, "alice", None)
    times = {"submitted", "changed", "ended", "duration"}
    assert set(row) == {"id", "name", "mode", "kind", "status", "owner", "attempt", "restarts", *times}
    assert [r["id"] for r in desk.client(BOB).get("/v1/jobs/list").json()["jobs"]] == [TWO]
    assert {r["owner"] for r in desk.client(ADMIN).get("/jobs/list").json()["jobs"]} == {"alice", "bob"}


def test_a_good_pipeline_is_checked_and_not_run(desk: Desk) -> None:
    answer = desk.client(ALICE).post("/jobs/check", content=YAML, headers=AS_YAML)
    assert answer.status_code == 200
    checked = answer.json()
    assert checked["problems"] == []
    assert [(v["name"], v.get("inputs")) for v in checked["graph"]["vertices"]][1] == ("big", ["orders"])
    assert desk.gateway.submitted == []


def test_each_problem_names_its_line(desk: Desk) -> None:
    wrong = YAML.replace("FROM orders", "FROM nowhere").replace("format: parquet", f"format: '{MARKUP}'")
    checked = desk.client(ALICE).post("/jobs/check", content=wrong, headers=AS_YAML).json()
    assert checked["graph"] is None
    found = {(p["line"], p["vertex"], p["field"]) for p in checked["problems"] if p["certain"]}
    assert {(4, "big", "query"), (5, "out", "delivery")} <= found
    assert all(p["message"] for p in checked["problems"])


def test_what_is_no_yaml_is_a_problem_at_its_line(desk: Desk) -> None:
    checked = (
        desk.client(ALICE).post("/jobs/check", content="name: x\nvertices:\n  - a\n b: c\n", headers=AS_YAML).json()
    )
    assert [p["line"] for p in checked["problems"]] == [4]


def test_only_those_who_may_submit_may_have_pipelines_checked(desk: Desk) -> None:
    assert desk.client(EYE).post("/jobs/check", content=YAML, headers=AS_YAML).status_code == 403
    assert desk.client(ALICE).post("/jobs/check", json={}).status_code == 400
    assert desk.client(ALICE).post("/jobs/check", content=b"\xff\xfe\x00", headers=AS_YAML).status_code == 400


def test_the_configuration_names_origins_and_is_for_admins(desk: Desk) -> None:
    options = {o["key"]: o for o in desk.client(ADMIN).get("/cluster/configuration").json()["options"]}
    assert options["engine.slots"]["origin"] == "default"
    assert options["engine.slots"]["description"]
    assert options["data.dir"]["origin"] != "default"
    assert options["engine.token"]["value"] == "******"
    assert desk.client(ALICE).get("/cluster/configuration").status_code == 403
