"""The cluster as a whole: settings, counts, applications, data sets, the end."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Desk, submission_of

from firesteel import __version__
from firesteel.config.sections import Role
from firesteel.failure import Failure, FailureKind
from firesteel.flink_rest.aggregation import aggregates_of, metrics_of, skew_of
from firesteel.flink_rest.cluster import render_config
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph, NoRestart
from firesteel.jobmaster.machine import ExceptionEntry, JobState
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.resourcemanager.state import EngineState
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

ALICE = Principal("alice's laptop", Role.OPERATOR, "alice")
BOB = Principal("bob", Role.OPERATOR, "bob")
VIEWER = Principal("eye", Role.VIEWER, "alice")
ONE, TWO, THREE = (f"{n:032x}" for n in (1, 2, 3))
NOBODY = "f" * 32


def graph(name: str = "etl") -> JobGraph:
    return JobGraph.model_validate(
        {
            "name": name,
            "vertices": [
                {"kind": "source", "name": "i", "format": "csv", "path": "/x"},
                {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": "/y"},
            ],
        }
    )


def running(desk: Desk, job_id: str, *, owner: str = "alice", status: JobStatus = JobStatus.RUNNING) -> JobID:
    stamps = {"CREATED": 1001.0, "RUNNING": 1002.0}
    state = JobState(NoRestart(), attempt=1, status=status, timestamps=stamps, engine_id="e1")
    return desk.gateway.add(submission_of(graph(), job_id, owner=owner), state)


def ended(desk: Desk, job_id: str, status: JobStatus, *, owner: str = "alice", failure: Failure | None = None) -> JobID:
    submission = submission_of(graph(), job_id, owner=owner)
    entries = () if failure is None else (ExceptionEntry(failure, 1004.5, 1, {}),)
    state = JobState(NoRestart(), attempt=1, status=status, timestamps={"RUNNING": 1002.0}, exceptions=entries)
    result = JobResult(
        job_id=submission.job_id,
        name="etl",
        status=status,
        failure=failure,
        submitted_at=1000.0,
        started_at=1002.0,
        ended_at=1005.0,
        attempts=1,
        restarts=0,
        digest=digest_of(submission.graph),
        owner=owner,
    )
    return desk.gateway.add(submission, state, result=result)


def engine(name: str = "e1", **more: Any) -> EngineOverview:
    return EngineOverview(
        **{
            "engine_id": name,
            "master": "local[4]",
            "memory": "2g",
            "cores": 4,
            "slots": 8,
            "free": 6,
            "state": EngineState.READY,
            "since": 900.0,
            "address": "127.0.0.1:15002",
            **more,
        }
    )


def test_config_tells_dashboards_what_they_ask_at_their_start(tmp_path: Path) -> None:
    config = Desk(tmp_path, {"rest.refresh-interval": "5 s"}).client(VIEWER).get("/config").json()
    assert config["refresh-interval"] == 5000
    assert config["flink-version"] == "2.3.0"
    assert config["firesteel-version"] == __version__
    assert config["features"] == {"web-submit": True, "web-cancel": True, "web-rescale": False, "web-history": False}


def test_the_time_zone_is_that_of_the_node() -> None:
    config = render_config(3.0, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30), "NST")))
    assert (config["timezone-name"], config["timezone-offset"]) == ("NST", -12_600_000)


def test_overview_counts_jobs_and_slots_of_engines_that_are_ready(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    running(desk, ONE, status=JobStatus.RESTARTING)
    ended(desk, TWO, JobStatus.FINISHED)
    ended(desk, THREE, JobStatus.CANCELED)
    desk.gateway.resources = ResourceOverview((engine(), engine("e2", state=EngineState.STARTING)), 3, 0)
    overview = desk.client().get("/v1/overview").json()
    assert overview["taskmanagers"] == 1
    assert (overview["slots-total"], overview["slots-available"]) == (8, 6)
    assert [overview[f"jobs-{k}"] for k in ("running", "finished", "cancelled", "failed")] == [1, 1, 1, 0]


def test_overview_counts_only_what_the_caller_sees(tmp_path: Path) -> None:
    """S19"""
    desk = Desk(tmp_path)
    running(desk, ONE)
    running(desk, TWO, owner="bob")
    assert desk.client(ALICE).get("/overview").json()["jobs-running"] == 1
    assert desk.client(Principal("all", Role.VIEWER, "*")).get("/overview").json()["jobs-running"] == 2
    metrics = desk.client(ALICE).get("/jobmanager/metrics?get=numRunningJobs").json()
    assert metrics == [{"id": "numRunningJobs", "value": "1"}]


def test_only_an_admin_ends_the_cluster(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for principal in (ALICE, VIEWER):
        refused = desk.client(principal).delete("/cluster")
        assert refused.status_code == 403
        assert "needs admin" in refused.json()["errors"][0]
    assert desk.gateway.asked == []
    done = desk.client(ADMIN).delete("/cluster")
    assert (done.status_code, done.json()) == (200, {})
    assert desk.gateway.asked == [("shut down",)]


class TestApplications:
    def test_every_job_that_the_caller_sees_is_one(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        running(desk, ONE)
        ended(desk, TWO, JobStatus.FAILED)
        running(desk, THREE, owner="bob")
        rows = {a["id"]: a for a in desk.client(ALICE).get("/applications/overview").json()["applications"]}
        assert set(rows) == {ONE, TWO}
        assert rows[ONE]["name"] == "SingleJobApplication(etl)"
        assert (rows[ONE]["status"], rows[ONE]["end-time"], rows[ONE]["jobs"]) == ("RUNNING", -1, {"RUNNING": 1})
        assert (rows[TWO]["start-time"], rows[TWO]["end-time"], rows[TWO]["duration"]) == (1_000_000, 1_005_000, 5000)

    def test_every_state_of_a_job_is_one_of_an_application(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        client = desk.client()
        known = {"CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED"}
        for status in JobStatus:
            if status.terminal:
                ended(desk, ONE, status)
            else:
                running(desk, ONE, status=status)
            shown = client.get(f"/applications/{ONE}").json()["status"]
            assert shown in known
            assert shown == status.value or not status.terminal

    def test_details_have_the_job_as_the_list_of_jobs_has_it(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        ended(desk, ONE, JobStatus.FINISHED)
        client = desk.client(ALICE)
        shown = client.get(f"/applications/{ONE.upper()}").json()
        assert shown["timestamps"] == {
            "CREATED": 1_000_000,
            "FAILING": 0,
            "FAILED": 0,
            "RUNNING": 1_002_000,
            "CANCELED": 0,
            "CANCELING": 0,
            "FINISHED": 1_005_000,
        }
        (job,) = shown["jobs"]
        assert job["jid"] == ONE
        assert job["tasks"]["finished"] == job["tasks"]["total"] == 2

    def test_exceptions_tell_why_and_no_secrets(self, tmp_path: Path) -> None:
        """S27"""
        desk = Desk(tmp_path)
        failure = Failure(FailureKind.USER_CODE, "login failed: password=hunter2", "o", "ValueError", "at f\n")
        ended(desk, ONE, JobStatus.FAILED, failure=failure)
        (entry,) = desk.client().get(f"/applications/{ONE}/exceptions").json()["exceptionHistory"]["entries"]
        assert entry["exceptionName"] == "ValueError"
        assert (entry["timestamp"], entry["jobId"]) == (1_004_500, ONE)
        assert "login failed" in entry["stacktrace"]
        assert "hunter2" not in entry["stacktrace"]

    def test_somebody_elses_is_as_absent_as_none(self, tmp_path: Path) -> None:
        """S19"""
        desk = Desk(tmp_path)
        running(desk, ONE)
        client = desk.client(BOB)
        for path in ("", "/exceptions"):
            others = client.get(f"/applications/{ONE}{path}")
            none = client.get(f"/applications/{NOBODY}{path}")
            assert others.status_code == none.status_code == 404
            assert others.text.replace(ONE, "") == none.text.replace(NOBODY, "")

    def test_cancel_cancels_the_job(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        running(desk, ONE)
        done = desk.client(ALICE).post(f"/applications/{ONE}/cancel")
        assert (done.status_code, done.json()) == (202, {})
        assert desk.gateway.asked == [("cancel", ONE)]

    def test_one_that_has_ended_cannot_be_found_to_be_cancelled(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        ended(desk, ONE, JobStatus.CANCELED)
        for job_id in (ONE, NOBODY):
            answer = desk.client().post(f"/applications/{job_id}/cancel")
            assert (answer.status_code, answer.json()) == (404, {"errors": ["Application could not be found."]})

    def test_who_may_not_cancel_does_not(self, tmp_path: Path) -> None:
        """S20"""
        desk = Desk(tmp_path)
        running(desk, ONE)
        assert desk.client(VIEWER).post(f"/applications/{ONE}/cancel").status_code == 403
        assert desk.client(BOB).post(f"/applications/{ONE}/cancel").status_code == 404
        everything = Principal("eye", Role.VIEWER, "*")
        assert desk.client(everything).post(f"/applications/{ONE}/cancel").status_code == 403
        assert desk.gateway.asked == []

    def test_a_malformed_id_is_told_so(self, tmp_path: Path) -> None:
        answer = Desk(tmp_path).client().get("/applications/zz")
        assert answer.status_code == 400
        assert 'path parameter (applicationid) from value "zz"' in answer.json()["errors"][0]

    def test_its_configuration_is_the_nodes(self, tmp_path: Path) -> None:
        client = Desk(tmp_path).client(VIEWER)
        assert client.get(f"/applications/{ONE}/jobmanager/config").json() == client.get("/jobmanager/config").json()


class TestDataSets:
    def test_there_are_none(self, tmp_path: Path) -> None:
        assert Desk(tmp_path).client(VIEWER).get("/datasets").json() == {"dataSets": []}

    def test_a_deletion_is_done_at_once_wherever_it_is_asked_for(self, tmp_path: Path) -> None:
        answer = Desk(tmp_path).client(ALICE).delete(f"/datasets/{ONE}")
        assert answer.status_code == 202
        another_node = Desk(tmp_path).client(VIEWER)
        outcome = another_node.get(f"/datasets/delete/{answer.json()['request-id']}").json()
        assert outcome == {"status": {"id": "COMPLETED"}, "operation": {}}

    def test_others_were_never_asked_for(self, tmp_path: Path) -> None:
        answer = Desk(tmp_path).client().get(f"/datasets/delete/{NOBODY}")
        assert answer.status_code == 404
        assert "Operation not found under key" in answer.json()["errors"][0]

    def test_a_viewer_deletes_nothing(self, tmp_path: Path) -> None:
        assert Desk(tmp_path).client(VIEWER).delete(f"/datasets/{ONE}").status_code == 403


class TestAggregation:
    HOLDERS = ({"a": 1.0, "b": 3.0}, {"a": 3.0})

    def test_names_without_get(self) -> None:
        assert aggregates_of(self.HOLDERS, None, None) == [{"id": "a"}, {"id": "b"}]
        assert metrics_of({"a": 1}, "") == [{"id": "a"}]

    def test_all_aggregations_unless_some_are_asked_for(self) -> None:
        (row,) = aggregates_of(self.HOLDERS, "a,unknown", None)
        assert row == {"id": "a", "min": 1.0, "max": 3.0, "avg": 2.0, "sum": 4.0, "skew": 50.0}
        assert aggregates_of(self.HOLDERS, "a,a", "MAX,min") == [{"id": "a", "min": 1.0, "max": 3.0}]

    def test_a_number_that_is_none_is_a_text(self) -> None:
        assert aggregates_of([{"a": float("nan")}], "a", "max") == [{"id": "a", "max": "NaN"}]

    @pytest.mark.parametrize(("values", "skew"), [([0.0, 0.0], 0.0), ([5.0], 0.0), ([0.0, 10.0], 100.0)])
    def test_skew(self, values: list[float], skew: float) -> None:
        assert skew_of(values) == skew

    def test_values_are_texts_and_unknown_ones_left_out(self) -> None:
        assert metrics_of({"a": 1, "b": 2}, "b,c") == [{"id": "b", "value": "2"}]
