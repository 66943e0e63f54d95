"""What the resources below /jobs answer to whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.rest import flink_world
from tests.rest.flink_schema import Operation, operations
from tests.rest.flink_world import (
    ADDRESS,
    CANCELED,
    ENGINE,
    FAILED,
    FINISHED,
    NOBODY,
    RESTARTING,
    RUNNING,
    SINK,
    SOURCE,
    STOPPED,
    WAITING,
    FlinkWorld,
)

from firesteel.config.sections import Role
from firesteel.rest.security.principals import Principal
from firesteel.stores.operations import OperationKind
from firesteel.types import vertex_id

ALICE = Principal("alice", Role.OPERATOR, "alice")
BOB = Principal("bob", Role.OPERATOR, "bob")
VIEWER = Principal("eye", Role.VIEWER, "alice")
TRIGGER = "c" * 32
MINE = [o for o in operations().values() if o.path.startswith("/jobs/{jobid}")]
READS = [o for o in MINE if o.method == "GET"]
WRITES = [o for o in MINE if o.method != "GET"]
FOR_EVERYBODY = ("/jobmanager/", "/log-url", "/metrics", "/jm-operator-metrics")
"""Below an unknown job too; they tell nothing of the job."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> FlinkWorld:
    return FlinkWorld(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(shared: FlinkWorld) -> FlinkWorld:
    shared.reset()
    return shared


# -- who sees what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", READS, ids=[o.name for o in READS])
def test_somebody_elses_job_looks_like_none(operation: Operation, world: FlinkWorld) -> None:
    path = operation.path
    url = flink_world.request_for(world, "GET", path)["url"]
    job_id = next(j for j in world.desk.gateway.jobs if j in url)
    theirs = world.desk.client(BOB).get(url)
    unknown = world.desk.client(BOB).get(url.replace(job_id, NOBODY))
    assert theirs.status_code == unknown.status_code
    assert theirs.text.replace(job_id, NOBODY) == unknown.text
    if not any(part in path for part in FOR_EVERYBODY):
        assert theirs.status_code == 404


@pytest.mark.parametrize("operation", WRITES, ids=[o.name for o in WRITES])
@pytest.mark.parametrize("principal", [BOB, VIEWER], ids=["another owner", "a viewer"])
def test_changes_are_for_the_owner(operation: Operation, principal: Principal, world: FlinkWorld) -> None:
    method, path = operation.method, operation.path
    request = flink_world.request_for(world, method, path)
    response = world.desk.client(principal).request(method, request.pop("url"), **request)
    # Where the job is looked at before it is changed, somebody else's is none at all.
    assert response.status_code == 403 or (principal is BOB and response.status_code == 404)
    assert world.desk.gateway.asked == []


def test_cancel_by_get_is_for_the_owner_too(world: FlinkWorld) -> None:
    assert world.desk.client(BOB).get(f"/jobs/{RUNNING}/yarn-cancel").status_code == 403
    assert world.desk.client(VIEWER).get(f"/jobs/{RUNNING}/yarn-cancel").status_code == 403
    assert world.desk.gateway.asked == []
    assert world.desk.client(ALICE).get(f"/jobs/{RUNNING}/yarn-cancel").status_code == 202
    assert world.desk.gateway.asked == [("cancel", RUNNING)]


def test_savepoints_are_disposed_of_by_admins(world: FlinkWorld) -> None:
    body = {"savepoint-path": "/sp/x", "triggerId": TRIGGER}
    assert world.desk.client(ALICE).post("/savepoint-disposal", json=body).status_code == 403
    assert world.desk.client().post("/savepoint-disposal", json=body).json() == {"request-id": TRIGGER}
    assert world.desk.gateway.asked == [("dispose", "/sp/x", TRIGGER, "root")]


# -- cancelling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?mode=cancel", "?mode=CANCEL"])
def test_cancel(query: str, world: FlinkWorld) -> None:
    response = world.desk.client(ALICE).patch(f"/v1/jobs/{RUNNING}{query}", content="{}")
    assert (response.status_code, response.json()) == (202, {})
    assert world.desk.gateway.asked == [("cancel", RUNNING)]


@pytest.mark.parametrize(("word", "keep"), [("keep", True), ("discard", False)])
def test_cancel_says_what_becomes_of_the_checkpoint(word: str, keep: bool, world: FlinkWorld) -> None:
    client = world.desk.client(ALICE)
    assert client.patch(f"/jobs/{RUNNING}?checkpoint={word}", content="{}").status_code == 202
    assert world.desk.gateway.asked == [("cancel", RUNNING, keep)]
    assert client.patch(f"/jobs/{RUNNING}?checkpoint=perhaps", content="{}").status_code == 400


def test_cancel_of_an_ended_job(world: FlinkWorld) -> None:
    client = world.desk.client(ALICE)
    assert client.patch(f"/jobs/{CANCELED}").status_code == 202
    response = client.patch(f"/jobs/{FAILED}")
    assert response.status_code == 409
    assert "another terminal state (FAILED)" in response.json()["errors"][0]
    assert client.patch(f"/jobs/{NOBODY}").json() == {"errors": ["Job could not be found."]}


def test_stop_is_no_mode_of_cancelling(world: FlinkWorld) -> None:
    response = world.desk.client().patch(f"/jobs/{RUNNING}?mode=stop", follow_redirects=False)
    assert response.status_code == 308
    assert world.desk.client().patch(f"/jobs/{RUNNING}?mode=x").status_code == 400
    assert world.desk.gateway.asked == []


def test_heartbeats_of_clients_reach_the_job(world: FlinkWorld) -> None:
    client = world.desk.client(ALICE)
    for job in (RUNNING, FINISHED, NOBODY):  # the contract takes those that nobody waits for
        assert client.patch(f"/jobs/{job}/clientHeartbeat", json={"expiredTimestamp": 1}).status_code == 202
    assert world.desk.gateway.asked == [("heartbeat", RUNNING)]
    assert client.patch(f"/jobs/{RUNNING}/clientHeartbeat", json={"expiredTimestamp": "x"}).status_code == 400


# -- operations -----------------------------------------------------------------------------------------------------


def test_triggers_reach_the_dispatcher_with_what_was_asked_for(world: FlinkWorld) -> None:
    client = world.desk.client(ALICE)
    upper = TRIGGER.upper()
    target = f"{world.desk.configuration.state.savepoints_dir}/t"
    client.post(
        f"/jobs/{RUNNING}/savepoints", json={"target-directory": target, "cancel-job": True, "triggerId": upper}
    )
    client.post(f"/jobs/{RUNNING}/stop", json={"targetDirectory": target, "drain": True, "triggerId": TRIGGER})
    client.post(f"/jobs/{RUNNING}/stop", json={"savepoint": False, "triggerId": TRIGGER})
    client.post(f"/jobs/{RUNNING}/checkpoints", json={"checkpointType": "FULL", "triggerId": TRIGGER})
    assert world.desk.gateway.asked == [
        ("savepoint", RUNNING, TRIGGER, target, True),
        ("stop", RUNNING, TRIGGER, target, True),
        ("stop", RUNNING, TRIGGER, None, False),
        ("checkpoint", RUNNING, TRIGGER),
    ]


@pytest.mark.parametrize("what", ["savepoints", "stop", "checkpoints"])
def test_a_trigger_without_an_id_draws_one(what: str, world: FlinkWorld) -> None:
    response = world.desk.client().post(f"/jobs/{RUNNING}/{what}")  # an empty body is {}
    assert response.status_code == 202
    drawn = response.json()["request-id"]
    assert len(drawn) == 32
    assert world.desk.gateway.asked[0][2] == drawn


@pytest.mark.parametrize("what", ["savepoints", "stop", "checkpoints"])
def test_a_trigger_that_cannot_be_is_refused_at_once(what: str, world: FlinkWorld) -> None:
    client = world.desk.client()
    assert client.post(f"/jobs/{NOBODY}/{what}").status_code == 404
    assert client.post(f"/jobs/{FINISHED}/{what}").status_code == 409
    for body in ("[", '{"triggerId": "x"}', "[]", '{"triggerId": 3}'):
        response = client.post(f"/jobs/{RUNNING}/{what}", content=body)
        assert response.status_code == 400
        assert "Request did not match expected format" in response.json()["errors"][0]
    assert world.desk.gateway.asked == []


def test_a_failed_operation_is_complete_and_has_a_cause(world: FlinkWorld) -> None:
    poll = world.desk.client().get(f"/jobs/{RUNNING}/savepoints/{flink_world.FAILED_SAVEPOINT}").json()
    assert poll["status"] == {"id": "COMPLETED"}
    cause = poll["operation"]["failure-cause"]
    assert set(cause) == {"class", "stack-trace", "serialized-throwable"}
    assert "/proc/nope cannot be written to" in cause["stack-trace"]


def test_operations_of_another_kind_are_not_found(world: FlinkWorld) -> None:
    client = world.desk.client()
    assert client.get(f"/jobs/{RUNNING}/checkpoints/{flink_world.SAVEPOINT}").status_code == 404
    response = client.get(f"/jobs/{RUNNING}/savepoints/{flink_world.CHECKPOINT}")
    assert response.json() == {
        "errors": [
            f"There is no savepoint operation with triggerId={flink_world.CHECKPOINT} for job {RUNNING}.",
        ]
    }


# -- checkpoints ----------------------------------------------------------------------------------------------------


def test_batches_and_savepoints_are_checkpoints(world: FlinkWorld) -> None:
    client = world.desk.client()
    message = client.get(f"/jobs/{RUNNING}/checkpoints").json()
    assert message["counts"] == {"restored": 0, "total": 25, "in_progress": 0, "completed": 24, "failed": 1}
    assert message["latest"]["completed"]["id"] == 22
    assert message["latest"]["savepoint"]["external_path"] == "/sp/savepoint-250186-9c939776ca54"
    assert message["latest"]["failed"]["failure_message"] == "/proc/nope cannot be written to"
    assert [c["id"] for c in message["history"] if not c["is_savepoint"]] == [22, 21, 20, 19, 18, 17, 16, 15, 14, 13]
    for checkpoint in message["history"]:
        details = client.get(f"/jobs/{RUNNING}/checkpoints/details/{checkpoint['id']}").json()
        assert set(details["tasks"]) == {vertex_id(SOURCE), vertex_id(SINK)}
        assert {**details, "tasks": {}} == checkpoint
        subtasks = client.get(
            f"/jobs/{RUNNING}/checkpoints/details/{checkpoint['id']}/subtasks/{vertex_id(SINK)}"
        ).json()
        assert subtasks["id"] == checkpoint["id"]
    assert client.get(f"/jobs/{RUNNING}/checkpoints/details/23").status_code == 404
    nobody = f"/jobs/{RUNNING}/checkpoints/details/22/subtasks/{NOBODY}"
    assert client.get(nobody).status_code == 404


def test_a_stop_with_a_savepoint_is_one_and_a_stop_without_is_none(world: FlinkWorld) -> None:
    world.add_operation(
        STOPPED, "d" * 32, OperationKind.STOP, {"status": "FINISHED", "location": "/sp/s", "checkpoint": "/c"}
    )
    world.add_operation(STOPPED, "e" * 32, OperationKind.STOP, {"status": "FINISHED", "checkpoint": "/c"})
    client = world.desk.client()
    message = client.get(f"/jobs/{STOPPED}/checkpoints").json()
    assert message["latest"]["savepoint"]["checkpoint_type"] == "SYNC_SAVEPOINT"
    assert message["counts"]["completed"] == 11
    assert client.get(f"/jobs/{STOPPED}/savepoints/{'d' * 32}").json()["operation"] == {"location": "/sp/s"}
    assert client.get(f"/jobs/{STOPPED}/savepoints/{'e' * 32}").json()["operation"] == {"location": "/c"}


def test_the_interval_of_checkpoints_is_the_trigger(world: FlinkWorld) -> None:
    config = world.desk.client().get(f"/jobs/{RUNNING}/checkpoints/config").json()
    assert (config["interval"], config["mode"]) == (2000, "exactly_once")


@pytest.mark.parametrize(
    ("retention", "told"),
    [
        (None, {"enabled": True, "delete_on_cancellation": False}),
        ("RETAIN_ON_CANCELLATION", {"enabled": True, "delete_on_cancellation": False}),
        ("DELETE_ON_CANCELLATION", {"enabled": True, "delete_on_cancellation": True}),
        ("NO_EXTERNALIZED_CHECKPOINTS", {"enabled": False, "delete_on_cancellation": True}),
    ],
)
def test_the_retention_of_checkpoints_is_the_one_in_force(
    retention: str | None, told: dict[str, bool], world: FlinkWorld
) -> None:
    settings = world.desk.gateway.jobs[RUNNING]["graph"]["settings"]
    if retention is not None:
        settings["checkpoint_retention"] = retention
    assert world.desk.client().get(f"/jobs/{RUNNING}/checkpoints/config").json()["externalization"] == told


# -- vertices and metrics -------------------------------------------------------------------------------------------


def test_a_vertex_is_on_the_jobs_engine(world: FlinkWorld) -> None:
    client = world.desk.client()
    (subtask,) = client.get(f"/jobs/{RUNNING}/vertices/{vertex_id(SOURCE)}").json()["subtasks"]
    assert (subtask["taskmanager-id"], subtask["endpoint"], subtask["attempt"]) == (ENGINE, ADDRESS, 0)
    (manager,) = client.get(f"/jobs/{RUNNING}/vertices/{vertex_id(SOURCE)}/taskmanagers").json()["taskmanagers"]
    assert manager["taskmanager-id"] == ENGINE


def test_attempts_that_are_remembered_can_be_asked_for(world: FlinkWorld) -> None:
    client = world.desk.client()
    below = f"/jobs/{RESTARTING}/vertices/{vertex_id(SINK)}/subtasks"
    assert client.get(f"{below}/0").json()["attempt"] == 1
    assert [client.get(f"{below}/0/attempts/{n}").status_code for n in range(3)] == [200, 200, 404]
    assert client.get(f"{below}/0/attempts/0").json()["status"] == "FAILED"
    assert client.get(f"{below}/0/attempts/0/accumulators").json()["id"].endswith("_0_0")
    assert client.get(f"{below}/1").status_code == 404


def test_metrics_of_a_vertex(world: FlinkWorld) -> None:
    client = world.desk.client()
    below = f"/jobs/{RUNNING}/vertices/{vertex_id(SINK)}"
    names = {m["id"] for m in client.get(f"{below}/metrics").json()}
    assert {"0.numRecordsIn", "0.numRecordsOut", "0.currentInputWatermark", "0.numRecordsInPerSecond"} <= names
    assert client.get(f"{below}/metrics?get=0.numRecordsOut,nope").json() == [{"id": "0.numRecordsOut", "value": "850"}]
    assert client.get(f"{below}/subtasks/0/metrics?get=numRecordsOut").json() == [
        {"id": "numRecordsOut", "value": "850"}
    ]
    assert client.get(f"{below}/subtasks/7/metrics?get=numRecordsOut").json() == []
    aggregated = client.get(f"{below}/subtasks/metrics?get=numRecordsOut&agg=sum,max&subtasks=0-3").json()
    assert aggregated == [{"id": "numRecordsOut", "max": 850.0, "sum": 850.0}]
    assert client.get(f"{below}/subtasks/metrics?get=numRecordsOut&subtasks=1").json() == []
    assert client.get(f"{below}/subtasks/metrics?get=numRecordsOut&subtasks=x").status_code == 400


def test_the_watermark_of_a_stream_is_that_of_all_its_vertices(world: FlinkWorld) -> None:
    client = world.desk.client()
    for name in (SOURCE, SINK):
        watermarks = client.get(f"/jobs/{RUNNING}/vertices/{vertex_id(name)}/watermarks").json()
        assert watermarks == [{"id": "0.currentInputWatermark", "value": "1794722400000"}]
    assert client.get(f"/jobs/{FINISHED}/vertices/{vertex_id(SOURCE)}/watermarks").json() == []


def test_a_watermark_that_has_not_moved_is_none(world: FlinkWorld) -> None:
    world.desk.gateway.jobs[RUNNING]["progress"]["sinks"][SINK]["watermark"] = "1970-01-01T00:00:00.000Z"
    assert world.desk.client().get(f"/jobs/{RUNNING}/vertices/{vertex_id(SINK)}/watermarks").json() == []


def test_metrics_of_a_job(world: FlinkWorld) -> None:
    client = world.desk.client()
    known = {
        m["id"]: m["value"]
        for m in client.get(f"/jobs/{RUNNING}/metrics?get=numRestarts,uptime,lastCompletedCheckpointId").json()
    }
    assert (known["numRestarts"], known["lastCompletedCheckpointId"]) == ("0", "22")
    assert int(known["uptime"]) >= 59_000
    only = client.get(f"/jobs/metrics?get=numRestarts&agg=max&jobs={RESTARTING}").json()
    assert only == [{"id": "numRestarts", "max": 1.0}]
    assert client.get(f"/jobs/metrics?get=numRestarts&jobs={FINISHED}").json() == []


def test_rows_of_a_finished_batch_are_read_from_its_attempt(world: FlinkWorld) -> None:
    path = world.desk.context.logs.path(FINISHED, 1, "events")
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "operators.json").write_text(json.dumps({"sinks": {}, "rows": {SOURCE: 100, SINK: 9}}))
    (path.parent / "result.json").write_text(json.dumps({"state": "FINISHED", "rows": {SINK: 10}}))
    rows = {v["name"]: v["metrics"]["write-records"] for v in _vertices(world)}
    assert rows == {SOURCE: 100, "agg": 10, SINK: 10}
    (path.parent / "operators.json").write_text("{")
    assert {v["metrics"]["write-records"] for v in _vertices(world)} == {0}
    (path.parent / "operators.json").unlink()
    (path.parent / "result.json").unlink()


