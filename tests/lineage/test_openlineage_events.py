"""Jobs as OpenLineage events, checked against OpenLineage's own schemas."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.history.archived import GRAPH, details, job

from firesteel.lineage.columns import column_lineage
from firesteel.lineage.events import RunState, place_of, run_event
from firesteel.status import JobStatus

SCHEMAS = Path(__file__).parent / "openlineage"
BY_ID = {s["$id"]: s for s in (json.loads(f.read_text()) for f in SCHEMAS.rglob("*.json"))}


def registry() -> jsonschema_rs.Registry:
    return jsonschema_rs.Registry(list(BY_ID.items()))


def check(event: dict[str, Any]) -> None:
    """Raises unless the event, and each of its facets, is what its schema says."""
    validate(event["schemaURL"], event)
    datasets = [*event["inputs"], *event["outputs"]]
    holders = [event["run"]["facets"], event["job"]["facets"], *(d["facets"] for d in datasets)]
    holders += [d[kind] for d in datasets for kind in ("inputFacets", "outputFacets") if kind in d]
    assert any(holders)
    for facets in holders:
        for name, facet in facets.items():
            validate(facet["_schemaURL"], facet)
            schema = BY_ID[facet["_schemaURL"].partition("#")[0]]
            assert name in schema["properties"], f"{name} is not what the facet is called"


def validate(url: str, instance: Any) -> None:
    assert url.partition("#")[0] in BY_ID, url
    jsonschema_rs.validator_for({"$ref": url}, registry=registry(), validate_formats=True).validate(instance)


def event(state: RunState = RunState.COMPLETE, **more: Any) -> dict[str, Any]:
    found = {**details(1, progress={"rows": {"raw": 10, "out": 3}}), **more}
    columns = column_lineage(found["graph"]["vertices"]) if "graph" in found else {}
    return run_event(
        state, 1_700_000_000.5, found, namespace="prod", producer="urn:firesteel:1", spark="4.3.0", columns=columns
    )


@pytest.mark.parametrize("state", list(RunState))
def test_events_of_every_state_are_valid(state: RunState) -> None:
    made = event(state, failure={"message": "no such column", "traceback": "Traceback…"})
    check(made)
    assert made["eventType"] == state.value
    assert made["eventTime"] == "2023-11-14T22:13:20.500+00:00"
    assert made["run"]["runId"] == str(uuid.UUID(job(1)))
    assert ("errorMessage" in made["run"]["facets"]) == (state is RunState.FAIL)


def test_inputs_outputs_schemas_rows_and_columns() -> None:
    made = event()
    [read], [written] = made["inputs"], made["outputs"]
    assert (read["namespace"], read["name"]) == ("file", "/in/orders.csv")
    assert [f["name"] for f in read["facets"]["schema"]["fields"]] == ["id", "amount"]
    assert (written["namespace"], written["name"]) == ("file", "/out/sums")
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3
    fields = written["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"id", "total"}
    (origin,) = fields["total"]["inputFields"]
    assert (origin["name"], origin["field"]) == ("/in/orders.csv", "amount")
    assert origin["transformations"][0]["subtype"] == "AGGREGATION"
    assert made["job"]["facets"]["sql"]["query"].startswith("SELECT")
    assert made["job"]["facets"]["ownership"]["owners"] == [{"name": "alice"}]


def test_parent_run_as_schedulers_hand_it_to_spark() -> None:
    run = str(uuid.uuid4())
    spark = {
        "spark.openlineage.parentRunId": run,
        "spark.openlineage.parentJobNamespace": "airflow",
        "spark.openlineage.parentJobName": "daily.orders",
    }
    made = event(graph={**GRAPH, "settings": {"spark": spark}})
    check(made)
    parent = made["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["name"]) == (run, "daily.orders")
    for wrong in ({"spark.openlineage.parentRunId": "x"}, {"spark.openlineage.parentJobName": ""}):
        assert "parent" not in event(graph={**GRAPH, "settings": {"spark": {**spark, **wrong}}})["run"]["facets"]


def test_job_of_which_only_the_result_is_known() -> None:
    known = {k: v for k, v in details(1, status=JobStatus.FAILED).items() if k != "graph"}
    made = run_event(RunState.FAIL, 1.0, known, namespace="n", producer="urn:firesteel:1")
    check(made)
    assert (made["inputs"], made["outputs"]) == ([], [])


@pytest.mark.parametrize(
    ("vertex", "namespace", "name"),
    [
        ({"path": "s3a://bucket/x/y"}, "s3://bucket", "x/y"),
        ({"path": "hdfs://nn:8020/x"}, "hdfs://nn:8020", "x"),
        ({"path": "file:///x/y"}, "file", "/x/y"),
        ({"path": "relative/x"}, "file", "relative/x"),
        ({"path": "s3://key:secret@bucket/x"}, "s3://bucket", "x"),
        ({"table": "db.orders"}, "spark", "db.orders"),
        ({"options": {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "t"}}, "kafka://a:9092", "t"),
        (
            {"options": {"url": "jdbc:postgresql://u:p@host:5432/shop", "dbtable": "orders"}},
            "postgresql://host:5432",
            "shop.orders",
        ),
    ],
)
def test_places_by_the_conventions(vertex: dict[str, Any], namespace: str, name: str) -> None:
    assert place_of({"kind": "source", "name": "v", **vertex}) == (namespace, name)
