"""The story of a job: every event has a cause, and every state that is entered is told with it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from tests.jobmaster.test_machine import RUNNING

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import NoRestart
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.machine import (
    AttemptEnded,
    CancelRequested,
    Deployed,
    DeployFailed,
    EngineLost,
    Event,
    Fenced,
    IllegalTransitionError,
    JobState,
    Recovered,
    RestartDue,
    SlotGranted,
    SlotRefused,
    Started,
    StopRequested,
    WorkerAwaited,
    _enter,
    cause_of,
    step,
)
from firesteel.jobmaster.story import MOST_CHAPTERS, Chapter, Story, story_makes_sense
from firesteel.status import JobStatus

SECRET = "password=hunter2"
FAILURE = Failure(FailureKind.USER_CODE, SECRET, error_class=SECRET, traceback=SECRET)
FAILED = AttemptResult(AttemptState.FAILED, FAILURE)
CAUSES: list[tuple[Event, str]] = [
    (Started(), "accepted"),
    (Recovered(False, None), "no attempt was under way"),
    (Recovered(True, Presence.RUNNING), "its attempt was found running"),
    (Recovered(True, Presence.ENDED), "its attempt was found ended"),
    (Recovered(False, Presence.ABSENT), "its attempt was not found, its engine was gone"),
    (WorkerAwaited(SECRET), "the worker that has its attempt is awaited"),
    (SlotGranted("e1"), "slot on engine e1"),
    (SlotGranted(None), "slot for a JVM of its own"),
    (SlotRefused(FAILURE), "no slot: user code"),
    (Deployed(1), "attempt 1 was started"),
    (DeployFailed(1, FAILURE), "attempt 1 could not be started: user code"),
    (AttemptEnded(1, FAILED), "attempt 1 failed: user code"),
    (AttemptEnded(2, AttemptResult(AttemptState.FINISHED)), "attempt 2 finished"),
    (EngineLost(1, SECRET), "the engine of attempt 1 was lost"),
    (Fenced(1, FAILED), "attempt 1 was fenced"),
    (RestartDue(), "the delay before the restart was over"),
    (CancelRequested(), "a cancel was requested"),
    (StopRequested(), "a stop was requested"),
]


def test_every_event_has_a_case() -> None:
    assert {type(event) for event, _ in CAUSES} == set(get_args(Event))


@pytest.mark.parametrize(("event", "cause"), CAUSES, ids=[cause for _, cause in CAUSES])
def test_cause_of_an_event_says_what_happened_and_nothing_that_user_code_said(event: Event, cause: str) -> None:
    assert cause_of(event) == cause


def test_states_are_told_in_order_with_their_causes_also_two_of_one_step() -> None:
    state = JobState(NoRestart(), epoch=3)
    at = 0.0
    for event in (Started(), SlotGranted("e1"), Deployed(1), AttemptEnded(1, FAILED), Fenced(1, FAILED)):
        state, _ = step(state, event, at := at + 1)
    assert [(c.at, c.status.value, c.cause, c.attempt, c.epoch) for c in state.story.chapters] == [
        (1, "CREATED", "accepted", 0, 3),
        (2, "RUNNING", "slot on engine e1", 0, 3),
        (4, "FAILING", "attempt 1 failed: user code", 1, 3),
        (5, "FAILED", "attempt 1 was fenced", 1, 3),
    ]
    created, _ = step(JobState(NoRestart()), Started(), 1.0)
    canceled, _ = step(created, CancelRequested(), 2.0)
    assert [(c.status.value, c.cause) for c in canceled.story.chapters[-2:]] == [
        ("CANCELLING", "a cancel was requested"),
        ("CANCELED", "a cancel was requested"),
    ]


def test_an_event_that_changes_nothing_leaves_no_trace() -> None:
    assert step(RUNNING, RestartDue(), 5.0) == (RUNNING, ())


def test_a_step_that_cannot_be_names_its_cause() -> None:
    with pytest.raises(IllegalTransitionError, match="RUNNING → CREATED: a bug"):
        _enter(replace(RUNNING, cause="a bug"), JobStatus.CREATED, 5.0)


def test_story_outlives_its_leader_and_tells_of_the_next() -> None:
    state, _ = step(JobState(NoRestart(), epoch=1), Started(), 1.0)
    state, _ = step(state, SlotGranted("e1"), 2.0)
    record = json.loads(json.dumps(state.record()))
    again = JobState.of_record(NoRestart(), 16, record).taken_over(2, 9.0)
    again, _ = step(again, Recovered(True, Presence.RUNNING), 9.5)
    assert again.story.chapters[:2] == state.story.chapters
    assert [(c.status.value, c.cause, c.attempt, c.epoch) for c in again.story.chapters[2:]] == [
        ("RECONCILING", "taken over by the leader of epoch 2", 1, 2),
        ("RUNNING", "its attempt was found running", 1, 2),
    ]


def test_a_record_without_a_story_begins_one() -> None:
    record = {k: v for k, v in RUNNING.record().items() if k != "story"}
    state = JobState.of_record(NoRestart(), 16, record).taken_over(2, 9.0)
    assert [c.status for c in state.story.chapters] == [JobStatus.RECONCILING]


def test_a_long_story_keeps_its_end_and_says_how_much_is_left_out() -> None:
    story = Story()
    for number in range(MOST_CHAPTERS + 7):
        story = story.after(Chapter(float(number), JobStatus.RUNNING, "again", number, 1))
    assert (len(story.chapters), story.left_out, story.chapters[0].attempt) == (MOST_CHAPTERS, 7, 7)
    assert Story.from_json(json.loads(json.dumps(story.to_json()))) == story


def test_an_end_that_is_not_durable_is_not_told() -> None:
    story = Story().after(Chapter(1.0, JobStatus.RUNNING, "", 1, 1))
    assert story.after(Chapter(2.0, JobStatus.FINISHED, "", 1, 1)).before_the_end() == story
    assert story.before_the_end() == story


@pytest.mark.parametrize(
    ("change", "sense"),
    [
        ({}, True),
        ({"left_out": "7"}, False),
        ({"chapters": [{"at": 1.0}]}, False),
        ({"chapters": [["at", 1.0]]}, False),
        ({"chapters": 7}, False),
    ],
)
def test_what_is_read_from_a_disk_has_to_be_a_story(change: dict[str, Any], sense: bool) -> None:
    story = Story((Chapter(1.0, JobStatus.RUNNING, "x", 1, 1),)).to_json()
    assert story_makes_sense({**story, **change}) is sense
    assert not story_makes_sense([story])
