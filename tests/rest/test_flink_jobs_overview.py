"""The lines of `/jobs/overview`: who sees which, and how often an ended job is rendered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
from tests.rest.desk import Desk, submission_of
from tests.rest.flink_world import batch_graph

from firesteel.config.sections import Role
from firesteel.dispatcher.gateway import JobOverview
from firesteel.jobgraph.model import NoRestart
from firesteel.jobmaster.machine import JobState
from firesteel.rest.overview import OverviewLines, OverviewRow, render_row
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus
from firesteel.types import JobID


def overview(number: int, ended_at: float | None = None, *, owner: str = "alice", name: str = "etl") -> JobOverview:
    status = JobStatus.RUNNING if ended_at is None else JobStatus.FINISHED
    return JobOverview(
        JobID(f"{number:032x}"), name, status, 1000.0, ended_at, 1, 0, ended_at or 1001.5, owner, "streaming", 3
    )


def counting(rendered: list[JobOverview]) -> Callable[[JobOverview, float], OverviewRow]:
    def render(job: JobOverview, now: float) -> OverviewRow:
        rendered.append(job)
        return render_row(job, now)

    return render


def everybody(_: str) -> bool:
    return True


def ids(body: bytes) -> list[str]:
    return [row["jid"] for row in orjson.loads(body)["jobs"]]


def test_row_of_a_running_job_counts_its_vertices_and_has_no_end() -> None:
    row = render_row(overview(1), now=1010.0)
    assert row["end-time"] == -1
    assert row["duration"] == 10_000
    assert row["last-modification"] == 1_001_500
    assert row["jobType"] == "STREAMING"
    assert row["tasks"]["running"] == row["tasks"]["total"] == 3
    assert sum(n for state, n in row["tasks"].items() if state != "total") == 3


def test_row_of_a_cancelling_job_uses_the_spelling_of_tasks() -> None:
    job = JobOverview(JobID("a" * 32), "etl", JobStatus.CANCELLING, 1.0, None, 1, 0, 1.0, "alice", "batch", 2)
    row = render_row(job, now=2.0)
    assert row["state"] == "CANCELLING"
    assert row["tasks"]["canceling"] == 2


def test_ended_jobs_are_rendered_once_and_running_ones_each_time() -> None:
    rendered: list[JobOverview] = []
    lines = OverviewLines(render=counting(rendered))
    jobs = [overview(1), overview(2, 1005.0), overview(3, 1006.0)]
    first = lines.answer(jobs, everybody, 1010.0)
    second = lines.answer(jobs, everybody, 1020.0)
    assert [j.job_id for j in rendered] == [j.job_id for j in (*jobs, jobs[0])]
    assert ids(first) == ids(second) == [j.job_id for j in jobs]
    before, after = (orjson.loads(body)["jobs"] for body in (first, second))
    assert before[1:] == after[1:]
    assert (before[0]["duration"], after[0]["duration"]) == (10_000, 20_000)


def test_a_job_that_ends_is_shown_as_it_ended() -> None:
    lines = OverviewLines()
    lines.answer([overview(1)], everybody, 1010.0)
    (row,) = orjson.loads(lines.answer([overview(1, 1015.0)], everybody, 1020.0))["jobs"]
    assert (row["state"], row["end-time"], row["duration"]) == ("FINISHED", 1_015_000, 15_000)


def test_lines_are_dropped_with_their_jobs() -> None:
    lines = OverviewLines()
    lines.answer([overview(n, 1005.0) for n in range(5)], everybody, 1010.0)
    assert len(lines) == 5
    assert ids(lines.answer([overview(3, 1005.0)], everybody, 1010.0)) == [f"{3:032x}"]
    assert len(lines) == 1


def test_an_id_that_is_used_again_has_a_line_of_its_own() -> None:
    lines = OverviewLines()
    lines.answer([overview(1, 1005.0, name="old")], everybody, 1010.0)
    (row,) = orjson.loads(lines.answer([overview(1, 1009.0, name="new")], everybody, 1010.0))["jobs"]
    assert row["name"] == "new"


def test_lines_that_are_kept_are_bounded() -> None:
    rendered: list[JobOverview] = []
    lines = OverviewLines(most=2, render=counting(rendered))
    jobs = [overview(n, 1005.0) for n in range(3)]
    for _ in range(3):
        assert len(ids(lines.answer(jobs, everybody, 1010.0))) == 3
    assert len(lines) == 2
    assert [j.job_id for j in rendered].count(jobs[2].job_id) == 3
    assert [j.job_id for j in rendered].count(jobs[0].job_id) == 1


def test_a_line_that_was_made_for_one_is_not_shown_to_another() -> None:
    lines = OverviewLines()
    jobs = [overview(1, 1005.0, owner="alice"), overview(2, 1005.0, owner="bob"), overview(3, owner="bob")]
    assert len(ids(lines.answer(jobs, everybody, 1010.0))) == 3
    assert ids(lines.answer(jobs, lambda owner: owner == "alice", 1010.0)) == [f"{1:032x}"]
    assert lines.answer(jobs, lambda _: False, 1010.0) == b'{"jobs":[]}'


def test_lists_hold_the_jobs_of_the_caller_only(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number, owner in enumerate(("alice", "bob")):
        submission = submission_of(batch_graph("etl"), f"{number:032x}", owner=owner)
        desk.gateway.add(submission, JobState(NoRestart(), status=JobStatus.RUNNING))
    alice = desk.client(Principal("alice", Role.OPERATOR, "alice"))
    assert alice.get("/jobs").json() == {"jobs": [{"id": "0" * 32, "status": "RUNNING"}]}
    assert ids(alice.get("/jobs/overview").content) == ["0" * 32]
    assert len(desk.client().get("/v1/jobs/overview").json()["jobs"]) == 2
    assert alice.get("/jobs/metrics?get=numRestarts&agg=sum").json() == [{"id": "numRestarts", "sum": 0.0}]
