"""Cancelling and stopping jobs, savepoints and checkpoints, and what happens to them when nobody waits any longer."""

from __future__ import annotations

import signal
import time
from collections import deque

import pytest
from tests.cli.commands import Command, started
from tests.client.fake_cluster import FakeCluster, Node
from tests.rest.desk import Desk
from tests.rest.native_people import ONE, put

from firesteel.cli import exit_codes
from firesteel.types import JobID

LOCATION = "file:/savepoints/1"
TRIGGER = "9" * 32


@pytest.fixture
def job(fake: FakeCluster) -> str:
    return fake.add(ONE, status="RUNNING")


# -- cancel ---------------------------------------------------------------------------------------------------------


def test_cancel_waits_for_the_end(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    fake.statuses[job] = deque(["RUNNING", "CANCELLING"])
    said = command("cancel", job, "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, f"Job {job} is CANCELED.\n")
    assert not fake.statuses[job]
    assert command("cancel", job, "--json", "-m", node.address).json == {
        "job_id": job,
        "status": "CANCELED",
        "savepoint": None,
        "checkpoint": None,
    }


def test_cancel_without_waiting(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    said = command("cancel", job, "--no-wait", "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, f"Job {job} is being cancelled.\n")
    assert fake.asked("GET", f"/jobs/{job}/execution-graph") == []


def test_cancel_whose_patience_ends(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    fake.statuses[job] = deque(["CANCELLING"] * 1000)
    said = command("cancel", job, "--timeout", "0", "-m", node.address)
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert f"job {job} is CANCELLING after 0 s of waiting; it continues" in said.err


def test_cancel_of_a_job_that_has_ended(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.add(ONE, status="FINISHED")
    said = command("cancel", ONE, "-m", node.address)
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert "it has ended for good" in said.err


@pytest.mark.parametrize(
    ("args", "target"),
    [
        (["-s", "/sp", ONE], "/sp"),
        ([ONE, "-s"], None),
        (["-s", ONE], None),  # as Flink reads it
        (["--withSavepoint", "/sp", ONE], "/sp"),
    ],
)
def test_cancel_with_a_savepoint(
    command: Command, fake: FakeCluster, node: Node, job: str, args: list[str], target: str | None
) -> None:
    fake.jobs[job]["status"] = "CANCELED"
    fake.jobs[job]["ended_at"] = 2.0
    said = command("cancel", "-m", node.address, *args)
    assert (said.code, said.out) == (exit_codes.OK, f"Job {ONE} is CANCELED. Savepoint stored in {LOCATION}.\n")
    [asked] = fake.asked("POST", f"/jobs/{job}/savepoints")
    assert (asked.json["target-directory"], asked.json["cancel-job"]) == (target, True)


# -- stop -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "wish"),
    [
        ([], {"targetDirectory": None, "drain": False, "savepoint": True}),
        (["-p", "/sp"], {"targetDirectory": "/sp", "drain": False, "savepoint": True}),
        (["--savepointPath", "/sp", "-d"], {"targetDirectory": "/sp", "drain": True, "savepoint": True}),
    ],
)
def test_stop_with_a_savepoint(
    command: Command, fake: FakeCluster, node: Node, job: str, args: list[str], wish: dict[str, object]
) -> None:
    said = command("stop", job, *args, "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, f"Savepoint completed. Path: {LOCATION}\n")
    [asked] = fake.asked("POST", f"/jobs/{job}/stop")
    assert {k: asked.json[k] for k in wish} == wish


def test_stop_without_a_savepoint(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    fake.outcome = {"location": "/checkpoints/x"}
    said = command("stop", job, "--no-savepoint", "-m", node.address)
    assert said.out == f"Job {job} has stopped. Its checkpoint is kept in /checkpoints/x.\n"
    [asked] = fake.asked("POST", f"/jobs/{job}/stop")
    assert asked.json["savepoint"] is False
    fake.outcome = {"location": ""}
    assert command("stop", job, "--no-savepoint", "-m", node.address).out == f"Job {job} has stopped.\n"


# -- savepoints and checkpoints -------------------------------------------------------------------------------------


def test_savepoint(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    said = command("savepoint", job, "/sp", "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, f"Savepoint completed. Path: {LOCATION}\n")
    [asked] = fake.asked("POST", f"/jobs/{job}/savepoints")
    assert (asked.json["target-directory"], asked.json["cancel-job"]) == ("/sp", False)
    found = command("savepoint", job, "--json", "-m", node.address).json
    assert (found["job_id"], found["status"], found["location"]) == (job, "COMPLETED", LOCATION)
    assert found["trigger_id"] in fake.operations


def test_savepoint_that_nobody_waits_for_can_be_asked_for(
    command: Command, fake: FakeCluster, node: Node, job: str
) -> None:
    fake.polls = -1000
    said = command("savepoint", job, "--detached", "-m", node.address)
    assert said.code == exit_codes.OK
    [trigger] = fake.operations
    assert said.out == f"Savepoint triggered for job {job}. Trigger id: {trigger}\n"
    waiting = command("savepoint", job, "--detached", "--json", "-m", node.address).json
    assert (waiting["status"], waiting["location"]) == ("IN_PROGRESS", None)
    fake.polls = 10
    triggered = len(fake.operations)
    said = command("savepoint", job, "--trigger-id", trigger.upper(), "-m", node.address)
    assert said.out == f"Savepoint completed. Path: {LOCATION}\n"
    assert len(fake.operations) == triggered


def test_unknown_trigger_id(command: Command, node: Node, job: str) -> None:
    said = command("savepoint", job, "--trigger-id", TRIGGER, "-m", node.address)
    assert (said.code, said.err) == (exit_codes.FAILED, "error: there is no such operation\n")


def test_savepoint_that_fails(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    fake.outcome = {"failure-cause": {"class": "X", "stack-trace": "X: the disk is full\n\tat somewhere"}}
    said = command("savepoint", job, "-m", node.address)
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert said.err.endswith("error: the disk is full\n")


def test_savepoint_is_disposed_of(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.outcome = {}
    said = command("savepoint", "-d", "/sp/1", "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, "Savepoint '/sp/1' disposed.\n")
    [asked] = fake.asked("POST", "/savepoint-disposal")
    assert asked.json["savepoint-path"] == "/sp/1"
    assert command("savepoint", "--dispose", "/sp/1", "--json", "-m", node.address).json["disposed"] == "/sp/1"


def test_checkpoint(command: Command, fake: FakeCluster, node: Node, job: str) -> None:
    fake.outcome = {"checkpointId": 220}
    said = command("checkpoint", job, "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, f"Checkpoint 220 for job {job} completed.\n")
    assert command("checkpoint", job, "--json", "-m", node.address).json["checkpoint_id"] == 220
    fake.outcome = {"checkpointId": -1}
    assert command("checkpoint", job, "-m", node.address).out == f"Job {job} has not committed a batch yet.\n"


def test_wish_that_the_cluster_finds_impossible(command: Command, desk: Desk, rest: Node) -> None:
    put(desk, ONE)
    desk.gateway.jobs[JobID(ONE)]["status"] = "FINISHED"
    said = command("savepoint", ONE, "-m", rest.address)
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert "it has ended for good" in said.err


# -- Ctrl-C ---------------------------------------------------------------------------------------------------------


def interrupted(fake: FakeCluster, path: str, *args: str) -> tuple[int, str, str]:
    """Press Ctrl-C once the cluster was asked for something below `path`."""
    child = started(*args)
    deadline = time.monotonic() + 60
    while not any(s.method == "GET" and path in s.path for s in list(fake.seen)):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline, fake.seen
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def test_operation_goes_on_when_the_waiting_is_interrupted(
    command: Command, fake: FakeCluster, node: Node, job: str
) -> None:
    fake.polls = -1_000_000
    code, out, err = interrupted(fake, f"/jobs/{job}/savepoints/", "savepoint", job, "-m", node.address)
    [trigger] = fake.operations
    assert (code, out) == (exit_codes.CANCELED, "")
    assert f"ask with: firesteel savepoint {job} --trigger-id {trigger}" in err
    assert "Traceback" not in err


def test_cancel_goes_on_when_the_waiting_is_interrupted(
    command: Command, fake: FakeCluster, node: Node, job: str
) -> None:
    fake.statuses[job] = deque(["CANCELLING"] * 100_000)
    code, out, err = interrupted(fake, f"/jobs/{job}/status", "cancel", job, "-m", node.address)
    assert (code, out) == (exit_codes.CANCELED, "")
    assert f"Job {job} is still being cancelled; `firesteel status {job[:8]}`" in err
    assert "Traceback" not in err
