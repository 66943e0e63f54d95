"""The logic of one job, without anything around it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import pytest

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    Restart,
)
from firesteel.jobmaster import machine
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.machine import (
    AttemptEnded,
    Cancel,
    CancelRequested,
    Deploy,
    Deployed,
    DeployFailed,
    EngineLost,
    Event,
    ExceptionEntry,
    Fence,
    Fenced,
    Finish,
    IllegalTransitionError,
    Instruction,
    JobState,
    Persist,
    Recovered,
    ReleaseSlot,
    RequestSlot,
    RestartDue,
    SlotGranted,
    SlotRefused,
    Started,
    StopAttempt,
    StopRequested,
    WaitForRestart,
    Watch,
    step,
)
from firesteel.jobmaster.restart import REMEMBERED, RestartHistory, remembered, restart_delay
from firesteel.jobmaster.story import Chapter, Story
from firesteel.status import TRANSITIONS, JobStatus

S = JobStatus
NOW = 100.0
USER = Failure(FailureKind.USER_CODE, "division by zero")
LOST = Failure(FailureKind.ENGINE_LOST, "its process is gone")
BAD = Failure(FailureKind.INVALID_PIPELINE, "no such column")
NO_ENGINE = Failure(FailureKind.ENGINE_START, "no engine came up")
KILLED = Failure(FailureKind.KILLED, "the driver process received SIGTERM, which Firesteel did not send")
FINISHED = AttemptResult(AttemptState.FINISHED)
STOPPED = AttemptResult(AttemptState.FINISHED, stopped=True)
FAILED = AttemptResult(AttemptState.FAILED, USER)
CANCELED = AttemptResult(AttemptState.CANCELED)

TWICE = FixedDelayRestart(attempts=2, delay="5 s")


def state(status: JobStatus, **more: object) -> JobState:
    """A job in its second attempt, or between its first and its second."""
    inside = status in (S.RUNNING, S.FAILING, S.CANCELLING)
    base = {
        "status": status,
        "attempt": 0 if status is S.INITIALIZING else 2 if inside else 1,
        "deployed": inside,
        "engine_id": "e1",
        "failures": RestartHistory((50.0,)),
    }
    return JobState(TWICE, 16, **{**base, **more})  # type: ignore[arg-type]


FRESH = JobState(TWICE, 16)
CREATED = state(S.CREATED)
RUNNING = state(S.RUNNING)
STOPPING = state(S.RUNNING, stop_requested=True)
FAILING = state(S.FAILING, pending=ExceptionEntry(USER, 90.0, 2))
CANCELLING = state(S.CANCELLING, cancel_requested=True)
RESTARTING = state(S.RESTARTING, restart_at=105.0)
RECONCILING = state(S.RECONCILING, attempt=2, deployed=True)
BETWEEN = state(S.RECONCILING)
RESTARTING_DONE = state(S.CREATED, restart_at=99.0)
OVER = [state(s) for s in (S.FINISHED, S.FAILED, S.CANCELED)]

AGAIN = (Persist(), ReleaseSlot(), WaitForRestart(5.0))
NOTHING: tuple[Instruction, ...] = ()


def end(status: JobStatus, failure: Failure | None = None) -> tuple[Instruction, ...]:
    return (ReleaseSlot(), Finish(status, failure))


TABLE: list[tuple[str, JobState, Event, JobStatus, tuple[Instruction, ...]]] = [
    ("begin", FRESH, Started(), S.CREATED, (RequestSlot(),)),
    ("a cancel before the begin", FRESH, CancelRequested(), S.CANCELED, (Persist(), *end(S.CANCELED))),
    ("a stop before the begin", FRESH, StopRequested(), S.INITIALIZING, NOTHING),
    # CREATED: waiting for a slot
    ("a slot", CREATED, SlotGranted("e2"), S.RUNNING, (Persist(), Deploy(2))),
    ("a place for a classic driver", CREATED, SlotGranted(None), S.RUNNING, (Persist(), Deploy(2))),
    ("no slot now", CREATED, SlotRefused(NO_ENGINE), S.RESTARTING, AGAIN),
    ("no slot ever", CREATED, SlotRefused(BAD), S.FAILED, end(S.FAILED, BAD)),
    ("cancel while waiting", CREATED, CancelRequested(), S.CANCELED, (Persist(), *end(S.CANCELED))),
    ("stop while waiting", CREATED, StopRequested(), S.CREATED, NOTHING),
    ("a late fence", CREATED, Fenced(1, FINISHED), S.CREATED, NOTHING),
    ("a late end", CREATED, AttemptEnded(1, FINISHED), S.CREATED, NOTHING),
    ("a late loss", CREATED, EngineLost(1, "gone"), S.CREATED, NOTHING),
    ("a restart that is under way", CREATED, RestartDue(), S.CREATED, NOTHING),
    # RUNNING
    ("deployed", RUNNING, Deployed(2), S.RUNNING, (Watch(2),)),
    ("deployed, and to be stopped", STOPPING, Deployed(2), S.RUNNING, (Watch(2), StopAttempt(2))),
    ("deployed, an earlier one", RUNNING, Deployed(1), S.RUNNING, NOTHING),
    ("not deployed", RUNNING, DeployFailed(2, NO_ENGINE), S.FAILING, (Fence(2),)),
    ("not deployed, an earlier one", RUNNING, DeployFailed(1, NO_ENGINE), S.RUNNING, NOTHING),
    ("finished", RUNNING, AttemptEnded(2, FINISHED), S.FINISHED, end(S.FINISHED)),
    ("stopped", STOPPING, AttemptEnded(2, STOPPED), S.FINISHED, end(S.FINISHED)),
    ("failed", RUNNING, AttemptEnded(2, FAILED), S.FAILING, (Fence(2),)),
    ("failed while stopping", STOPPING, AttemptEnded(2, FAILED), S.FAILING, (Fence(2),)),
    ("cancelled by a stranger", RUNNING, AttemptEnded(2, CANCELED), S.FAILING, (Fence(2),)),
    ("the end of an earlier one", RUNNING, AttemptEnded(1, FINISHED), S.RUNNING, NOTHING),
    ("engine lost", RUNNING, EngineLost(2, "gone"), S.FAILING, (Fence(2),)),
    ("engine of an earlier one lost", RUNNING, EngineLost(1, "gone"), S.RUNNING, NOTHING),
    ("cancel", RUNNING, CancelRequested(), S.CANCELLING, (Persist(), Cancel(2))),
    ("stop", RUNNING, StopRequested(), S.RUNNING, (Persist(), StopAttempt(2))),
    ("stop again", STOPPING, StopRequested(), S.RUNNING, NOTHING),
    ("a slot too many", RUNNING, SlotGranted("e9"), S.RUNNING, (ReleaseSlot(),)),
    ("a late refusal", RUNNING, SlotRefused(NO_ENGINE), S.RUNNING, NOTHING),
    ("a fence of nobody's", RUNNING, Fenced(2, CANCELED), S.RUNNING, NOTHING),
    # FAILING: until the attempt is fenced
    ("fenced after a failure", FAILING, Fenced(2, CANCELED), S.RESTARTING, AGAIN),
    ("fenced, with a failure of its own", FAILING, Fenced(2, FAILED), S.RESTARTING, AGAIN),
    ("fenced, and it had succeeded", FAILING, Fenced(2, FINISHED), S.FINISHED, end(S.FINISHED)),
    ("fenced, an earlier one", FAILING, Fenced(1, FINISHED), S.FAILING, NOTHING),
    ("cancel while fencing", FAILING, CancelRequested(), S.CANCELLING, (Persist(),)),
    ("stop while fencing", FAILING, StopRequested(), S.FAILING, NOTHING),
    ("its end while fencing", FAILING, AttemptEnded(2, FINISHED), S.FAILING, NOTHING),
    ("its loss while fencing", FAILING, EngineLost(2, "gone"), S.FAILING, NOTHING),
    ("its start while fencing", FAILING, Deployed(2), S.FAILING, NOTHING),
    ("a slot while fencing", FAILING, SlotGranted("e9"), S.FAILING, (ReleaseSlot(),)),
    # CANCELLING: until the attempt is fenced
    ("cancelled", CANCELLING, Fenced(2, CANCELED), S.CANCELED, end(S.CANCELED)),
    ("cancelled, and it had failed", CANCELLING, Fenced(2, FAILED), S.CANCELED, end(S.CANCELED)),
    ("cancelled, and it had succeeded", CANCELLING, Fenced(2, FINISHED), S.FINISHED, end(S.FINISHED)),
    ("cancelled, and it had stopped", CANCELLING, Fenced(2, STOPPED), S.FINISHED, end(S.FINISHED)),
    ("cancel again", CANCELLING, CancelRequested(), S.CANCELLING, NOTHING),
    ("stop while cancelling", CANCELLING, StopRequested(), S.CANCELLING, NOTHING),
    ("its end while cancelling", CANCELLING, AttemptEnded(2, FINISHED), S.CANCELLING, NOTHING),
    ("its loss while cancelling", CANCELLING, EngineLost(2, "gone"), S.CANCELLING, NOTHING),
    ("its start while cancelling", CANCELLING, Deployed(2), S.CANCELLING, NOTHING),
    ("its failed start while cancelling", CANCELLING, DeployFailed(2, NO_ENGINE), S.CANCELLING, NOTHING),
    # RESTARTING: until the delay is over
    ("the delay is over", RESTARTING, RestartDue(), S.CREATED, (RequestSlot(),)),
    ("cancel while restarting", RESTARTING, CancelRequested(), S.CANCELED, (Persist(), *end(S.CANCELED))),
    ("stop while restarting", RESTARTING, StopRequested(), S.RESTARTING, NOTHING),
    ("a late loss while restarting", RESTARTING, EngineLost(1, "gone"), S.RESTARTING, NOTHING),
    ("a late slot while restarting", RESTARTING, SlotGranted("e9"), S.RESTARTING, (ReleaseSlot(),)),
    # RECONCILING: an earlier leader looked after it
    ("recovered, running", RECONCILING, Recovered(True, Presence.RUNNING), S.RUNNING, (Watch(2),)),
    ("recovered, ended", RECONCILING, Recovered(True, Presence.ENDED), S.RUNNING, (Watch(2),)),
    ("recovered, ended, engine gone", RECONCILING, Recovered(False, Presence.ENDED), S.RUNNING, (Watch(2),)),
    ("recovered, never started", RECONCILING, Recovered(True, Presence.ABSENT), S.RUNNING, (Deploy(2),)),
    ("recovered, engine gone", RECONCILING, Recovered(False, Presence.RUNNING), S.FAILING, (Fence(2),)),
    ("recovered, engine gone, absent", RECONCILING, Recovered(False, Presence.ABSENT), S.FAILING, (Fence(2),)),
    (
        "recovered, to be stopped",
        replace(RECONCILING, stop_requested=True),
        Recovered(True, Presence.RUNNING),
        S.RUNNING,
        (Watch(2), StopAttempt(2)),
    ),
    (
        "recovered, to be cancelled",
        replace(RECONCILING, cancel_requested=True),
        Recovered(True, Presence.RUNNING),
        S.CANCELLING,
        (Cancel(2),),
    ),
    (
        "recovered, to be cancelled, between attempts",
        replace(BETWEEN, cancel_requested=True),
        Recovered(False, None),
        S.CANCELED,
        end(S.CANCELED),
    ),
    ("recovered between attempts", BETWEEN, Recovered(False, None), S.CREATED, (RequestSlot(),)),
    (
        "recovered before its restart",
        replace(BETWEEN, restart_at=NOW + 3),
        Recovered(False, None),
        S.RESTARTING,
        (WaitForRestart(3.0),),
    ),
    (
        "recovered after its restart was due",
        replace(BETWEEN, restart_at=NOW - 3),
        Recovered(False, None),
        S.RESTARTING,
        (WaitForRestart(0.0),),
    ),
    ("cancel before it is recovered", RECONCILING, CancelRequested(), S.CANCELLING, (Persist(), Cancel(2))),
    ("cancel between attempts", BETWEEN, CancelRequested(), S.CANCELED, (Persist(), *end(S.CANCELED))),
    ("stop before it is recovered", RECONCILING, StopRequested(), S.RECONCILING, NOTHING),
    ("recovered after a cancel", CANCELLING, Recovered(True, Presence.RUNNING), S.CANCELLING, NOTHING),
]


@pytest.mark.parametrize(
    ("before", "event", "status", "instructions"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE]
)
def test_step(before: JobState, event: Event, status: JobStatus, instructions: tuple[Instruction, ...]) -> None:
    after, told = step(before, event, NOW)
    assert (after.status, told) == (status, instructions)
    if status is before.status:
        assert after.timestamps == before.timestamps
    else:
        assert after.timestamps[status.value] == NOW


ALL_EVENTS: list[Event] = [
    Started(),
    Recovered(True, Presence.RUNNING),
    Recovered(False, None),
    SlotGranted("e9"),
    SlotRefused(NO_ENGINE),
    Deployed(2),
    DeployFailed(2, NO_ENGINE),
    AttemptEnded(2, FINISHED),
    AttemptEnded(2, FAILED),
    EngineLost(2, "gone"),
    Fenced(2, CANCELED),
    RestartDue(),
    CancelRequested(),
    StopRequested(),
]


@pytest.mark.parametrize("over", OVER, ids=lambda s: s.status.value)
@pytest.mark.parametrize("event", ALL_EVENTS, ids=lambda e: type(e).__name__)
def test_what_has_ended_stays_as_it_is(over: JobState, event: Event) -> None:
    assert step(over, event, NOW) == (over, ())


def test_slot_makes_the_next_attempt() -> None:
    after, _ = step(RESTARTING_DONE, SlotGranted("e7"), NOW)
    assert (after.attempt, after.deployed, after.engine_id, after.restart_at) == (2, True, "e7", None)
    assert after.restarts == 1


def test_failure_is_remembered_with_what_is_known_of_it() -> None:
    failed, _ = step(RUNNING, AttemptEnded(2, FAILED, {"type": "USER_ERROR"}), NOW)
    after, _ = step(failed, Fenced(2, CANCELED), NOW + 1)
    assert after.exceptions == (ExceptionEntry(USER, NOW, 2, {"type": "USER_ERROR"}),)
    assert after.failures == RestartHistory((50.0, NOW + 1))
    assert after.restart_at == NOW + 1 + 5
    assert not after.deployed
    assert after.pending is None


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        (AttemptEnded(2, CANCELED), KILLED),
        (
            AttemptEnded(2, AttemptResult(AttemptState.FAILED)),
            Failure(FailureKind.EXIT_CODE, "the attempt failed without a reason"),
        ),
        (EngineLost(2, "its process is gone"), LOST),
        (DeployFailed(2, NO_ENGINE), NO_ENGINE),
    ],
)
def test_reason_of_a_failure(event: Event, failure: Failure) -> None:
    failing, _ = step(RUNNING, event, NOW)
    assert failing.pending is not None
    assert failing.pending.failure == failure


def test_engine_that_was_gone_at_recovery_is_named() -> None:
    after, _ = step(RECONCILING, Recovered(False, Presence.RUNNING), NOW)
    assert after.pending is not None
    assert after.pending.failure.kind is FailureKind.ENGINE_LOST
    assert "engine e1 was gone" in after.pending.failure.message


def test_failure_that_was_one_too_many() -> None:
    last = replace(FAILING, failures=RestartHistory((10.0, 20.0)))
    after, told = step(last, Fenced(2, CANCELED), NOW)
    assert told == end(S.FAILED, USER)
    assert after.exceptions[-1].failure is USER


def test_success_that_showed_late_is_no_failure() -> None:
    after, _ = step(FAILING, Fenced(2, STOPPED), NOW)
    assert after.stopped
    assert after.exceptions == ()
    assert after.failures == FAILING.failures


def test_cancelled_job_whose_attempt_was_done_says_whether_it_was_stopped() -> None:
    assert step(CANCELLING, Fenced(2, STOPPED), NOW)[0].stopped
    assert not step(CANCELLING, Fenced(2, FINISHED), NOW)[0].stopped


def test_failure_undoes_a_stop() -> None:
    """The wish was that this attempt should end; the next one is another."""
    failing, _ = step(STOPPING, AttemptEnded(2, FAILED), NOW)
    again, _ = step(failing, Fenced(2, CANCELED), NOW)
    assert again.status is S.RESTARTING
    assert not again.stop_requested


def test_cancel_is_durable_and_forgets_the_failure_at_hand() -> None:
    after, _ = step(FAILING, CancelRequested(), NOW)
    assert after.record()["cancel_requested"] is True
    assert after.pending is None


@pytest.mark.parametrize("size", [1, 3])
def test_exception_history_keeps_the_last_ones(size: int) -> None:
    job = replace(FRESH, history_size=size, restart=FixedDelayRestart(attempts=99))
    job, _ = step(job, Started(), 0)
    for n in range(1, 6):
        job, _ = step(job, SlotGranted("e1"), n)
        job, _ = step(job, EngineLost(n, f"loss {n}"), n)
        job, _ = step(job, Fenced(n, CANCELED), n)
        job, _ = step(job, RestartDue(), n)
    assert [e.failure.message for e in job.exceptions] == [f"loss {n}" for n in range(6 - size, 6)]
    assert job.failures.count == 5


def test_step_that_the_table_does_not_allow_is_an_error() -> None:
    """It would be a bug of ours, and must not pass in silence."""
    with pytest.raises(IllegalTransitionError, match="RUNNING → CREATED"):
        step(RUNNING, Started(), NOW)


# -- every order of events --------------------------------------------------------------------------------------------

STRATEGIES: list[Restart] = [
    NoRestart(),
    TWICE,
    ExponentialDelayRestart(initial_delay="1 s", max_delay="10 s", attempts=4),
    FailureRateRestart(max_failures=2, interval="20 s", delay="1 s"),
]
WISHES: list[Event] = [CancelRequested(), StopRequested()]
DURABLE_BEFORE = (Deploy, Cancel, StopAttempt, WaitForRestart)


def some_failure(r: random.Random) -> Failure:
    return Failure(r.choice([k for k in FailureKind if k is not FailureKind.IMPORT]), "drawn")


def some_result(r: random.Random) -> AttemptResult:
    match r.randrange(4):
        case 0:
            return AttemptResult(AttemptState.FINISHED, stopped=r.random() < 0.5)
        case 1:
            return CANCELED
        case _:
            return AttemptResult(AttemptState.FAILED, some_failure(r) if r.random() < 0.9 else None)


def some_event(r: random.Random, job: JobState, expected: list[Event]) -> Event:
    """Mostly an answer to what the job has asked for; else anything, of any attempt, at any time."""
    if expected and r.random() < 0.6:
        return expected.pop(r.randrange(len(expected)))
    attempt = max(1, job.attempt + r.choice([-1, 0, 0, 0, 1]))
    anything: list[Callable[[], Event]] = [
        lambda: SlotGranted(r.choice(["e1", "e2", None])),
        lambda: SlotRefused(some_failure(r)),
        lambda: Deployed(attempt),
        lambda: DeployFailed(attempt, some_failure(r)),
        lambda: AttemptEnded(attempt, some_result(r)),
        lambda: EngineLost(attempt, "gone"),
        lambda: Fenced(attempt, some_result(r)),
        RestartDue,
        StopRequested,
    ]
    if r.random() < 0.1:
        anything = [CancelRequested]
    return r.choice(anything)()


def answers(r: random.Random, told: tuple[Instruction, ...]) -> Iterator[Event]:
    for instruction in told:
        match instruction:
            case RequestSlot():
                yield SlotGranted("e1") if r.random() < 0.9 else SlotRefused(NO_ENGINE)
            case Deploy():
                yield (
                    Deployed(instruction.attempt) if r.random() < 0.9 else DeployFailed(instruction.attempt, NO_ENGINE)
                )
            case Watch():
                yield AttemptEnded(instruction.attempt, some_result(r))
            case Fence() | Cancel():
                yield Fenced(instruction.attempt, some_result(r))
            case WaitForRestart():
                yield RestartDue()


def first_event(r: random.Random, job: JobState) -> Event:
    if job.status is S.INITIALIZING:
        return Started()
    presence = r.choice(list(Presence)) if job.deployed else None
    return Recovered(job.deployed and r.random() < 0.7, presence)


def lasting(record: dict[str, object]) -> dict[str, object]:
    """A record without the times of its statuses, which are for people to look at."""
    return {k: v for k, v in record.items() if k not in ("timestamps", "story")}


def walk(seed: int) -> JobStatus:
    """One job through random events and new leaders, to its end; whatever happens, the rules hold."""
    r = random.Random(seed)
    restart = STRATEGIES[seed % len(STRATEGIES)]
    job, now = JobState(restart, 4), 0.0
    durable: dict[str, object] | None = None
    expected: list[Event] = [first_event(r, job)]
    begun = False
    for _ in range(400):
        if begun and durable is not None and r.random() < 0.03:
            # The leader dies; all that the next one knows is the record.
            job = JobState.of_record(restart, 4, json.loads(json.dumps(durable)))
            expected = [first_event(r, job)]
            begun = False
        if begun:
            event = some_event(r, job, expected)
        else:
            # Only a wish of a user can come before the begin.
            event = expected.pop() if r.random() < 0.9 else r.choice(WISHES)
            begun = isinstance(event, Started | Recovered)
        now += r.random()
        before, (job, told) = job, step(job, event, now)
        assert job.attempt in (before.attempt, before.attempt + 1)
        assert before.cancel_requested <= job.cancel_requested, "a cancel is never taken back"
        for instruction in told:
            if isinstance(instruction, Persist):
                durable = json.loads(json.dumps(job.record()))
            elif isinstance(instruction, DURABLE_BEFORE):
                assert durable is not None
                assert lasting(durable) == lasting(job.record()), f"{instruction} of {event} before it is durable"
            elif isinstance(instruction, Finish):
                assert instruction == told[-1]
                assert instruction.status is job.status
                assert (instruction.failure is not None) == (job.status is S.FAILED)
        assert any(isinstance(i, Finish) for i in told) == job.status.terminal
        if isinstance(event, CancelRequested):
            assert job.cancel_requested
            assert job.status in (S.CANCELLING, S.CANCELED) or before.cancel_requested
        if job.cancel_requested:
            assert not any(isinstance(i, RequestSlot | Deploy | WaitForRestart) for i in told)
        if job.status.terminal:
            for late in ALL_EVENTS:
                assert step(job, late, now) == (job, ())
            return job.status
        expected += answers(r, told)
    return job.status


def test_any_order_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event at any time breaks a rule; in particular nothing happens outside before the record says so."""
    taken: set[tuple[JobStatus, JobStatus]] = set()
    enter = machine._enter

    def noting(job: JobState, status: JobStatus, now: float) -> JobState:
        taken.add((job.status, status))
        return enter(job, status, now)

    monkeypatch.setattr(machine, "_enter", noting)
    ends = [walk(seed) for seed in range(4000)]
    allowed = {(a, b) for a, following in TRANSITIONS.items() for b in following}
    assert taken <= allowed
    # The walk went everywhere: what is left is not the machine's to do, or only for records that nobody writes.
    assert {(a.value, b.value) for a, b in allowed - taken if b is not S.SUSPENDED} == {
        ("INITIALIZING", "RECONCILING"),
        ("INITIALIZING", "FAILED"),
        ("INITIALIZING", "CANCELED"),
        ("RECONCILING", "CREATED"),
        ("RECONCILING", "FINISHED"),
    }
    assert {e for e in ends if e.terminal} == {S.FINISHED, S.FAILED, S.CANCELED}
    assert sum(e.terminal for e in ends) > 0.9 * len(ends)