def _vertices(world: FlinkWorld) -> list[dict[str, Any]]:
    vertices: list[dict[str, Any]] = world.desk.client().get(f"/jobs/{FINISHED}").json()["vertices"]
    return vertices


# -- refusals -------------------------------------------------------------------------------------------------------


def test_parallelism_of_a_job_is_fixed(world: FlinkWorld) -> None:
    client = world.desk.client()
    path = f"/jobs/{RUNNING}/resource-requirements"
    there = client.get(path).json()
    assert there[vertex_id(SOURCE)] == {"parallelism": {"lowerBound": 2, "upperBound": 2}}
    assert client.put(path, json=there).status_code == 200
    higher = {v: {"parallelism": {"lowerBound": 3, "upperBound": 4}} for v in there}
    assert client.put(path, json=higher).status_code == 409
    strange = {**there, NOBODY: {"parallelism": {"lowerBound": 4, "upperBound": 3}}}
    errors = client.put(path, json=strange).json()["errors"]
    assert len(errors) == 2
    assert client.put(path, json={"x": {}}).status_code == 400
    assert client.patch(f"/jobs/{RUNNING}/rescaling?parallelism=4").status_code == 409
    assert client.patch(f"/jobs/{RUNNING}/rescaling").status_code == 400


def test_coordinators_are_refused_in_words(world: FlinkWorld) -> None:
    client = world.desk.client()
    response = client.post(f"/jobs/{RUNNING}/coordinators/x", content=b"\xac\xed\x00\x05")
    assert response.status_code == 400
    assert "sink" in response.json()["errors"][0]
    assert client.post(f"/jobs/{NOBODY}/coordinators/x").status_code == 404


