"""The logic of one job, free of I/O: events in, a new state and instructions out.

The shell (`master.py`) performs the instructions in their order and turns what comes of them into events. `Persist` stands
before every instruction that touches the outside world, so a crash between any two lines leaves a record from which the next
leader knows everything that may have happened; and every instruction may be repeated.

What is durable and what is not: the fields of `JobState` above the line are written by `Persist`. The rest is worked out anew
by a leader that recovers the job, which begins with `Recovered`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import Restart
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.past import NO_PAST, Past, PastAttempt
from firesteel.jobmaster.restart import NO_FAILURES, RestartHistory, remembered, restart_delay
from firesteel.jobmaster.story import NO_STORY, Chapter, Story
from firesteel.records import from_json, to_json
from firesteel.status import TRANSITIONS, JobStatus

# -- state ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExceptionEntry:
    """One failure of the job, as its exception history shows it."""

    failure: Failure
    at: float
    attempt: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobState:
    restart: Restart
    history_size: int = 16
    movable: bool = False
    """Whether the job runs again elsewhere when the host of its attempt is lost, whatever its restart strategy says."""

    attempt: int = 0
    """The last attempt that was or may have been started. Attempts count from 1."""
    deployed: bool = False
    """Whether `attempt` may be running. False between attempts."""
    engine_id: str | None = None
    """Where `attempt` was placed; None for a classic driver."""
    worker: str = ""
    """The worker that has it; empty: that of the node that placed it."""
    endpoint: str = ""
    """The address of its engine."""
    started_at: float = 0.0
    """When `attempt` was placed."""
    given_up: int = 0
    """The last attempt whose end nobody has seen; 0 when there is none. What follows it takes its outputs over from it."""
    past: Past = NO_PAST
    """The attempts before it, and `attempt` itself once it has failed and is over."""
    failures: RestartHistory = NO_FAILURES
    """When attempts failed: what the restart strategy counts (I11)."""
    restart_at: float | None = None
    cancel_requested: bool = False
    keep_checkpoint: bool | None = None
    """Whether the cancel request keeps the stream's checkpoint; None: as configured."""
    stop_requested: bool = False
    exceptions: tuple[ExceptionEntry, ...] = ()
    timestamps: Mapping[str, float] = field(default_factory=dict)
    """When each status was last entered."""
    story: Story = NO_STORY
    """Each status that was entered, in order, and why."""

    # -- not durable --
    epoch: int = 0
    """The epoch of the leader that is responsible for the job."""
    cause: str = ""
    """The reason for the current step; empty between steps."""
    status: JobStatus = JobStatus.INITIALIZING
    stopped: bool = False
    """The result is that of a stop that was asked for."""
    lost: str = ""
    """Why the engine was lost, when that was heard before it was clear what the attempt does."""
    pending: ExceptionEntry | None = None
    """The failure that is being dealt with, in FAILING."""

    @property
    def restarts(self) -> int:
        return max(0, self.attempt - 1)

    def record(self) -> dict[str, Any]:
        """The durable part, as JSON."""
        return {
            "attempt": self.attempt,
            "deployed": self.deployed,
            "engine_id": self.engine_id,
            "worker": self.worker,
            "endpoint": self.endpoint,
            "started_at": self.started_at,
            "given_up": self.given_up,
            "past": self.past.to_json(),
            "failures": {"times": list(self.failures.failures), "earlier": self.failures.earlier},
            "restart_at": self.restart_at,
            "cancel_requested": self.cancel_requested,
            "keep_checkpoint": self.keep_checkpoint,
            "stop_requested": self.stop_requested,
            "exceptions": [to_json(e) for e in self.exceptions],
            "timestamps": dict(self.timestamps),
            "story": self.story.to_json(),
        }

    @staticmethod
    def of_record(restart: Restart, history_size: int, data: Mapping[str, Any]) -> JobState:
        """The state of a job of an earlier leader; what has become of it since is not known yet."""
        return JobState(
            restart,
            history_size,
            status=JobStatus.RECONCILING,
            attempt=data["attempt"],
            deployed=data["deployed"],
            engine_id=data["engine_id"],
            worker=data.get("worker", ""),
            endpoint=data.get("endpoint", ""),
            started_at=data.get("started_at", 0.0),
            given_up=data.get("given_up", 0),
            past=Past.from_json(data["past"]) if "past" in data else NO_PAST,
            failures=RestartHistory(tuple(data["failures"]["times"]), data["failures"]["earlier"]),
            restart_at=data["restart_at"],
            cancel_requested=data["cancel_requested"],
            keep_checkpoint=data.get("keep_checkpoint"),
            stop_requested=data["stop_requested"],
            exceptions=tuple(from_json(e, ExceptionEntry) for e in data["exceptions"]),
            timestamps=data["timestamps"],
            story=Story.from_json(data["story"]) if "story" in data else NO_STORY,
        )

    def taken_over(self, epoch: int, now: float) -> JobState:
        """With the leader of `epoch`, who found the job in the store."""
        state = replace(self, epoch=epoch)
        return replace(
            state, story=_told(state, JobStatus.RECONCILING, f"taken over by the leader of epoch {epoch}", now)
        )