@pytest.mark.parametrize(
    ("before", "event"), [(r[1], r[2]) for r in TABLE if any(isinstance(i, DURABLE_BEFORE) for i in r[4])]
)
def test_what_changes_the_record_is_persisted_before_anything_happens_outside(before: JobState, event: Event) -> None:
    after, told = step(before, event, NOW)
    kinds = [type(i) for i in told]
    outward = min(i for i, kind in enumerate(kinds) if kind in DURABLE_BEFORE)
    if lasting(after.record()) != lasting(before.record()):
        assert Persist in kinds[:outward]


# -- the record -------------------------------------------------------------------------------------------------------

NOT_DURABLE = {"movable", "lost", "epoch", "cause", "restart", "history_size", "status", "stopped", "pending"}


def test_record_has_every_field_that_must_last() -> None:
    assert set(RUNNING.record()) == {f.name for f in fields(JobState)} - NOT_DURABLE


def random_state(r: random.Random) -> JobState:
    def entry() -> ExceptionEntry:
        failure = Failure(
            r.choice(list(FailureKind)),
            r.choice(["", "ünïcode \ud800 ☃", "x" * 1000, 'a "quoted"\n\ttext']),
            r.choice([None, "orders"]),
            r.choice(["", "py4j.Error"]),
            r.choice(["", "Traceback\n  File"]),
        )
        return ExceptionEntry(failure, r.random() * 1e9, r.randrange(5), {"type": "USER_ERROR", "té\udcff": "ü"})

    return JobState(
        r.choice(STRATEGIES),
        16,
        attempt=r.randrange(10**6),
        deployed=r.random() < 0.5,
        engine_id=r.choice([None, "e1", "localhost-é"]),
        failures=RestartHistory(tuple(r.random() * 2e9 for _ in range(r.randrange(5))), r.randrange(9)),
        restart_at=r.choice([None, 0.1 + 0.2, r.random() * 2e9]),
        cancel_requested=r.random() < 0.5,
        stop_requested=r.random() < 0.5,
        exceptions=tuple(entry() for _ in range(r.randrange(4))),
        story=Story(
            tuple(
                Chapter(r.random() * 2e9, r.choice(list(JobStatus)), r.choice(["", "a cause"]), n, r.randrange(9))
                for n in range(r.randrange(4))
            ),
            r.randrange(3),
        ),
        timestamps={s.value: r.random() * 2e9 for s in JobStatus if r.random() < 0.5},
    )


