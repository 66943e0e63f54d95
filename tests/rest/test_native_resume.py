"""POST /jobs/{id}/resume: who may go on with what, from where, and as whose job (I30, S36)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Client, Desk
from tests.rest.native_people import ALICE, BOB, EYE, NOBODY, ONE, THREE, TWO, plain, put

from firesteel.jobgraph.model import JobGraph
from firesteel.status import JobStatus
from firesteel.types import JobID

KEPT = f"/ckpt/{ONE}"


def streaming(name: str = "etl", **more: Any) -> dict[str, Any]:
    data = plain(name, mode="streaming", **more)
    source, query, sink = data["vertices"]
    return {**data, "vertices": [{**source, "schema": "amount INT"}, {**query, "inputs": ["orders"]}, sink]}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def alice(desk: Desk) -> Client:
    return desk.client(ALICE)


def stream(desk: Desk, job_id: str = ONE, *, status: JobStatus = JobStatus.CANCELED, **known: Any) -> None:
    put(desk, job_id, job=JobGraph.model_validate(streaming()), status=status)
    desk.gateway.jobs[JobID(job_id)] |= {"checkpoint": KEPT, "savepoint": "", **known}


def test_a_stream_goes_on_with_its_own_pipeline_from_its_checkpoint(desk: Desk, alice: Client) -> None:
    stream(desk)
    answer = alice.post(f"/jobs/{ONE}/resume", json={"jobId": TWO, "priority": 3})
    assert (answer.status_code, answer.json()["jobId"]) == (202, TWO)
    [submitted] = desk.gateway.submitted
    assert (submitted.resumes, submitted.owner, submitted.priority) == (ONE, "alice", 3)
    assert submitted.graph.settings.restore is not None
    assert submitted.graph.settings.restore.path == KEPT
    assert [v.name for v in submitted.graph.vertices] == ["orders", "big", "out"]


def test_no_body_at_all_is_enough(desk: Desk, alice: Client) -> None:
    stream(desk)
    assert alice.post(f"/jobs/{ONE}/resume").status_code == 202


def test_a_changed_pipeline_goes_on_from_there_wherever_it_says(desk: Desk, alice: Client) -> None:
    stream(desk, status=JobStatus.FAILED)
    changed = streaming("better", settings={"restore": {"path": "/somebody/elses"}})
    body = {"graph": changed, "restore": {"allow_non_restored_state": True}}
    assert alice.post(f"/jobs/{ONE}/resume", json=body).status_code == 202
    restore = desk.gateway.submitted[0].graph.settings.restore
    assert restore is not None
    assert (restore.path, restore.allow_non_restored_state) == (KEPT, True)
    assert desk.gateway.submitted[0].graph.name == "better"


def test_without_a_checkpoint_it_is_the_last_savepoint(desk: Desk, alice: Client) -> None:
    stream(desk, checkpoint="", savepoint="/sp/1")
    assert alice.post(f"/jobs/{ONE}/resume").status_code == 202
    restore = desk.gateway.submitted[0].graph.settings.restore
    assert restore is not None
    assert restore.path == "/sp/1"


def test_the_same_request_again_is_the_same_job_also_when_the_old_one_is_forgotten(desk: Desk, alice: Client) -> None:
    stream(desk)
    first = alice.post(f"/jobs/{ONE}/resume", json={"jobId": TWO})
    desk.gateway.jobs[JobID(ONE)].pop("graph")
    again = alice.post(f"/jobs/{ONE}/resume", json={"jobId": TWO})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["jobId"] == again.json()["jobId"] == TWO
    assert len(desk.gateway.submitted) == 1


@pytest.mark.parametrize(
    ("known", "status", "why"),
    [
        ({}, JobStatus.RUNNING, "only ended jobs"),
        ({"mode": "batch"}, JobStatus.FAILED, "is a batch job"),
        ({"checkpoint": ""}, JobStatus.CANCELED, "nothing to resume from"),
        ({"graph": None}, JobStatus.CANCELED, "is no longer stored"),
    ],
)
def test_what_cannot_be_gone_on_with_is_refused_and_says_why(
    known: dict[str, Any], status: JobStatus, why: str, desk: Desk, alice: Client
) -> None:
    stream(desk, status=status, **known)
    answer = alice.post(f"/jobs/{ONE}/resume")
    assert answer.status_code == 409
    assert why in answer.text
    assert desk.gateway.submitted == []


def test_only_its_owner_and_admins_resume_a_job(desk: Desk, alice: Client) -> None:
    stream(desk)
    assert desk.client(BOB).post(f"/jobs/{ONE}/resume").status_code == 404
    assert desk.client(EYE).post(f"/jobs/{ONE}/resume").status_code == 403
    assert alice.post(f"/jobs/{NOBODY}/resume").status_code == 404
    assert desk.gateway.submitted == []
    assert desk.client(ADMIN).post(f"/jobs/{ONE}/resume").status_code == 202
    # Whose job it stays; and what an admin may do, alice's queries may not.
    assert (desk.gateway.submitted[0].owner, desk.gateway.submitted[0].restricted) == ("alice", True)


def test_a_job_id_of_somebody_else_is_not_taken(desk: Desk, alice: Client) -> None:
    stream(desk)
    put(desk, THREE, owner="bob")
    desk.gateway.jobs[JobID(THREE)]["resumes"] = ONE
    assert alice.post(f"/jobs/{ONE}/resume", json={"jobId": THREE}).status_code == 409


@pytest.mark.parametrize(
    "body", [{"graph": 1}, {"restore": {"path": "/x", "nonsense": 1}}, {"jobId": "x"}, {"to": 1}, []]
)
def test_nonsense_is_refused(body: Any, desk: Desk, alice: Client) -> None:
    stream(desk)
    assert alice.post(f"/jobs/{ONE}/resume", json=body).status_code == 400
    assert desk.gateway.submitted == []


def test_a_kept_checkpoint_is_named_by_its_owner_and_nobody_else(desk: Desk, alice: Client) -> None:
    """By `settings.restore.path`, as by `firesteel run -s`: what is known of the job decides, no file is opened."""
    directory = desk.configuration.state.checkpoints_dir
    stream(desk, checkpoint=f"{directory}/{ONE}")
    wanted = {"graph": streaming(settings={"restore": {"path": f"file://{directory}/{ONE}/"}})}
    assert alice.post("/jobs", json=wanted).status_code == 202
    assert desk.client(BOB).post("/jobs", json=wanted).status_code == 400
    elsewhere = {"graph": streaming(settings={"restore": {"path": f"{directory}/forged/{ONE}"}})}
    assert alice.post("/jobs", json=elsewhere).status_code == 400
    assert [s.owner for s in desk.gateway.submitted] == ["alice"]
