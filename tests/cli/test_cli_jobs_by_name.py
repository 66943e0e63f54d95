"""Waiting for jobs, jobs by their names, hints that can be typed as they are, and errors that name the fix."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.cli.commands import Command, overview
from tests.client.fake_cluster import FakeCluster, Fault, Node, Stream

from firesteel.cli import exit_codes

A, B, C = "a" * 32, "b" * 32, "fee" + "d" * 29
FAILURE = {"kind": "exit code", "message": "the program exited with code 7", "exit_code": 7}
STREAM = """\
name: clicks
mode: streaming
vertices:
  - {kind: source, name: ticks, format: rate}
  - {kind: sink, name: result, input: ticks, format: parquet, path: /out}
"""


@pytest.fixture
def jobs(fake: FakeCluster) -> FakeCluster:
    fake.add(A, name="etl", status="FINISHED")
    fake.add(B, name="etl", status="FAILED", failure=FAILURE)
    fake.add(C, name="clicks", status="CANCELED")
    fake.answers["/jobs/list"] = {
        "jobs": [
            overview(A, "etl", "FINISHED", start=1_000_000),
            overview(B, "etl", "FAILED", start=2_000_000),
            overview(C, "clicks", "CANCELED"),
        ]
    }
    return fake


# -- wait -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code"),
    [([A], 0), ([B], 7), ([C], exit_codes.CANCELED), ([A, C, B], exit_codes.CANCELED), ([A, A[:4]], 0)],
)
def test_wait_ends_with_the_code_of_the_job(
    command: Command, jobs: FakeCluster, node: Node, given: list[str], code: int
) -> None:
    answer = command("wait", *given, "-m", node.address)
    assert answer.code == code, answer.err
    assert A not in given or f"Job {A} 'etl' is FINISHED." in answer.out
    assert B not in given or f"Job {B} 'etl' is FAILED.\n  exit code: the program exited with code 7" in answer.out


def test_wait_for_several_jobs_as_json(command: Command, jobs: FakeCluster, node: Node) -> None:
    answer = command("wait", A, B, "--json", "-m", node.address)
    assert answer.code == 7
    rows = json.loads(answer.out)
    assert [(r["job_id"], r["status"], r["exit_code"]) for r in rows] == [(A, "FINISHED", 0), (B, "FAILED", 7)]


def test_wait_whose_time_is_over_has_a_code_of_its_own_and_the_job_goes_on(
    command: Command, fake: FakeCluster, node: Node
) -> None:
    fake.add(A, name="etl", status="RUNNING")
    answer = command("wait", A, "--timeout", "0.2", "-m", node.address)
    assert answer.code == exit_codes.TIMEOUT == 124
    assert "is RUNNING after" in answer.err
    assert "it continues" in answer.err


@pytest.mark.parametrize(("job", "code"), [(A, 0), (B, 7), (C, 130)])
def test_status_has_the_exit_code_of_the_job_when_asked(
    command: Command, jobs: FakeCluster, node: Node, job: str, code: int
) -> None:
    jobs.answers[f"/jobs/{job}/lineage"] = {}
    assert command("status", job, "-m", node.address).code == 0
    assert command("status", "--exit-code", job, "-m", node.address).code == code


def test_status_of_a_job_that_failed_without_a_code_of_its_own_exits_1(
    command: Command, fake: FakeCluster, node: Node
) -> None:
    fake.add(A, status="FAILED", failure={"kind": "user code", "message": "bad"})
    fake.answers[f"/jobs/{A}/lineage"] = {}
    assert command("status", "--exit-code", A, "-m", node.address).code == exit_codes.FAILED


# -- names ----------------------------------------------------------------------------------------------------------


def test_job_by_its_name(command: Command, jobs: FakeCluster, node: Node) -> None:
    answer = command("wait", "clicks", "-m", node.address)
    assert (answer.code, answer.err) == (exit_codes.CANCELED, "")


def test_newest_of_several_jobs_of_a_name_is_taken_and_named(command: Command, jobs: FakeCluster, node: Node) -> None:
    answer = command("wait", "etl", "-m", node.address)
    assert answer.code == 7
    assert f"2 jobs are called 'etl'; the newest is {B} (FAILED)" in answer.err
    assert B in answer.out


def test_name_that_begins_the_id_of_another_job_is_not_guessed(command: Command, jobs: FakeCluster, node: Node) -> None:
    jobs.answers["/jobs/list"]["jobs"].append(overview(A, "fee", "FINISHED"))
    answer = command("cancel", "fee", "-m", node.address)
    assert answer.code == exit_codes.FAILED
    assert f"'fee' is the name of job {A} and the beginning of {C}" in answer.err


def test_name_that_no_job_has(command: Command, jobs: FakeCluster, node: Node) -> None:
    answer = command("status", "click", "-m", node.address)
    assert answer.code == exit_codes.FAILED
    assert "no such job: 'click'; did you mean 'clicks'?" in answer.err


# -- hints ----------------------------------------------------------------------------------------------------------


def test_hints_after_a_detached_stream_say_stop_and_where_it_runs(
    command: Command, fake: FakeCluster, node: Node
) -> None:
    Path("clicks.yaml").write_text(STREAM)
    address = node.address.removeprefix("http://")
    answer = command("run", "-m", address, "-d", "clicks.yaml")
    assert answer.code == 0, answer.err
    assert f"firesteel stop -m {address} " in answer.out
    assert f"firesteel status -m {address} " in answer.out
    assert "firesteel cancel" not in answer.out
    Path("s.py").write_text("print(1)\n")
    answer = command("run", "-m", address, "-d", "s.py")
    assert f"firesteel cancel -m {address} " in answer.out


def test_refused_submission_names_no_job(command: Command, fake: FakeCluster, node: Node) -> None:
    Path("s.py").write_text("print(1)\n")
    fake.faults.append(Fault("/jobs", "answer", status=403, body=b'{"errors": ["viewers do not submit"]}'))
    answer = command("run", "-m", node.address, "s.py")
    assert answer.code == exit_codes.DENIED
    assert answer.out == ""


def test_same_job_id_after_a_failure_says_that_nothing_ran(command: Command, fake: FakeCluster, node: Node) -> None:
    Path("s.py").write_text("print(1)\n")
    command("run", "-d", "--job-id", A, "-m", node.address, "s.py")
    fake.add(A, name="s", status="FAILED", failure=FAILURE)
    event = json.dumps({"job_id": A, "status": "FAILED", "at": 1.0})
    fake.streams.append(Stream([f"event: state\ndata: {event}\n\n".encode()]))
    answer = command("run", "--job-id", A, "-m", node.address, "s.py")
    assert answer.code == 7, answer.err
    assert f"job {A} has already ended (FAILED); nothing was run" in answer.out
    assert "--job-id" in answer.out


@pytest.mark.parametrize(("status", "code"), [("FINISHED", 0), ("FAILED", 7)])
def test_attached_run_asks_for_nothing_that_its_final_event_says(
    command: Command, fake: FakeCluster, node: Node, status: str, code: int
) -> None:
    Path("s.py").write_text("print(1)\n")
    fake.add(A, name="s", status=status, rows={"s": 3})
    summary = {"name": "s", "mode": "batch", "submitted_at": 1.0, "ended_at": 2.0, "attempt": 1, "restarts": 0}
    failure = {"failure": FAILURE} if status == "FAILED" else {}
    event = json.dumps({"job_id": A, "status": status, "at": 2.0, **failure, "result": summary})
    fake.streams.append(Stream([f"event: state\ndata: {event}\n\n".encode()]))
    answer = command("run", "-m", node.address, "s.py")
    assert answer.code == code, answer.err
    assert f"{status} in 1.0 s" in answer.out
    asked = [s.path.rpartition("/")[2] for s in fake.seen if "blobs" not in s.path]
    # The rows of what has FINISHED are known after the end only.
    assert asked == ["jobs", "events"] + (["execution-graph"] if status == "FINISHED" else [])


@pytest.mark.parametrize(("word", "meant"), [("rnu", "run"), ("statsu", "status"), ("cancle", "cancel")])
def test_command_that_does_not_exist_has_a_suggestion(command: Command, word: str, meant: str) -> None:
    answer = command(word, "x.yaml")
    assert answer.code == exit_codes.FAILED
    assert f"\"{word}\" is not a valid action. Did you mean '{meant}'?" in answer.err
    assert "No such command 'strat'. Did you mean 'start'?" in command("cluster", "strat").err
    assert "Did you mean" not in command("xylophone").err


# -- a cluster that does not answer, or not to us ----------------------------------------------------------------------


def test_refused_connection_fails_within_seconds_and_names_what_was_tried(command: Command) -> None:
    began = time.monotonic()
    answer = command("list", "-m", "127.0.0.1:1", "-Dclient.connect-timeout=300 ms")
    assert time.monotonic() - began < 10
    assert answer.code == exit_codes.UNREACHABLE
    assert "http://127.0.0.1:1: " in answer.err
    assert "refused" in answer.err
    assert "client.connect-timeout" in answer.err


def test_cluster_that_has_answered_before_is_waited_for_longer(command: Command, fake: FakeCluster, node: Node) -> None:
    """A node that is restarted refuses connections too; whoever was talking to it goes on."""
    fake.add(A, status="RUNNING")
    fake.answers["/jobs/list"] = {"jobs": [overview(A)]}
    fake.faults += [Fault("/overview", "answer", status=503)]
    answer = command("list", "-m", node.address, "-Dclient.connect-timeout=1 ms")
    assert answer.code == 0, answer.err


def test_token_errors_name_the_variable(command: Command, fake: FakeCluster, node: Node) -> None:
    def refuse() -> None:
        fake.faults.append(Fault("/jobs/list", "answer", status=401, body=b'{"errors": ["Send a header."]}'))

    refuse()
    without = command("list", "-m", node.address)
    assert without.code == exit_codes.DENIED
    assert "no token was given" in without.err
    assert "FIRESTEEL_CLIENT_TOKEN" in without.err
    assert "the cluster says: Send a header." in without.err
    refuse()
    wrong = command("list", "-m", node.address, "-Dclient.token=fst_x")
    assert "the token is unknown to the cluster" in wrong.err
    assert "FIRESTEEL_CLIENT_TOKEN" in wrong.err
    assert "fst_x" not in wrong.err