def test_record_comes_back_as_it_was() -> None:
    r = random.Random(7)
    for _ in range(300):
        job = random_state(r)
        read = JobState.of_record(job.restart, 16, json.loads(json.dumps(job.record())))
        assert read == replace(job, status=S.RECONCILING)


def test_record_says_nothing_of_what_a_new_leader_must_find_out() -> None:
    job = replace(RUNNING, stopped=True, pending=ExceptionEntry(USER, 1.0, 2))
    read = JobState.of_record(job.restart, job.history_size, job.record())
    assert (read.status, read.stopped, read.pending) == (S.RECONCILING, False, None)


# -- how much of the past is remembered -------------------------------------------------------------------------------


def decisions(strategy: Restart, gaps: list[float], *, bounded: bool) -> list[float | None]:
    history, now, found = RestartHistory(), 0.0, []
    for gap in gaps:
        now += gap
        history = (
            history.failed(now, keep=remembered(strategy)) if bounded else RestartHistory((*history.failures, now))
        )
        found.append(restart_delay(strategy, history, USER))
    return found


@pytest.mark.parametrize(
    "strategy",
    [
        *STRATEGIES,
        FixedDelayRestart(attempts=40),
        ExponentialDelayRestart(initial_delay="1 s", max_delay="1 h", multiplier=1.2),
        ExponentialDelayRestart(attempts=45),
        FailureRateRestart(max_failures=12, interval="10 s", delay="1 s"),
    ],
    ids=lambda s: s.type,
)
def test_bounded_history_decides_like_an_unbounded_one(strategy: Restart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.jobmaster.restart.REMEMBERED", 20)
    for seed in range(50):
        r = random.Random(seed)
        gaps = [r.choice([0.1, 0.5, 1.0, 5.0]) * r.random() for _ in range(60)]
        assert decisions(strategy, gaps, bounded=True) == decisions(strategy, gaps, bounded=False)


def test_history_is_bounded() -> None:
    history = RestartHistory()
    for n in range(REMEMBERED + 500):
        history = history.failed(float(n))
    assert len(history.failures) == REMEMBERED
    assert history.failures[-1] == REMEMBERED + 499
    assert history.count == REMEMBERED + 500


def test_failure_rate_that_counts_more_than_is_remembered_gives_up_all_the_same() -> None:
    strategy = FailureRateRestart(max_failures=REMEMBERED + 10, interval="1 h", delay="1 s")
    found = decisions(strategy, [0.01] * (REMEMBERED + 12), bounded=True)
    assert found[-3:] == [1.0, None, None]


@pytest.mark.parametrize("status", [S.FAILING, S.CANCELLING])
def test_attempt_that_was_given_up_is_remembered_for_all_that_follows(status: JobStatus) -> None:
    """I27: the next attempt and the clean-up lock it out; so does that of a later leader."""
    unseen = AttemptResult(AttemptState.CANCELED, given_up=True)
    pending = ExceptionEntry(LOST, NOW, 2) if status is S.FAILING else None
    after, _ = step(state(status, pending=pending), Fenced(2, unseen), NOW)
    assert after.given_up == 2
    later = JobState.of_record(TWICE, 16, json.loads(json.dumps(after.record())))
    assert later.given_up == 2
    running = state(S.FAILING, pending=ExceptionEntry(LOST, NOW, 2), given_up=1)
    seen, _ = step(running, Fenced(2, CANCELED), NOW)
    assert seen.given_up == 1, "what came after it and was seen to end changes nothing"