# -- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The job is new: no leader was responsible for it before."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The job has a record of an earlier leader. `has_slot`: the engine of its attempt still runs and was reclaimed."""

    has_slot: bool
    presence: Presence | None
    """What became of the attempt that may have been running; None when there was none."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """For the failure, should its engine be gone."""


@dataclass(frozen=True, slots=True)
class WorkerAwaited:
    """The job has a record of an earlier leader, and the worker that has its attempt has not come to this one yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class SlotGranted:
    engine_id: str | None
    worker: str = ""
    """Which is to run the attempt."""
    endpoint: str = ""
    """The engine's address."""


@dataclass(frozen=True, slots=True)
class SlotRefused:
    failure: Failure
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deployed:
    attempt: int


@dataclass(frozen=True, slots=True)
class DeployFailed:
    attempt: int
    failure: Failure
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    attempt: int
    result: AttemptResult
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineLost:
    attempt: int
    reason: str
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: FailureKind = FailureKind.ENGINE_LOST
    """WORKER_LOST: with its whole host."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The attempt does nothing any more, for certain, and this is its final result."""

    attempt: int
    result: AttemptResult
    progress: Mapping[str, Any] = field(default_factory=dict)
    """How far it was."""


@dataclass(frozen=True, slots=True)
class RestartDue:
    pass


@dataclass(frozen=True, slots=True)
class CancelRequested:
    keep_checkpoint: bool | None = None
    """See JobState. The first cancel counts."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    pass


Event = (
    Started
    | Recovered
    | WorkerAwaited
    | SlotGranted
    | SlotRefused
    | Deployed
    | DeployFailed
    | AttemptEnded
    | EngineLost
    | Fenced
    | RestartDue
    | CancelRequested
    | StopRequested
)

# -- instructions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the record, fenced, and go on only when it is durable."""


@dataclass(frozen=True, slots=True)
class RequestSlot:
    """Answered by SlotGranted or SlotRefused."""


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """Give up the slot, or the place in the queue."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """Answered by Deployed or DeployFailed."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Answered by AttemptEnded, or EngineLost."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the attempt: gracefully, then surely, then fence it. Answered by Fenced."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Answered by Fenced."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopAttempt:
    attempt: int


@dataclass(frozen=True, slots=True)
class WaitForRestart:
    """Answered by RestartDue."""

    delay: float


@dataclass(frozen=True, slots=True)
class Finish:
    """The job has ended for good."""

    status: JobStatus
    failure: Failure | None = None


Instruction = (
    Persist | RequestSlot | ReleaseSlot | Deploy | Watch | Cancel | Fence | StopAttempt | WaitForRestart | Finish
)

Step = tuple[JobState, tuple[Instruction, ...]]


class IllegalTransitionError(Exception):
    """A bug of ours: the table of states does not allow this step."""


# -- the machine ----------------------------------------------------------------------------------------------------


def step(state: JobState, event: Event, now: float) -> Step:
    """The job's new state and instructions after an event. An event that comes too late changes nothing."""
    if state.status.terminal:
        return state, ()
    after, instructions = _step(replace(state, cause=cause_of(event)), event, now)
    return replace(after, cause=""), instructions


def _step(state: JobState, event: Event, now: float) -> Step:  # noqa: PLR0912 - one branch per event
    match event:
        case Started():
            return _enter(state, JobStatus.CREATED, now), (RequestSlot(),)
        case Recovered():
            return _recovered(state, event, now)
        case WorkerAwaited():
            return _worker_awaited(state, event, now), ()
        case SlotGranted():
            return _slot_granted(state, event, now)
        case SlotRefused():
            if state.status is not JobStatus.CREATED:
                return state, ()
            entry = ExceptionEntry(event.failure, now, state.attempt, event.labels)
            return _decide(_enter(replace(state, pending=entry), JobStatus.FAILING, now), now)
        case Deployed():
            current = event.attempt == state.attempt and state.status is JobStatus.RUNNING
            if not current:
                return state, ()
            stopping: tuple[Instruction, ...] = (StopAttempt(state.attempt),) if state.stop_requested else ()
            return state, (Watch(event.attempt), *stopping)
        case DeployFailed():
            return _failing(state, event.attempt, event.failure, event.labels, now)
        case EngineLost() if state.status is JobStatus.RECONCILING:
            return replace(state, lost=event.reason), ()
        case EngineLost():
            return _failing(state, event.attempt, Failure(event.kind, event.reason), event.labels, now)
        case AttemptEnded():
            return _attempt_ended(state, event, now)
        case Fenced():
            return _fenced(state, event, now)
        case RestartDue():
            if state.status is not JobStatus.RESTARTING:
                return state, ()
            return _enter(state, JobStatus.CREATED, now), (RequestSlot(),)
        case CancelRequested() if state.cancel_requested:
            return state, ()
        case CancelRequested():
            return _cancel(replace(state, keep_checkpoint=event.keep_checkpoint), now)
        case StopRequested():
            if state.status is not JobStatus.RUNNING or state.stop_requested:
                return state, ()
            return replace(state, stop_requested=True), (Persist(), StopAttempt(state.attempt))
        case _:
            assert_never(event)