def test_log_urls_cannot_lead_elsewhere(world: FlinkWorld) -> None:
    client = world.desk.client()
    url = client.get(f"/jobs/{RUNNING}/taskmanagers/{ENGINE}/log-url").json()["url"]
    assert url == f"http://testserver/#/task-manager/{ENGINE}/logs"
    strange = client.get(f"/jobs/{RUNNING}/taskmanagers/%22%3E%3Cscript/log-url").json()["url"]
    assert "<" not in strange
    assert '"' not in strange


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/x",
        f"/jobs/{RUNNING}/vertices/x",
        f"/jobs/{RUNNING}/vertices/{NOBODY}/subtasks/-1",
        f"/jobs/{RUNNING}/vertices/{NOBODY}/subtasks/99999999999999999999",
        f"/jobs/{RUNNING}/checkpoints/details/99999999999999999999",
        f"/jobs/{RUNNING}/checkpoints/x",
        f"/jobs/{RUNNING}/exceptions?maxExceptions=-1",
        f"/jobs/{RUNNING}/exceptions?failureLabelFilter=x",
        f"/jobs/{RUNNING}/accumulators?includeSerializedValue=x",
        "/jobs/metrics?jobs=x",
        "/jobs/metrics?agg=sum,x",
    ],
)
def test_what_cannot_be_parsed_is_named(path: str, world: FlinkWorld) -> None:
    response = world.desk.client().get(path)
    assert response.status_code == 400
    assert response.json()["errors"][0].startswith("Bad request, could not parse parameters: Cannot resolve ")


