"""What a job reads and writes, and the rows of Spark's operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import Client, Desk
from tests.rest.native_people import ALICE, BOB, MARKUP, ONE, TWO, attempt_file, graph, put

from firesteel.jobgraph.columns import columns_of_scan, columns_of_schema
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.execution_graph import bare
from firesteel.rest.native.lineage import render_lineage, render_operators
from firesteel.status import JobStatus

SCAN = (
    "FileScan csv [id#1,name#2] Batched: false, DataFilters: [], Format: CSV, "
    "Location: InMemoryFileIndex(1 paths)[file:/data/in], PartitionFilters: [], PushedFilters: [], "
    "ReadSchema: struct<id:bigint,name:string,tags:array<struct<a:int,b:map<string,int>>>>"
)
JSON_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long"},
            {
                "name": "b",
                "type": {
                    "type": "array",
                    "elementType": {
                        "type": "map",
                        "keyType": "string",
                        "valueType": {"type": "struct", "fields": [{"name": "c", "type": "date"}]},
                    },
                },
            },
        ],
    }
)
OPERATORS: dict[str, Any] = {
    "rows": {"orders": 12},
    "sinks": {
        "out": {
            "operators": [
                {
                    "id": 1,
                    "name": "Scan csv",
                    "description": SCAN,
                    "rows": 12,
                    "metrics": {"number of output rows": "12"},
                },
                {"id": 0, "name": MARKUP, "description": "", "rows": None, "metrics": {}},
            ],
            "edges": [{"fromId": 1, "toId": 0}],
        }
    },
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def alice(desk: Desk) -> Client:
    return desk.client(ALICE)


def columns(*pairs: str) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, _, kind in (p.partition(" ") for p in pairs)]


def test_lineage_has_places_columns_and_edges(desk: Desk, alice: Client) -> None:
    put(desk, ONE)
    attempt_file(desk, ONE, "operators.json", json.dumps(OPERATORS))
    assert alice.get(f"/v1/jobs/{ONE}/lineage").json() == {
        "job_id": ONE,
        "name": "etl",
        "mode": "batch",
        "inputs": [
            {
                "vertex": "orders",
                "format": "csv",
                "path": "/data/in",
                "columns": columns("id bigint", "name string", "tags array<struct<a:int,b:map<string,int>>>"),
            }
        ],
        "outputs": [{"vertex": "out", "format": "parquet", "path": "/data/out", "columns": None}],
        "edges": [{"from": "orders", "to": "big"}, {"from": "big", "to": "out"}],
    }


def test_a_schema_that_was_given_counts_more_than_what_a_scan_reads(desk: Desk, alice: Client) -> None:
    job = graph().model_dump(by_alias=True)
    job["vertices"][0]["schema"] = "id BIGINT NOT NULL, total DECIMAL(10, 2) COMMENT 'with, commas'"
    put(desk, ONE, job=JobGraph.model_validate(job))
    attempt_file(desk, ONE, "operators.json", json.dumps(OPERATORS))
    [source] = alice.get(f"/jobs/{ONE}/lineage").json()["inputs"]
    assert source["columns"] == columns("id BIGINT", "total DECIMAL(10, 2)")


def test_tables_and_secrets(desk: Desk, alice: Client) -> None:
    job = JobGraph.model_validate(
        {
            "name": MARKUP,
            "vertices": [
                {
                    "kind": "source",
                    "name": "a",
                    "format": "jdbc",
                    "options": {"dbtable": "sales", "password": "hunter2"},
                },
                {"kind": "source", "name": "b", "format": "csv", "path": "s3a://key:hunter2@bucket/in"},
                {"kind": "sink", "name": "o", "input": "a", "format": "delta", "table": "db.t"},
            ],
        }
    )
    put(desk, ONE, job=job)
    answer = alice.get(f"/jobs/{ONE}/lineage")
    assert "hunter2" not in answer.text
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    shown = answer.json()
    assert (shown["name"], shown["inputs"][0]["table"], shown["outputs"][0]["table"]) == (MARKUP, "sales", "db.t")
    assert "hunter2" not in alice.get(f"/jobs/{ONE}/execution-graph").text


def test_a_job_of_which_only_the_result_is_known_has_no_lineage(desk: Desk, alice: Client) -> None:
    job_id = put(desk, ONE, status=JobStatus.FAILED)
    desk.gateway.jobs[job_id] = bare(desk.gateway.results[job_id])
    shown = alice.get(f"/jobs/{ONE}/lineage").json()
    assert (shown["inputs"], shown["outputs"], shown["edges"]) == ([], [], [])


def test_operators_of_the_last_attempt(desk: Desk, alice: Client) -> None:
    put(desk, ONE)
    attempt_file(desk, ONE, "operators.json", "{}", attempt=1)
    attempt_file(desk, ONE, "operators.json", json.dumps(OPERATORS), attempt=2)
    answer = alice.get(f"/jobs/{ONE}/operators").json()
    assert (answer["job_id"], answer["attempt"], answer["rows"]) == (ONE, 2, {"orders": 12})
    [sink] = answer["sinks"]
    assert sink["vertex"] == "out"
    assert sink["operators"] == OPERATORS["sinks"]["out"]["operators"]
    assert sink["edges"] == [{"from": 1, "to": 0}]
    put(desk, TWO)
    assert alice.get(f"/jobs/{TWO}/operators").json() == {"job_id": TWO, "attempt": 0, "rows": {}, "sinks": []}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '"x"',
        '{"sinks": 1, "rows": []}',
        '{"sinks": {"a": 1, "b": {"operators": 1, "edges": {}}}}',
        '{"sinks": {"a": {"operators": [1, {}], "edges": [1, {}, {"fromId": "x"}]}}}',
        '{"rows": {"a": 1e99}, "sinks": {"a": {"operators": [{"description": 1, "metrics": []}]}}}',
        '{"rows": {"a": 999999999999999999999999}}',
        '{"rows": {"\\ud800": 1}}',
        "[" * 100_000,
    ],
)
def test_whatever_a_program_put_in_the_place_of_the_operators_is_no_accident(
    desk: Desk, alice: Client, text: str
) -> None:
    put(desk, ONE)
    attempt_file(desk, ONE, "operators.json", text)
    assert alice.get(f"/jobs/{ONE}/operators").status_code == 200
    assert alice.get(f"/jobs/{ONE}/lineage").status_code == 200


def test_jobs_of_others_are_not_found(desk: Desk) -> None:
    put(desk, ONE)
    for path in ("lineage", "operators", "execution-graph"):
        assert desk.client(BOB).get(f"/jobs/{ONE}/{path}").status_code == 404
        assert desk.client(ALICE).get(f"/jobs/xyz/{path}").status_code == 400


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ("id BIGINT", columns("id BIGINT")),
        ("id: BIGINT, `a ``b`: STRING", [*columns("id BIGINT"), {"name": "a `b", "type": "STRING"}]),
        (
            "s STRUCT<a: INT, b: ARRAY<STRING>> NOT NULL, t TIMESTAMP",
            columns("s STRUCT<a: INT, b: ARRAY<STRING>>", "t TIMESTAMP"),
        ),
        ("a INT -- one, two\n, b INT /* x, y */", columns("a INT", "b INT")),
        (
            JSON_SCHEMA,
            columns("a long", "b array<map<string,struct<c:date>>>"),
        ),
        ("id", None),
        ("", None),
        ("{", None),
        ('{"fields": [{"name": "a"}]}', None),
        ('{"fields": [{"name": "a", "type": {"type": "wonder"}}]}', None),
    ],
)
def test_columns_of_a_schema(schema: str, found: Any) -> None:
    assert columns_of_schema(schema) == found


@pytest.mark.parametrize(
    ("description", "found"),
    [
        (SCAN, columns("id bigint", "name string", "tags array<struct<a:int,b:map<string,int>>>")),
        ("ReadSchema: struct<>", []),
        ("ReadSchema: struct<a:int,b:string,... 3 more fields>", None),
        ("ReadSchema: struct<a:int", None),
        ("ReadSchema: struct<a>", None),
        ("Scan", None),
    ],
)
def test_columns_of_a_scan(description: str, found: Any) -> None:
    assert columns_of_scan(description) == found


def test_two_sources_of_one_place_do_not_share_what_a_scan_reads() -> None:
    job = {
        "job_id": ONE,
        "name": "n",
        "mode": "batch",
        "vertices": [],
        "graph": {
            "vertices": [
                {"kind": "source", "name": "a", "format": "csv", "path": "/data/in"},
                {"kind": "source", "name": "b", "format": "csv", "path": "/data/in"},
                {"kind": "source", "name": "c", "format": "csv", "path": "/data/other"},
            ]
        },
    }
    assert [i["columns"] for i in render_lineage(job, OPERATORS)["inputs"]] == [None, None, None]
    assert render_operators(ONE, 1, {})["sinks"] == []
