"""What the commands about jobs print, and with which code they end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.commands import Command, overview, started
from tests.client.fake_cluster import FakeCluster, Fault, Node, Stream, details, event, serving, snapshot, state
from tests.rest.desk import ADMIN, Desk
from tests.rest.native_people import ALICE, EYE, ONE, TWO, graph, put

from firesteel.cli import exit_codes
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import JobGraph
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.resourcemanager.state import EngineState
from firesteel.status import JobStatus
from firesteel.types import JobID

THREE = "abc" + "3" * 29
FOUR = "abd" + "4" * 29


@pytest.fixture
def some_jobs(desk: Desk) -> Desk:
    put(desk, ONE, name="first")
    put(desk, TWO, name="second", status=JobStatus.CREATED)
    put(desk, THREE, name="third", status=JobStatus.FINISHED, ended_at=2000.0)
    put(desk, FOUR, name="fourth", status=JobStatus.FAILED, ended_at=3000.0)
    return desk


# -- list -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([], ["first", "second"]),
        (["-r"], ["first"]),
        (["--scheduled"], ["second"]),
        (["-r", "-s"], ["first", "second"]),
        (["-a"], ["first", "second", "third", "fourth"]),
        (["--all", "-r"], ["first", "second", "third", "fourth"]),
    ],
)
def test_list_shows_what_is_asked_for(
    command: Command, some_jobs: Desk, rest: Node, flags: list[str], names: list[str]
) -> None:
    said = command("list", "-m", rest.address, *flags)
    assert said.code == exit_codes.OK
    assert [row[1] for row in said.rows] == names
    listed = command("list", "-m", rest.address, "--json", *flags).json
    assert [j["name"] for j in listed] == names


def test_list_has_the_columns(command: Command, some_jobs: Desk, rest: Node) -> None:
    said = command("list", "-a", "-m", rest.address)
    assert said.out.splitlines()[0].split() == ["job", "name", "kind", "status", "started", "took"]
    assert said.rows[2] == [THREE, "third", "batch", "FINISHED", "1970-01-01", "00:16:40", "16", "min", "40", "s"]
    [job] = [j for j in command("list", "-a", "--json", "-m", rest.address).json if j["job_id"] == THREE]
    assert (job["status"], job["mode"], job["started_at"], job["ended_at"]) == ("FINISHED", "batch", 1000.0, 2000.0)


def test_script_is_called_one_everywhere_but_for_flink(command: Command, desk: Desk, rest: Node) -> None:
    vertex = {"kind": "script", "name": "s", "file": "/x.py"}
    script = JobGraph.model_validate({"name": "nightly", "vertices": [vertex]})
    put(desk, ONE, job=script)
    put(desk, TWO, job=script, status=JobStatus.FINISHED, ended_at=2000.0)
    put(desk, THREE, name="pipeline")
    at = ("-m", rest.address)
    assert [row[2] for row in command("list", "-a", *at).rows] == ["script", "script", "batch"]
    assert [row[2] for row in command("history", *at).rows] == ["script"]
    assert command("status", ONE, *at).out.startswith("nightly RUNNING script job")
    assert command("status", THREE, *at).out.startswith("pipeline RUNNING batch job")
    flink = desk.client(ADMIN).get("/jobs/overview").json()["jobs"]
    assert {(j["jobType"], "kind" in j) for j in flink} == {("BATCH", False)}


def test_empty_list_says_so(command: Command, rest: Node) -> None:
    assert "`-a` also lists those that have ended" in command("list", "-m", rest.address).out
    assert command("list", "-a", "-m", rest.address).out == "No jobs.\n"
    assert command("list", "--json", "-m", rest.address).json == []


def test_names_of_others_do_nothing_to_a_terminal(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.answers["/jobs/list"] = {"jobs": [overview(ONE, "\x1b]0;owned\x07[red]x[/red]")]}
    out = command("list", "-m", node.address).out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[red]x[/red]" in out


def test_terminal_gets_colours_and_a_pipe_gets_none(
    command: Command, some_jobs: Desk, rest: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for args in (["list", "-a"], ["status", FOUR], ["cluster", "status"], ["events"]):
        assert "\x1b" not in command(*args, "-m", rest.address).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = command("list", "-a", "-m", rest.address).out
    assert "\x1b[36mRUNNING" in out
    assert "\x1b[1;31mFAILED" in out
    assert ONE in out
    monkeypatch.setenv("COLUMNS", "80")
    narrow = command("list", "-a", "-m", rest.address).rows
    assert [row[:3] for row in narrow] == [
        [ONE[:8], "first", "batch"],
        [TWO[:8], "second", "batch"],
        [THREE[:8], "third", "batch"],
        [FOUR[:8], "fourth", "batch"],
    ]
    assert "\x1b[2m  owner      \x1b[0malice\n" in command("status", FOUR, "-m", rest.address).out


# -- which job, which cluster ---------------------------------------------------------------------------------------


def test_job_by_its_first_digits(command: Command, some_jobs: Desk, rest: Node) -> None:
    assert command("status", "ABC", "--json", "-m", rest.address).json["job_id"] == THREE
    said = command("status", "ab", "-m", rest.address)
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert "2 job ids begin with 'ab'; give more digits" in said.err
    assert "no such job: 'cafe'" in command("cancel", "cafe", "-m", rest.address).err
    assert "no job" in command("status", "f" * 32, "-m", rest.address).err


def test_cluster_that_does_not_answer(command: Command) -> None:
    for args in (["list"], ["status", ONE], ["cancel", ONE], ["cluster", "status"], ["events"]):
        said = command(*args, "-m", "127.0.0.1:1", "-Dclient.timeout=50 ms")
        assert (said.code, said.out) == (exit_codes.UNREACHABLE, ""), args
        assert said.err.startswith("error: no node of the cluster answered within 0.05 s")
        assert said.err.count("\n") == 1


def test_not_allowed(command: Command, desk: Desk) -> None:
    put(desk, ONE)
    with serving(desk.client(EYE).app) as node:
        said = command("cancel", ONE, "-m", node.address)
    assert said.code == exit_codes.DENIED
    assert said.err == "error: eye has the role viewer, but this needs operator; ask an admin for it\n"


def test_not_known(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.faults.append(Fault("/jobs/list", "answer", status=401, body=b'{"errors": ["who are you?"]}'))
    said = command("list", "-m", node.address)
    assert said.code == exit_codes.DENIED
    assert "the cluster says: who are you?" in said.err


def test_token_is_shown_to_the_cluster(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.answers["/jobs/list"] = {"jobs": []}
    command("list", "-m", node.address.removeprefix("http://"), "-Dclient.token=fst_x")
    assert fake.seen[0].headers["authorization"] == "Bearer fst_x"


def test_something_else_answers(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.answers["/jobs/list"] = {"hello": "world"}
    said = command("list", "-m", node.address)
    assert said.code == exit_codes.FAILED
    assert "is there a Firesteel node at this address?" in said.err


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["list", "--nonsense"],
        ["logs", ONE, "-f", "--attempt", "1"],
        ["logs", ONE, "-f", "--jvm"],
        ["logs", ONE, "-f", "--json"],
        ["logs", ONE, "-n", "-1"],
        ["cancel"],
        ["savepoint"],
        ["savepoint", ONE, "-d", "/sp"],
        ["savepoint", "-d", "/sp", "--detached"],
        ["stop", ONE, "-p", "/sp", "--no-savepoint"],
        ["checkpoint", ONE, "--trigger-id", "xyz"],
        ["history", "--before", "yesterday"],
        ["history", "-n", "0"],
        ["cluster", "stop", "--all", "-m", "x:1"],
        ["completion", "tcsh"],
    ],
)
def test_wrong_command_lines_end_before_any_cluster_is_woken_up(
    command: Command, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    monkeypatch.setattr("firesteel.deployment.local.awake", lambda _: pytest.fail("woken up"))
    said = command(*args)
    assert (said.code, said.out) == (exit_codes.USAGE, "")
    assert "Usage: firesteel" in said.err


def test_cluster_is_woken_up_only_when_none_is_awake(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class AwakeError(Exception):
        pass

    def wake(_: object) -> None:
        raise AwakeError

    monkeypatch.setattr("firesteel.deployment.local.awake", wake)
    with pytest.raises(AwakeError):
        command("list")


# -- status ---------------------------------------------------------------------------------------------------------


def test_status_tells_where_a_job_stands(command: Command, desk: Desk, rest: Node) -> None:
    progress = {
        "phase": "running",
        "updated_at": 1.0,
        "sinks": {"out": {"state": "running", "tasks": 10, "completed": 3, "stages": 2, "stages_done": 0}},
        "vertices": {"orders": 12345},
    }
    put(desk, ONE, progress=progress)
    desk.gateway.jobs[JobID(ONE)] |= {"engine_id": "e1", "attempt": 2, "restarts": 1}
    engine = EngineOverview("e1", "local[2]", "1g", 2, 8, 7, EngineState.READY, 1.0, "localhost:15002")
    desk.gateway.resources = ResourceOverview((engine,), 0, 0)
    said = command("status", ONE[:31], "-m", rest.address)
    assert said.code == exit_codes.OK
    text = " ".join(said.out.split())
    assert text.startswith("etl RUNNING batch job")
    for fact in (
        f"id {ONE}",
        "owner alice",
        "attempt 2, after 1 restart",
        "engine e1 local[2] localhost:15002",
        "orders source RUNNING 12,345",
        "out sink RUNNING 3 of 10 tasks, stage 1 of 2",
        "reads orders csv /data/in",
        "writes out parquet /data/out",
    ):
        assert fact in text
    found = command("status", ONE, "--json", "-m", rest.address).json
    assert (found["status"], found["engine"]["master"], found["restarts"]) == ("RUNNING", "local[2]", 1)
    assert [o["vertex"] for o in found["lineage"]["outputs"]] == ["out"]


def test_status_tells_the_last_failure(command: Command, desk: Desk, rest: Node) -> None:
    put(desk, ONE, status=JobStatus.FAILED)
    failure = Failure(FailureKind.USER_CODE, "division by zero", "big", "ZeroDivisionError", "  line 7, in f\n")
    exceptions = [
        {"at": 1500.0, "attempt": 2, "vertex": "big", "kind": "user code", "message": "division by zero"},
        {"at": 1200.0, "attempt": 1, "vertex": None, "kind": "engine lost", "message": "gone"},
    ]
    desk.gateway.jobs[JobID(ONE)] |= {"failure": failure.to_json(), "exceptions": exceptions}
    out = command("status", ONE, "-m", rest.address).out
    assert "last failure (attempt 2, 1970-01-01 00:25:00): user code in vertex 'big': division by zero" in out
    assert "line 7, in f" in out
    assert "1 failure before" in out


def test_status_of_a_job_of_which_little_is_known(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.jobs[ONE] = details(ONE, "FINISHED", vertices=[], timestamps={}, exceptions=[], progress={})
    fake.answers[f"/jobs/{ONE}/lineage"] = {"inputs": [], "outputs": []}
    said = command("status", ONE, "-m", node.address)
    assert said.code == exit_codes.OK
    assert said.out.startswith("orders FINISHED")


# -- history --------------------------------------------------------------------------------------------------------


def test_history_by_pages(command: Command, some_jobs: Desk, rest: Node) -> None:
    said = command("history", "-n", "1", "-m", rest.address)
    assert [row[0] for row in said.rows] == [FOUR]
    assert "--before 3000000" in said.err
    said = command("history", "--before", "3000000", "-m", rest.address)
    assert [row[0] for row in said.rows] == [THREE]
    assert said.err == ""
    page = command("history", "--json", "-n", "1", "-m", rest.address).json
    assert ([j["job_id"] for j in page["jobs"]], page["next"]) == ([FOUR], 3000000)
    assert "No jobs ended before" in command("history", "--before", "1970-01-01", "-m", rest.address).out
    said = command("history", "--before", "1970-01-01T00:40:00+00:00", "-m", rest.address)
    assert [row[0] for row in said.rows] == [THREE]


def test_history_of_a_new_cluster(command: Command, rest: Node) -> None:
    assert command("history", "-m", rest.address).out == "No jobs have ended.\n"


# -- events ---------------------------------------------------------------------------------------------------------


def test_events_that_are_known(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.add(
        ONE,
        status="FAILED",
        timestamps={"CREATED": 1000.0, "RUNNING": 1000.0, "RESTARTING": 1001.0},
        exceptions=[{"at": 1001.0, "attempt": 1, "vertex": "out", "kind": "data error", "message": "bad row"}],
        progress={"phase": "running", "updated_at": 1001.5, "sinks": {"out": {"batch": 3, "rows_per_second": 1234.5}}},
    )
    said = command("events", ONE, "-m", node.address)
    assert [" ".join(line.split()[2:]) for line in said.out.splitlines()] == [
        "00000000 INITIALIZING",
        "00000000 CREATED",
        "00000000 RUNNING",
        "00000000 failure attempt 1, data error in vertex 'out': bad row",
        "00000000 RESTARTING",
        "00000000 progress running; out: batch 3, 1,234 rows/s",
        "00000000 FAILED",
    ]
    told = command("events", ONE, "--json", "-m", node.address).lines
    assert [e["kind"] for e in told] == ["state", "state", "state", "failure", "state", "progress", "state"]
    assert told[-1] == {"kind": "state", "status": "FAILED", "job_id": ONE, "at": 1002.5}


def test_story_of_a_job_says_why_and_under_which_leader(command: Command, fake: FakeCluster, node: Node) -> None:
    chapters = [
        {"at": 999.0, "status": "INITIALIZING", "cause": "submitted", "attempt": 0, "epoch": 0},
        {"at": 1000.0, "status": "CREATED", "cause": "accepted", "attempt": 0, "epoch": 1},
        {
            "at": 1001.0,
            "status": "RECONCILING",
            "cause": "taken over by the leader of epoch 2",
            "attempt": 1,
            "epoch": 2,
        },
    ]
    fake.add(ONE, story={"chapters": chapters, "left_out": 3})
    said = command("events", "--story", ONE, "-m", node.address)
    assert [" ".join(line.split()[2:]) for line in said.out.splitlines()] == [
        "00000000 the first 3 states of the story are no longer kept",
        "00000000 INITIALIZING submitted",
        "00000000 CREATED epoch 1, accepted",
        "00000000 RECONCILING attempt 1, epoch 2, taken over by the leader of epoch 2",
    ]
    told = command("events", "--story", ONE, "--json", "-m", node.address).lines
    assert told[-1] == {"kind": "state", "job_id": ONE, **chapters[-1]}


@pytest.mark.parametrize("arguments", [(), ("-f", ONE)], ids=["of no job", "and follow"])
def test_story_is_that_of_one_job_and_of_the_past(
    command: Command, fake: FakeCluster, node: Node, arguments: tuple[str, ...]
) -> None:
    fake.add(ONE)
    said = command("events", "--story", *arguments, "-m", node.address)
    assert said.code == 2
    assert "--story needs a JOB and cannot be combined with --follow" in said.err


def test_events_of_a_job_end_with_it(command: Command, fake: FakeCluster, node: Node) -> None:
    told = [
        snapshot(ONE),
        event("progress", job_id=ONE, at=1.5, progress={"phase": "committing", "sinks": {}}),
        event("lost", count=2),
        state(ONE, "FAILED", attempt=1, failure={"kind": "killed", "message": "by somebody"}),
    ]
    fake.streams.append(Stream(told))
    said = command("events", ONE, "-f", "-m", node.address)
    assert said.code == exit_codes.OK
    assert [" ".join(line.split()[2:]) for line in said.out.splitlines()] == [
        "00000000 RUNNING attempt 1",
        "00000000 progress committing",
        "- 2 events did not arrive",
        "00000000 FAILED attempt 1, killed: by somebody",
    ]
    fake.streams.append(Stream(told))
    told_again = command("events", ONE, "-f", "--json", "-m", node.address).lines
    assert [e["kind"] for e in told_again] == ["snapshot", "progress", "lost", "state"]


def test_events_of_all_jobs(command: Command, some_jobs: Desk, rest: Node) -> None:
    said = command("events", "-m", rest.address)
    assert [line.split()[3:] for line in said.out.splitlines()] == [
        ["RUNNING", "first"],
        ["CREATED", "second"],
        ["FINISHED", "third"],
        ["FAILED", "fourth"],
    ]
    assert len(command("events", "--json", "-m", rest.address).lines) == 4


def test_events_of_all_jobs_go_on_until_the_cluster_refuses(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.streams.append(Stream([b": keep-alive\n\n", state(ONE, "RUNNING", attempt=1)]))
    said = command("events", "-f", "--json", "-m", node.address)
    assert said.lines[0]["status"] == "RUNNING"
    assert said.lines[1]["kind"] == "lost"
    assert said.code == exit_codes.FAILED


# -- streams and exit codes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "lines_read"), [([], 0), ([], 2), (["--json"], 2)])
def test_broken_pipe_is_quiet(
    command: Command, fake: FakeCluster, node: Node, flags: list[str], lines_read: int
) -> None:
    count = 2000 if lines_read else 1
    fake.answers["/jobs/list"] = {"jobs": [overview(f"{n:032x}") for n in range(count)]}
    child = started("list", "-a", "-m", node.address, *flags)
    assert child.stdout is not None
    assert child.stderr is not None
    for _ in range(lines_read):
        assert child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait(30) == exit_codes.OK
    child.stderr.close()


def test_completion_scripts(command: Command) -> None:
    for shell, word in (("bash", "complete -o nosort"), ("zsh", "#compdef firesteel"), ("fish", "complete --no-files")):
        said = command("completion", shell)
        assert said.code == exit_codes.OK
        assert word in said.out
        assert f"_FIRESTEEL_COMPLETE={shell}_complete" in said.out


def completions(command: Command, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    monkeypatch.setenv("_FIRESTEEL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    return [line.partition(",")[2] for line in command().out.splitlines() if line]


def test_shell_completes_commands_options_and_jobs(
    command: Command, monkeypatch: pytest.MonkeyPatch, some_jobs: Desk, rest: Node
) -> None:
    assert completions(command, monkeypatch, "firesteel", "ca") == ["cancel"]
    assert "token" in completions(command, monkeypatch, "firesteel", "cluster", "t")
    assert completions(command, monkeypatch, "firesteel", "cancel", "--no") == ["--no-wait"]
    there = ["firesteel", "status", "-m", rest.address]
    assert set(completions(command, monkeypatch, *there, "ab")) == {THREE, FOUR}
    assert completions(command, monkeypatch, "firesteel", "status", "ab") == []  # nobody is woken up for this
    assert completions(command, monkeypatch, "firesteel", "status", "-m", "127.0.0.1:1", "ab") == []


def test_help_is_there_for_every_command(command: Command) -> None:
    from firesteel.cli.main import COMMANDS

    for name in COMMANDS:
        said = command(name, "-h" if name in ("cluster", "engine") else "--help")
        assert said.code == exit_codes.OK
        assert "Usage: firesteel" in said.out


def test_machine_that_cannot_be_written_to(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = command(
        "cluster", "token", "create", "x", f"-Dsecurity.rest.tokens-file={tmp_path / 'file' / 'tokens.json'}"
    )
    assert said.code == exit_codes.FAILED
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert os.sep in said.err


def test_owner_sees_only_what_is_theirs(command: Command, desk: Desk) -> None:
    put(desk, ONE, name="hers")
    put(desk, TWO, owner="bob", job=graph("his"))
    with serving(desk.client(ALICE).app) as node:
        assert [row[1] for row in command("list", "-m", node.address).rows] == ["hers"]