def _enter(state: JobState, status: JobStatus, now: float) -> JobState:
    if status not in TRANSITIONS[state.status]:
        raise IllegalTransitionError(f"{state.status} → {status}: {state.cause}")
    story = _told(state, status, state.cause, now)
    return replace(state, status=status, timestamps={**state.timestamps, status.value: now}, story=story)


def _told(state: JobState, status: JobStatus, cause: str, now: float) -> Story:
    return state.story.after(Chapter(now, status, cause, state.attempt, state.epoch))


def cause_of(event: Event) -> str:  # noqa: PLR0912 - one branch per event
    """An event as a cause in the story of the job. Nothing that user code could have written is repeated here."""
    match event:
        case Started():
            return "accepted"
        case Recovered():
            return _PRESENCES[event.presence] + (
                ", its engine was gone" if event.presence and not event.has_slot else ""
            )
        case WorkerAwaited():
            return "the worker that has its attempt is awaited"
        case SlotGranted():
            return f"slot on engine {event.engine_id}" if event.engine_id else "slot for a JVM of its own"
        case SlotRefused():
            return f"no slot: {event.failure.kind}"
        case Deployed():
            return f"attempt {event.attempt} was started"
        case DeployFailed():
            return f"attempt {event.attempt} could not be started: {event.failure.kind}"
        case AttemptEnded():
            failed = event.result.failure
            return f"attempt {event.attempt} {event.result.state.value.lower()}" + (
                f": {failed.kind}" if failed else ""
            )
        case EngineLost():
            return f"the engine of attempt {event.attempt} was lost"
        case Fenced():
            return f"attempt {event.attempt} was fenced"
        case RestartDue():
            return "the delay before the restart was over"
        case CancelRequested():
            return "a cancel was requested"
        case StopRequested():
            return "a stop was requested"
        case _:
            assert_never(event)


_PRESENCES = {
    None: "no attempt was under way",
    Presence.RUNNING: "its attempt was found running",
    Presence.ENDED: "its attempt was found ended",
    Presence.ABSENT: "its attempt was not found",
}


def _recovered(state: JobState, event: Recovered, now: float) -> Step:
    if state.status is not JobStatus.RECONCILING:
        return state, ()  # a cancel was faster
    if state.cancel_requested:
        state = _enter(state, JobStatus.CANCELLING, now)
        if state.deployed:
            return state, (Cancel(state.attempt),)
        return _finish(state, JobStatus.CANCELED, None, now)
    if not state.deployed:
        if state.restart_at is not None:
            return _enter(state, JobStatus.RESTARTING, now), (WaitForRestart(max(0.0, state.restart_at - now)),)
        return _enter(state, JobStatus.CREATED, now), (RequestSlot(),)
    match event.presence:
        case Presence.ENDED:
            # Whether its engine lives or not: what it wrote as its result is the truth.
            return _enter(state, JobStatus.RUNNING, now), (Watch(state.attempt),)
        case Presence.RUNNING if event.has_slot and not state.lost:
            again: tuple[Instruction, ...] = (StopAttempt(state.attempt),) if state.stop_requested else ()
            return _enter(state, JobStatus.RUNNING, now), (Watch(state.attempt), *again)
        case Presence.ABSENT if event.has_slot and not state.lost:
            # The intent was written and then we died: it is the same attempt, with the same ids.
            return _enter(state, JobStatus.RUNNING, now), (Deploy(state.attempt),)
        case _:
            entry = ExceptionEntry(gone(state), now, state.attempt, event.labels)
            return _enter(replace(state, pending=entry), JobStatus.FAILING, now), (Fence(state.attempt),)


