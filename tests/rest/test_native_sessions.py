"""The session of an interactive job: for those who may run what they like in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, BOB, EYE, NOBODY, ONE, put

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec
from firesteel.client.sessions import session_graph
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.jobgraph.model import JobGraph
from firesteel.status import JobStatus
from firesteel.types import AttemptId, JobID

ENGINE = EngineRecord("e1", EngineSpec(master="local[2]"), host="localhost", port=4242, token="engine-secret")
GRAPH = session_graph("nb", "1 h", {})


def session(desk: Desk, *, graph: JobGraph = GRAPH, status: JobStatus = JobStatus.RUNNING) -> AttemptSpec:
    put(desk, ONE, job=graph, status=status)
    spec = AttemptSpec(AttemptId(JobID(ONE), 1), graph, ENGINE)
    AttemptDirectory(desk.context.logs.directory(JobID(ONE), 1)).prepare(spec)
    return spec


def test_owner_and_admin_are_told_where_it_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    spec = session(desk)
    for who in (ALICE, ADMIN):
        answer = desk.client(who).get(f"/v1/jobs/{ONE}/session")
        assert answer.status_code == 200
        assert answer.json() == {"remote": spec.remote(), "engine": "e1"}
    assert "token=engine-secret" in answer.json()["remote"]


@pytest.mark.parametrize(("who", "status"), [(BOB, 404), (EYE, 403)])
def test_others_are_not(tmp_path: Path, who: object, status: int) -> None:
    desk = Desk(tmp_path)
    session(desk)
    answer = desk.client(who).get(f"/jobs/{ONE}/session")  # type: ignore[arg-type]
    assert answer.status_code == status
    assert "engine-secret" not in answer.text


def test_job_that_does_not_run_has_none(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    session(desk, status=JobStatus.CREATED)
    answer = desk.client(ALICE).get(f"/jobs/{ONE}/session")
    assert (answer.status_code, "CREATED" in answer.text) == (409, True)


def test_job_whose_attempt_is_not_written_yet_is_asked_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    put(desk, ONE, job=GRAPH)
    answer = desk.client(ALICE).get(f"/jobs/{ONE}/session")
    assert (answer.status_code, "try again" in answer.text) == (409, True)


def test_other_jobs_give_no_session_away(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    script = JobGraph.model_validate(
        {"name": "s", "vertices": [{"kind": "script", "name": "s", "file": "/s.py", "api": "connect"}]}
    )
    session(desk, graph=script)
    answer = desk.client(ALICE).get(f"/jobs/{ONE}/session")
    assert answer.status_code == 409
    assert "engine-secret" not in answer.text
    assert desk.client(ALICE).get(f"/jobs/{NOBODY}/session").status_code == 404