@pytest.mark.parametrize("job", [RUNNING, FINISHED, FAILED, CANCELED, RESTARTING, STOPPED, WAITING])
@pytest.mark.parametrize("operation", READS, ids=[o.name for o in READS])
def test_reads_answer_for_jobs_in_every_state(operation: Operation, job: str, world: FlinkWorld) -> None:
    path = operation.path
    url = flink_world.request_for(world, "GET", path)["url"]
    job_id = next(j for j in world.desk.gateway.jobs if j in url)
    assert world.desk.client().get(url.replace(job_id, job)).status_code in (200, 404)


def test_ids_may_be_in_upper_case(world: FlinkWorld) -> None:
    client = world.desk.client()
    assert client.get(f"/jobs/{RUNNING.upper()}").json()["jid"] == RUNNING
    assert client.get(f"/jobs/{RUNNING}/vertices/{vertex_id(SOURCE).upper()}").status_code == 200


def test_nothing_outside_of_the_job_is_read(tmp_path: Path) -> None:
    """Files are named by the job's id and attempt, which the Dispatcher knows; what a caller writes is only compared."""
    world = FlinkWorld(tmp_path)
    for path in ("/jobs/..%2f..%2fetc", "/jobs/%2e%2e/status", f"/jobs/{RUNNING}/vertices/..%2f..", "/jobs/\\..\\.."):
        assert world.desk.client().get(path).status_code in (400, 404)
