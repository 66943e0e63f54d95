"""Ctrl-C on an attached stream: what is asked, what is done, and that nothing of it loses the stream."""

from __future__ import annotations

from typing import Any

import click
import pytest

from firesteel.cli import exit_codes
from firesteel.cli.going_on import going_on
from firesteel.cli.interruption import InterruptionChoice, end_stream, wish_of
from firesteel.cli.signals import Interrupted
from firesteel.client.model import JobResult
from firesteel.errors import JobStateError, SavepointError
from firesteel.status import JobStatus
from firesteel.types import JobID

JOB = JobID("ab" * 16)


def ended(status: JobStatus, **more: Any) -> JobResult:
    return JobResult(JOB, "s", status, None, 1.0, 2.0, duration=1.0, attempts=1, restarts=0, streaming=True, **more)


STOPPED = ended(JobStatus.FINISHED, stopped=True, checkpoint="/c")
CANCELED = ended(JobStatus.CANCELED, checkpoint="/c")


class Stage:
    """A cluster, its job and a display, as far as they are asked."""

    def __init__(self, answer: str | type[BaseException] | None = None) -> None:
        self.answer = answer
        self.did: list[Any] = []
        self.notes: list[str] = []
        self.refuses: Exception | None = None
        self.fails: BaseException | None = None
        self.now = JobStatus.FINISHED
        self.job_id = JOB
        self.client = self
        self.option = " -m there"

    def ask(self, _question: str) -> str | None:
        self.did.append("ask")
        if isinstance(self.answer, type):
            raise self.answer
        return self.answer

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trigger(self, _operation: Any, wish: dict[str, Any], **_: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.did.append("savepoint" if wish["savepoint"] else "stop")

    def outcome(self, *_: Any, **__: Any) -> None:
        if self.fails is not None:
            raise self.fails

    def status(self) -> JobStatus:
        return self.now

    def wait(self) -> JobResult:
        return STOPPED

    def cancel(self) -> JobResult:
        self.did.append("cancel")
        return CANCELED

    def end(self, *, asking: bool = True, supervised: bool = False) -> JobResult:
        stage: Any = self
        return end_stream(stage, stage, stage, cancel=self.cancel, asking=asking, supervised=supervised)


@pytest.mark.parametrize(
    ("answer", "did", "result"),
    [
        ("s", ["ask", "stop"], STOPPED),
        ("", ["ask", "stop"], STOPPED),
        (None, ["ask", "stop"], STOPPED),
        ("what?", ["ask", "stop"], STOPPED),
        (" P\n", ["ask", "savepoint"], STOPPED),
        ("cancel", ["ask", "cancel"], CANCELED),
    ],
)
def test_a_stream_ends_as_its_user_says_and_stops_by_default(
    answer: str | None, did: list[str], result: JobResult
) -> None:
    stage = Stage(answer)
    assert stage.end() is result
    assert stage.did == did


def test_each_answer_has_a_letter_of_its_own() -> None:
    assert [wish_of(w.value) for w in InterruptionChoice] == list(InterruptionChoice)


def test_a_command_that_is_told_to_end_asks_nobody_and_stops() -> None:
    stage = Stage("c")
    assert stage.end(asking=False) is STOPPED
    assert stage.did == ["stop"]


@pytest.mark.parametrize("answer", ["d", Interrupted])
def test_a_second_ctrl_c_detaches_and_says_how_to_come_back(answer: str | type[BaseException]) -> None:
    stage = Stage(answer)
    with pytest.raises(click.exceptions.Exit) as left:
        stage.end()
    assert (left.value.exit_code, stage.did) == (exit_codes.CANCELED, ["ask"])
    assert f"firesteel events -f -m there {JOB[:8]}" in stage.notes[0]
    assert f"firesteel stop -m there {JOB[:8]}" in stage.notes[0]


def test_whoever_detaches_a_supervised_job_is_told_that_it_will_be_cancelled() -> None:
    stage = Stage("d")
    with pytest.raises(click.exceptions.Exit):
        stage.end(supervised=True)
    assert "cancel it soon" in stage.notes[0]


def test_ctrl_c_while_it_stops_leaves_without_waiting() -> None:
    stage = Stage("s")
    stage.fails = Interrupted()
    with pytest.raises(click.exceptions.Exit) as left:
        stage.end()
    assert left.value.exit_code == exit_codes.CANCELED
    assert "is still stopping" in stage.notes[-1]


def test_a_stream_that_does_not_run_yet_is_cancelled() -> None:
    stage = Stage("s")
    stage.refuses = JobStateError("job is CREATED")
    assert stage.end() is CANCELED


def test_a_stop_that_failed_is_a_cancel_and_keeps_the_checkpoint() -> None:
    stage = Stage("s")
    stage.fails, stage.now = SavepointError("the job failed while it was stopping"), JobStatus.RESTARTING
    assert stage.end() is CANCELED


def test_a_savepoint_that_cannot_be_written_leaves_the_stream_running() -> None:
    stage = Stage("p")
    stage.fails, stage.now = SavepointError("/full: no space"), JobStatus.RUNNING
    with pytest.raises(click.exceptions.Exit) as left:
        stage.end()
    assert left.value.exit_code == exit_codes.FAILED
    assert "no space" in stage.notes[1]
    assert "keeps running" in stage.notes[2]
    assert "cancel" not in stage.did


def test_a_stop_whose_savepoint_failed_has_stopped() -> None:
    stage = Stage("p")
    stage.fails = SavepointError("its savepoint could not be taken")
    assert stage.end() is STOPPED


# -- what is said in the end ------------------------------------------------------------------------------------------


def test_every_ended_stream_names_the_command_that_goes_on() -> None:
    command = f"resume with: firesteel resume {JOB[:8]}"
    assert going_on(STOPPED) == ["checkpoint: /c", command]
    assert going_on(CANCELED) == ["checkpoint: /c", command]
    assert going_on(ended(JobStatus.FINISHED, savepoint="/s", checkpoint="/c"))[0] == "savepoint: /s"
    assert going_on(ended(JobStatus.FAILED, checkpoint="/c"))[-1].startswith(f"{command}; with a changed pipeline:")
    assert going_on(ended(JobStatus.CANCELED)) == ["its checkpoint was not kept, so it cannot be resumed"]
    assert going_on(CANCELED, option=" -m there")[-1] == f"resume with: firesteel resume -m there {JOB[:8]}"
    assert going_on(CANCELED, "firesteel run-application PIPELINE -s PATH")[-1].endswith("-s PATH")


def test_nothing_is_said_of_jobs_that_have_no_state() -> None:
    batch = JobResult(JOB, "s", JobStatus.FAILED, None, 1.0, 2.0, duration=1.0, attempts=1, restarts=0)
    assert going_on(batch) == []
