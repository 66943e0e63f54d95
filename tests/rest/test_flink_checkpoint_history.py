"""Checkpoint statistics over restarts and restores: their numbers, not only their shapes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import submission_of
from tests.rest.flink_world import (
    RESTARTING,
    RUNNING,
    SAVEPOINT,
    SINK,
    SOURCE,
    FlinkWorld,
    stream_graph,
    stream_progress,
)

from firesteel.attempts.committed import Committed, Origin
from firesteel.flink_rest.checkpoint_stats import savepoint_number
from firesteel.jobgraph.model import NoRestart
from firesteel.jobmaster.machine import JobState
from firesteel.jobmaster.past import Past, PastAttempt
from firesteel.status import JobStatus
from firesteel.stores.operations import OperationKind
from firesteel.types import JobID, vertex_id

JOB = JobID("c" * 32)


@pytest.fixture
def world(tmp_path: Path) -> FlinkWorld:
    return FlinkWorld(tmp_path)


def checkpoints(world: FlinkWorld, job: str = JOB) -> dict[str, Any]:
    answer: dict[str, Any] = world.desk.client().get(f"/jobs/{job}/checkpoints").json()
    return answer


def put(world: FlinkWorld, state: JobState, progress: dict[str, Any], **settings: Any) -> None:
    submission = submission_of(stream_graph("s", **settings), JOB, submitted_at=world.started)
    world.desk.gateway.add(submission, state, progress=progress)


def running(attempt: int = 1, past: Past | None = None) -> JobState:
    return JobState(NoRestart(), attempt=attempt, deployed=True, status=JobStatus.RUNNING, past=past or Past())


def first_attempt(at: float) -> Past:
    return Past().after(PastAttempt(1, at, at + 10, "e1", "10.0.0.1:15002"), stream_progress(4, at + 9))


# -- restarts -------------------------------------------------------------------------------------------------------


def test_a_restart_that_has_committed_nothing_yet_shows_what_was_before(world: FlinkWorld) -> None:
    at = time.time() - 100
    progress = {"sinks": {}, "checkpoints": {SINK: Committed().going_on(Origin(4, at + 11)).to_json()}}
    put(world, running(2, first_attempt(at)), progress)
    message = checkpoints(world)
    assert message["counts"] == {"restored": 1, "total": 5, "in_progress": 0, "completed": 5, "failed": 0}
    assert [c["id"] for c in message["history"]] == [4, 3, 2, 1, 0]
    assert message["latest"]["completed"]["id"] == 4
    assert message["latest"]["restored"] == {
        "id": 4,
        "restore_timestamp": round((at + 11) * 1000),
        "is_savepoint": False,
        "external_path": message["latest"]["completed"]["external_path"],
    }


def test_counts_and_rows_go_on_over_a_restart(world: FlinkWorld) -> None:
    at = time.time() - 100
    put(world, running(2, first_attempt(at)), stream_progress(7, at + 20, origin=Origin(4, at + 11)))
    assert checkpoints(world)["counts"]["completed"] == 8
    vertices = {v["name"]: v["metrics"] for v in world.desk.client().get(f"/jobs/{JOB}").json()["vertices"]}
    assert (vertices[SOURCE]["write-records"], vertices[SINK]["write-records"]) == (860 * 2, 850 * 2)


def test_a_failed_attempt_is_not_counted_twice_while_its_job_waits_to_restart(world: FlinkWorld) -> None:
    message = checkpoints(world, RESTARTING)
    assert message["counts"] == {"restored": 1, "total": 8, "in_progress": 0, "completed": 8, "failed": 0}
    vertices = {v["name"]: v["metrics"] for v in world.desk.client().get(f"/jobs/{RESTARTING}").json()["vertices"]}
    assert vertices[SINK]["write-records"] == 850 * 2


# -- restores -------------------------------------------------------------------------------------------------------


def test_a_savepoint_that_was_never_restored_is_not_counted(world: FlinkWorld) -> None:
    put(world, running(), {}, restore={"path": "/sp/missing"})
    message = checkpoints(world)
    assert (message["counts"]["restored"], message["latest"]["restored"]) == (0, None)


def test_a_restored_savepoint_has_its_number_and_its_batches_are_not_counted(world: FlinkWorld) -> None:
    at = world.now - 20
    put(world, running(), stream_progress(43, at, origin=Origin(41, at - 5, "/sp/before", SAVEPOINT)))
    message = checkpoints(world)
    assert message["counts"] == {"restored": 1, "total": 2, "in_progress": 0, "completed": 2, "failed": 0}
    assert message["latest"]["restored"] == {
        "id": savepoint_number(SAVEPOINT),
        "restore_timestamp": round((at - 5) * 1000),
        "is_savepoint": True,
        "external_path": "/sp/before",
    }


# -- history --------------------------------------------------------------------------------------------------------


def test_details_are_there_for_everything_that_is_listed_and_a_while_longer(world: FlinkWorld) -> None:
    put(world, running(), stream_progress(30, world.now))
    history = checkpoints(world)["history"]
    assert [c["id"] for c in history] == list(range(30, 20, -1))
    client = world.desk.client()
    for checkpoint in history:
        details = client.get(f"/jobs/{JOB}/checkpoints/details/{checkpoint['id']}").json()
        assert {**details, "tasks": {}} == checkpoint
    put(world, running(), stream_progress(45, world.now + 15))
    assert client.get(f"/jobs/{JOB}/checkpoints/details/21").status_code == 200


def test_length_of_the_history_can_be_set(tmp_path: Path) -> None:
    world = FlinkWorld(tmp_path, {"web.checkpoints.history": "3"})
    put(world, running(), stream_progress(30, world.now))
    assert [c["id"] for c in checkpoints(world)["history"]] == [30, 29, 28]


def test_summary_is_over_the_history(world: FlinkWorld) -> None:
    progress = stream_progress(2, world.now)
    durations = (10, 30, 80)
    log = progress["checkpoints"][SINK]
    log["recent"] = [[n, world.now - 2 + n, d] for n, d in enumerate(durations)]
    put(world, running(), progress)
    summary = checkpoints(world)["summary"]["end_to_end_duration"]
    assert (summary["min"], summary["max"], summary["avg"], summary["p50"]) == (10, 80, 40, 30.0)
    times = [(c["trigger_timestamp"], c["latest_ack_timestamp"]) for c in checkpoints(world)["history"]]
    assert [ack - triggered for triggered, ack in times] == [80, 30, 10]


def test_savepoints_have_the_size_of_their_files(world: FlinkWorld) -> None:
    result = {"location": "/sp/s", "batches": {SINK: 3}, "sizes": {SINK: 1234}}
    world.add_operation(RUNNING, "ab" * 16, OperationKind.SAVEPOINT, result)
    number = savepoint_number("ab" * 16)
    client = world.desk.client()
    details = client.get(f"/jobs/{RUNNING}/checkpoints/details/{number}").json()
    assert (details["checkpointed_size"], details["state_size"]) == (1234, 1234)
    assert {v: t["state_size"] for v, t in details["tasks"].items()} == {vertex_id(SOURCE): 0, vertex_id(SINK): 1234}
    subtasks = client.get(f"/jobs/{RUNNING}/checkpoints/details/{number}/subtasks/{vertex_id(SINK)}").json()
    assert subtasks["subtasks"][0]["state_size"] == subtasks["summary"]["state_size"]["max"] == 1234


# -- configuration --------------------------------------------------------------------------------------------------


def config(world: FlinkWorld) -> tuple[str, bool, int]:
    message = world.desk.client().get(f"/jobs/{JOB}/checkpoints/config").json()
    return message["state_backend"], message["state_changelog_enabled"], message["timeout"]


def test_the_state_store_is_the_one_that_the_session_has(world: FlinkWorld) -> None:
    told = {"provider": "org.x.HDFSBackedStateStoreProvider", "changelog": False}
    put(world, running(), {**stream_progress(1, world.now), "state_store": told})
    assert config(world) == ("HDFSBackedStateStoreProvider", False, -1)


def test_before_the_session_tells_the_state_store_is_that_of_the_settings_else_of_spark(world: FlinkWorld) -> None:
    put(world, replace(running(), status=JobStatus.CREATED), {})
    assert config(world) == ("RocksDBStateStoreProvider", True, -1)
    changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    put(world, running(), {}, spark={changelog: "false"})
    assert config(world) == ("RocksDBStateStoreProvider", False, -1)