def _worker_awaited(state: JobState, event: WorkerAwaited, now: float) -> JobState:
    """The job stays as it is, RECONCILING: neither watched, which is impossible, nor started a second time. It says why."""
    told = {e.failure.message for e in state.exceptions}
    if event.reason in told or state.status is not JobStatus.RECONCILING:
        return state
    entry = ExceptionEntry(Failure(FailureKind.WORKER_LOST, event.reason), now, state.attempt)
    return replace(state, exceptions=(*state.exceptions, entry)[-state.history_size :])


def gone(state: JobState) -> Failure:
    why = state.lost or f"engine {state.engine_id} was gone when the job was recovered"
    return Failure(FailureKind.ENGINE_LOST, why)


def _slot_granted(state: JobState, event: SlotGranted, now: float) -> Step:
    if state.status is not JobStatus.CREATED:
        return state, (ReleaseSlot(),)
    state = _enter(state, JobStatus.RUNNING, now)
    state = replace(
        state,
        attempt=state.attempt + 1,
        deployed=True,
        engine_id=event.engine_id,
        worker=event.worker,
        endpoint=event.endpoint,
        started_at=now,
        restart_at=None,
    )
    # The intent before the act: a reader of this record knows every id that Spark may have been given.
    return state, (Persist(), Deploy(state.attempt))


def _attempt_ended(state: JobState, event: AttemptEnded, now: float) -> Step:
    if event.attempt != state.attempt or state.status is not JobStatus.RUNNING:
        return state, ()  # CANCELLING and FAILING wait for Fenced, which carries the final result
    match event.result.state:
        case AttemptState.FINISHED:
            return _finish(replace(state, stopped=event.result.stopped), JobStatus.FINISHED, None, now)
        case AttemptState.FAILED:
            failure = event.result.failure or Failure(FailureKind.EXIT_CODE, "the attempt failed without a reason")
        case AttemptState.CANCELED:
            failure = Failure(FailureKind.KILLED, "the driver process received SIGTERM, which Firesteel did not send")
    return _failing(state, event.attempt, failure, event.labels, now)


def _failing(state: JobState, attempt: int, failure: Failure, labels: Mapping[str, str], now: float) -> Step:
    """An attempt failed. Before anything else is decided, make sure that nothing of it goes on."""
    if attempt != state.attempt or state.status is not JobStatus.RUNNING:
        return state, ()
    entry = ExceptionEntry(failure, now, attempt, labels)
    return _enter(replace(state, pending=entry), JobStatus.FAILING, now), (Fence(attempt),)


def _fenced(state: JobState, event: Fenced, now: float) -> Step:
    if event.attempt != state.attempt or state.status not in (JobStatus.FAILING, JobStatus.CANCELLING):
        return state, ()
    finished = event.result.state is AttemptState.FINISHED
    if event.result.given_up:
        state = replace(state, given_up=state.attempt)
    if state.status is JobStatus.CANCELLING:
        state = replace(state, stopped=event.result.stopped)
        return _finish(state, JobStatus.FINISHED if finished else JobStatus.CANCELED, None, now)
    if finished:
        # It had succeeded in the moment in which its engine or its driver seemed lost.
        state = replace(state, pending=None, stopped=event.result.stopped)
        return _finish(state, JobStatus.FINISHED, None, now)
    ended = PastAttempt(state.attempt, state.started_at, now, state.engine_id, state.endpoint, state.worker)
    return _decide(replace(state, past=state.past.after(ended, event.progress)), now)


def _decide(state: JobState, now: float) -> Step:
    """A failed attempt is over: try again, or give up."""
    entry = state.pending
    assert entry is not None
    state = replace(
        state,
        pending=None,
        deployed=False,
        stop_requested=False,
        failures=state.failures.failed(now, keep=remembered(state.restart)),
        exceptions=(*state.exceptions, entry)[-state.history_size :],
    )
    delay = restart_delay(state.restart, state.failures, entry.failure, movable=state.movable)
    if delay is None:
        return _finish(state, JobStatus.FAILED, entry.failure, now)
    state = _enter(replace(state, restart_at=now + delay), JobStatus.RESTARTING, now)
    return state, (Persist(), ReleaseSlot(), WaitForRestart(delay))


def _cancel(state: JobState, now: float) -> Step:
    fencing = state.status is JobStatus.FAILING  # Fenced is on its way
    state = _enter(replace(state, cancel_requested=True, pending=None), JobStatus.CANCELLING, now)
    if state.deployed:
        return state, (Persist(),) if fencing else (Persist(), Cancel(state.attempt))
    state, instructions = _finish(state, JobStatus.CANCELED, None, now)
    return state, (Persist(), *instructions)


def _finish(state: JobState, status: JobStatus, failure: Failure | None, now: float) -> Step:
    return _enter(state, status, now), (ReleaseSlot(), Finish(status, failure))
