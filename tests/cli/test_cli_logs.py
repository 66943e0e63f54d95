"""`firesteel logs`: which lines go where, and following a job until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import pytest
from tests.cli.commands import Command
from tests.client.fake_cluster import FakeCluster, Node, Stream, event, snapshot, state
from tests.rest.desk import Desk
from tests.rest.native_people import ONE, attempt_file, put

from firesteel.cli import exit_codes
from firesteel.jobmaster.events import state_event
from firesteel.status import JobStatus
from firesteel.types import JobID


@pytest.fixture
def written(desk: Desk) -> Desk:
    put(desk, ONE, status=JobStatus.FINISHED)
    attempt_file(desk, ONE, "stdout.log", "old\n", attempt=1)
    attempt_file(desk, ONE, "stderr.log", "", attempt=1)
    attempt_file(desk, ONE, "stdout.log", "a\nb\nc\n", attempt=2)
    attempt_file(desk, ONE, "stderr.log", "oops\n", attempt=2)
    attempt_file(desk, ONE, "events.jsonl", '{"type": "phase"}\n', attempt=2)
    return desk


@pytest.mark.parametrize(
    ("flags", "out", "err"),
    [
        ([], "a\nb\nc\n", "oops\n"),
        (["-n", "1"], "c\n", "oops\n"),
        (["--lines", "0"], "", ""),
        (["--stdout"], "a\nb\nc\n", ""),
        (["--stderr"], "oops\n", ""),
        (["--events"], '{"type": "phase"}\n', ""),
        (["--attempt", "1"], "old\n", ""),
    ],
)
def test_what_was_written(command: Command, written: Desk, rest: Node, flags: list[str], out: str, err: str) -> None:
    said = command("logs", ONE, "-m", rest.address, *flags)
    assert (said.code, said.out, said.err) == (exit_codes.OK, out, err)


def test_as_json(command: Command, written: Desk, rest: Node) -> None:
    assert command("logs", ONE, "--json", "-n", "2", "-m", rest.address).json == {
        "stdout": ["b", "c"],
        "stderr": ["oops"],
    }


def test_what_is_not_there(command: Command, written: Desk, rest: Node) -> None:
    said = command("logs", ONE, "--jvm", "-m", rest.address)
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert "has no log of that name" in said.err
    assert "has no log" in command("logs", ONE, "--attempt", "7", "-m", rest.address).err


def test_following_a_job_that_has_ended_prints_what_is_there(command: Command, written: Desk, rest: Node) -> None:
    said = command("logs", ONE, "-f", "-n", "2", "-m", rest.address)
    assert (said.code, said.out) == (exit_codes.OK, "b\nc\n")
    assert said.err == f"oops\nJob {ONE} is FINISHED.\n"


def test_following_a_running_job_until_its_end(command: Command, desk: Desk, rest: Node) -> None:
    job_id = put(desk, ONE)
    attempt_file(desk, ONE, "stdout.log", "before\n")
    attempt_file(desk, ONE, "stderr.log", "")
    original = desk.gateway.events

    def finish() -> None:
        if not desk.context.events.watched:
            rest._loop.call_later(0.01, finish)
            return
        attempt_file(desk, ONE, "stdout.log", "before\nlast\n")
        attempt_file(desk, ONE, "stderr.log", "warning\n")
        put(desk, ONE, status=JobStatus.FINISHED)
        desk.gateway.hub.publish(state_event(job_id, JobStatus.FINISHED, time.time(), attempt=1))

    def listened(job: JobID | None = None) -> object:
        subscription = original(job)
        rest.soon(finish)  # once somebody listens
        return subscription

    desk.gateway.events = listened  # type: ignore[assignment]
    said = command("logs", ONE, "--follow", "-m", rest.address)
    assert (said.code, said.out) == (exit_codes.OK, "before\nlast\n")
    assert said.err == f"warning\nJob {ONE} is FINISHED.\n"


def log(at: float, *lines: str, stream: str = "stdout") -> bytes:
    return event("log", job_id=ONE, at=at, attempt=1, stream=stream, lines=list(lines))


@pytest.mark.parametrize(
    ("flags", "size", "out"),
    [
        ([], 9, "a\nb\nc\n"),
        (["-n", "1"], 9, "b\nc\n"),
        (["-n", "0"], 9, "c\n"),
        (["-n", "0"], 0, "a\nb\nc\n"),  # nothing had been written when we asked, so all of it is new
    ],
)
def test_last_lines_that_are_there_already(
    command: Command, fake: FakeCluster, node: Node, flags: list[str], size: int, out: str
) -> None:
    fake.answers[f"/jobs/{ONE}/attempts"] = {
        "attempts": [{"attempt": 1, "logs": [{"name": "stdout", "size": size, "modified": 1}]}]
    }
    fake.streams.append(Stream([snapshot(ONE), log(1, "a", "b"), log(2, "c"), state(ONE, "FINISHED")]))
    said = command("logs", ONE, "-f", *flags, "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, out)
    [asked] = fake.asked("GET", f"/jobs/{ONE}/events")
    assert asked.query == "logs=true"


def test_only_one_of_the_two_is_followed(command: Command, fake: FakeCluster, node: Node) -> None:
    told = [snapshot(ONE), log(1, "out"), log(1, "err", stream="stderr"), state(ONE, "FINISHED")]
    fake.streams.append(Stream(told))
    assert command("logs", ONE, "-f", "--stderr", "-m", node.address).out == "err\n"
    fake.streams.append(Stream(told))
    said = command("logs", ONE, "-f", "--stdout", "-m", node.address)
    assert (said.out, said.err) == ("out\n", f"Job {ONE} is FINISHED.\n")


def test_nothing_is_repeated_after_a_break(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.streams.append(Stream([snapshot(ONE), log(1, "a"), log(2, "b")], end="abort"))
    fake.streams.append(Stream([snapshot(ONE), log(5, "a", "b", "c"), log(6, "d"), state(ONE, "FINISHED")]))
    assert command("logs", ONE, "-f", "-m", node.address).out == "a\nb\nc\nd\n"


def test_end_during_a_break_is_told(command: Command, fake: FakeCluster, node: Node) -> None:
    fake.streams.append(Stream([snapshot(ONE), log(1, "a")], end="abort"))
    fake.streams.append(Stream([snapshot(ONE, "FINISHED"), state(ONE, "FINISHED")]))
    said = command("logs", ONE, "-f", "-m", node.address)
    assert (said.code, said.out) == (exit_codes.OK, "a\n")
    assert "The connection was lost before the end" in said.err


def test_what_is_there_is_shown_although_nothing_follows(command: Command, fake: FakeCluster, node: Node) -> None:
    """The lines that a stream begins with wait for a moment only."""
    told = [snapshot(ONE), log(1, "a")]

    def slowly() -> Iterator[bytes]:
        yield from told
        deadline = time.monotonic() + 30
        while "a" not in shown and time.monotonic() < deadline:
            time.sleep(0.02)
        shown.append("the end comes")
        yield state(ONE, "FINISHED")

    shown: list[str] = []
    echo = click.echo

    def noted(message: object = None, *args: object, **rest: object) -> None:
        shown.append(str(message))
        echo(message, *args, **rest)  # type: ignore[arg-type]

    fake.streams.append(Stream(slowly()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("firesteel.cli.logs.click.echo", noted)
        said = command("logs", ONE, "-f", "-m", node.address)
    assert said.out == "a\n"
    assert shown[:2] == ["a", "the end comes"]


def test_failures_and_losses_are_noted(command: Command, fake: FakeCluster, node: Node) -> None:
    failure = {"kind": "engine lost", "message": "it is gone"}
    told = [snapshot(ONE), event("lost", count=3), state(ONE, "RESTARTING", failure=failure), state(ONE, "FINISHED")]
    fake.streams.append(Stream(told))
    said = command("logs", ONE, "-f", "-m", node.address)
    assert "3 events of this log did not arrive; `firesteel logs 00000000` prints them all" in said.err
    assert f"Job {ONE} is RESTARTING: engine lost: it is gone" in said.err
