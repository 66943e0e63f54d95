"""The JobMaster: the I/O shell around the logic of one job (`machine.py`).

One task reads the mailbox: an event, a step of the machine, its instructions in order. Whatever takes time is a task of its
own that posts an event when it is done, so a cancel is heard at any moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, assert_never

from firesteel.attempts.attempt import AttemptResult
from firesteel.concurrency import RETRIES, Backoff, OwnedTasks, retry
from firesteel.engines.record import EngineSpec
from firesteel.errors import (
    EngineError,
    EngineLostError,
    FencingError,
    FiresteelError,
    InvalidPipelineError,
    JobStateError,
    NotLeadingError,
    ResourcesUnavailableError,
    StoreError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.ha.protocols import Epoch
from firesteel.jobmaster.enrichers import FailureEnrichers
from firesteel.jobmaster.events import JobEvents, state_event
from firesteel.jobmaster.executor import AttemptExecutor, Deployment
from firesteel.jobmaster.machine import (
    AttemptEnded,
    Cancel,
    CancelRequested,
    Deploy,
    Deployed,
    DeployFailed,
    EngineLost,
    Event,
    Fence,
    Fenced,
    Finish,
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
    WorkerAwaited,
    gone,
    step,
)
from firesteel.jobmaster.past import KEPT_ATTEMPTS
from firesteel.log_context import log_context
from firesteel.metrics.declarations import ATTEMPTS, ATTEMPTS_FAILED, RESTARTS
from firesteel.metrics.registry import MetricRegistry
from firesteel.resourcemanager.gateway import ResourceManagerGateway, Slot, SlotRequest
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.types import AttemptId, Guard

T = TypeVar("T")
logger = logging.getLogger(__name__)

AWAITED_SECONDS = 10.0
SILENT_TRIES = 3
"""How often an engine that the ResourceManager no longer knows is still asked to release a session."""


async def no_environment(_submission: Submission) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class JobMasterServices:
    """The services that the JobMasters of one leadership share."""

    epoch: Epoch
    records: JobRecordStore
    resources: ResourceManagerGateway
    executor: AttemptExecutor
    requirements: Callable[[Submission], Coroutine[Any, Any, SlotRequest]]
    """What a job needs to run; reads its script, if it is one."""
    now: Callable[[], float]
    guard: Guard
    """Raises FencingError when it is not certain, right now, that this node leads: asked before every side effect (I7)."""
    enrichers: FailureEnrichers
    history_size: int
    environment: Callable[[Submission], Awaitable[Mapping[str, str]]] = no_environment
    """Variables that the driver of a job has beside the usual ones. They may be secret."""
    events: JobEvents = field(default_factory=JobEvents)
    backoff: Backoff = RETRIES
    metrics: MetricRegistry = field(default_factory=MetricRegistry)


class JobMaster:
    """Drives one job from its first attempt, or from where an earlier leader left it, to its end."""

    def __init__(self, submission: Submission, record: Mapping[str, Any] | None, services: JobMasterServices) -> None:
        graph = submission.graph
        restart = graph.settings.restart
        self.submission = submission
        state = (
            JobState.of_record(restart, services.history_size, record).taken_over(services.epoch, services.now())
            if record is not None
            else JobState(restart, services.history_size, epoch=services.epoch)
        )
        # What a program does besides its outputs is its own affair: it is run again only if its strategy says so.
        self.state = replace(state, movable=graph.script is None and graph.interactive is None)
        for past in self.state.past.attempts:
            services.executor.place(AttemptId(submission.job_id, past.number), past.worker)
        if self.state.attempt and self.state.deployed:
            services.executor.place(AttemptId(submission.job_id, self.state.attempt), self.state.worker)
        self._known = record is not None
        self._services = services
        self._mailbox: asyncio.Queue[tuple[Event, asyncio.Future[None] | None]] = asyncio.Queue()
        self._tasks = OwnedTasks(f"job-{submission.job_id[:8]}", self._broke)
        self._slot: Slot | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._outcome: asyncio.Future[Finish] = asyncio.get_running_loop().create_future()
        self._over = False
        self._log_fields: MutableMapping[str, str] = {}
        self._loss: asyncio.Task[Any] | None = None
        self.reclaimed = asyncio.Event()
        """Set once a recovered job holds the slot that it had before, or does not need it."""
        self.reconciled = asyncio.Event()
        """Set once it is known what became of a recovered job, and acted on; at once for a new one."""

    # -- what others ask ------------------------------------------------------------------------------------------

    async def cancel(self, *, keep_checkpoint: bool | None = None) -> None:
        """Returns once the wish is durable: from then on the job will stop and never run again (I10)."""
        await self._ask(CancelRequested(keep_checkpoint))

    async def stop(self) -> None:
        """Returns once the wish is durable. Only a job whose attempt runs can stop."""
        if self.state.status is not JobStatus.RUNNING:
            raise JobStateError(
                f"job {self.submission.job_id} is {self.state.status}; only running jobs can be stopped"
            )
        await self._ask(StopRequested())

    async def _ask(self, event: Event) -> None:
        if self._over:
            raise self._refusal()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mailbox.put_nowait((event, answer))
        await answer

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self) -> Finish:
        """Returns when the job has ended for good. Cancelling it lets go of the job, which runs on without us."""
        with log_context(epoch=str(self._services.epoch), job=self.submission.job_id) as self._log_fields:
            return await self._run()

    async def _run(self) -> Finish:
        try:
            self._tasks.start(self._read(), "mailbox")
            if self._known:
                self._tasks.start(self._recover(), "recover")
            else:
                self.reclaimed.set()
                self.reconciled.set()
                self._post(Started())
            await asyncio.wait([self._outcome])
            return self._outcome.result()
        finally:
            self._over = True
            self.reclaimed.set()
            self.reconciled.set()
            await self._tasks.close()
            self._release_slot()
            self._refuse_askers()
            if not self.state.status.terminal:
                logger.info("job %s: %s → %s", self.submission.job_id, self.state.status, JobStatus.SUSPENDED)
                self.state = replace(self.state, status=JobStatus.SUSPENDED)
            if not self._outcome.done():
                self._outcome.cancel()
            elif not self._outcome.cancelled():
                self._outcome.exception()  # reported to our caller, if it still waits

    async def _recover(self) -> None:
        state = self.state
        presence, has_slot = None, False
        # A job that is to be cancelled needs no slot any more, and must not wait for an engine that may be silent.
        if state.deployed and not state.cancel_requested:
            attempt = self._attempt(state.attempt)
            waiting = self._tasks.start(self._say_what_is_awaited(), "worker")
            slot = await self._services.resources.reclaim_slot(
                await self._earlier_request(), state.engine_id, state.worker
            )
            has_slot = slot is not None
            if slot is not None:
                self._hold(slot, state.attempt)
            self.reclaimed.set()  # what follows may take long, and no other job depends on it
            presence = await self._patiently(lambda: self._services.executor.find(attempt), f"looking for {attempt}")
            waiting.cancel()
        self.reclaimed.set()
        self._post(Recovered(has_slot, presence, {} if has_slot else await self._labels(gone(state))))

    async def _say_what_is_awaited(self) -> None:
        """A worker that lives comes to a new leader by itself, in a moment."""
        await asyncio.sleep(AWAITED_SECONDS)
        self._post(
            WorkerAwaited(
                f"attempt {self.state.attempt} is on worker {self.state.worker}, which has not come to this leader yet; it may "
                "run on. `firesteel worker list` shows when it will be given up"
            )
        )

    async def _earlier_request(self) -> SlotRequest:
        try:
            request = await self._services.requirements(self.submission)
        except (FiresteelError, OSError) as error:
            # Its script may be gone by now; what runs does not care, and the engine it runs on is known.
            logger.warning("the requirements of job %s can no longer be determined: %s", self.submission.job_id, error)
            request = SlotRequest(self.submission.job_id, EngineSpec(master="local[1]"))
        # What runs is what was started, even if its script has changed since.
        return replace(request, classic=self.state.engine_id is None and not request.driver_only)

    async def _read(self) -> None:
        while True:
            event, answer = await self._mailbox.get()
            try:
                earlier, before = self.state, self.state.status
                self.state, instructions = step(self.state, event, self._services.now())
                self._measure(earlier)
                self._log_fields["attempt"] = str(self.state.attempt or "")
                if self.state.status is not before:
                    logger.info("job %s: %s → %s", self.submission.job_id, before, self.state.status)
                    self._tell()
                await self._perform(instructions, answer)
                if before is JobStatus.RECONCILING is not self.state.status:
                    self.reconciled.set()
            except BaseException as error:
                if answer is not None and not answer.done():
                    answer.set_exception(error if isinstance(error, Exception) else self._refusal())
                raise

    def _measure(self, earlier: JobState) -> None:
        """What of the step counts for the node's metrics."""
        metrics = self._services.metrics
        if self.state.failures is not earlier.failures and self.state.exceptions:
            metrics.count(ATTEMPTS_FAILED, self.state.exceptions[-1].failure.kind.value)
        if self.state.restarts > earlier.restarts:
            metrics.count(RESTARTS)

    async def _perform(self, instructions: tuple[Instruction, ...], answer: asyncio.Future[None] | None) -> None:
        for instruction in instructions:
            await self._do(instruction)
            if answer is not None and isinstance(instruction, Persist) and not answer.done():
                answer.set_result(None)
        if answer is not None and not answer.done():
            answer.set_result(None)

    async def _do(self, instruction: Instruction) -> None:
        self._services.guard()
        match instruction:
            case Persist():
                await self._persist()
            case RequestSlot():
                self._waiting = self._tasks.start(self._request_slot(), "slot")
            case ReleaseSlot():
                self._release_slot()
            case Deploy():
                self._tasks.start(self._deploy(instruction.attempt), "deploy")
            case Watch():
                self._tasks.start(self._watch(instruction.attempt), "watch")
            case Cancel():
                self._tasks.start(self._cancel(instruction.attempt), "cancel")
            case Fence():
                self._tasks.start(self._fence(instruction.attempt), "fence")
            case StopAttempt():
                self._tasks.start(self._stop(instruction.attempt), "stop")
            case WaitForRestart():
                self._tasks.start(self._wait_for_restart(instruction.delay), "restart")
            case Finish():
                self._outcome.set_result(instruction)
            case _:
                assert_never(instruction)

    async def _persist(self) -> None:
        """A store that is full or away stops this job's decisions, not its driver; we go on when it is back."""
        record = self.state.record()
        await retry(
            lambda: self._services.records.put(self.submission.job_id, record, epoch=self._services.epoch),
            self._services.backoff,
            on=(StoreError,),
            but_not=(FencingError,),
            what=f"writing the record of job {self.submission.job_id}",
        )

    # -- what takes time ------------------------------------------------------------------------------------------

    async def _request_slot(self) -> None:
        try:
            request = await self._services.requirements(self.submission)
            slot = await self._services.resources.request_slot(request)
        except (FencingError, asyncio.CancelledError):
            raise
        except (FiresteelError, OSError) as error:
            failure = _refusal(error)
            self._post(SlotRefused(failure, await self._labels(failure)))
            return
        self._waiting = None
        self._hold(slot, self.state.attempt + 1)
        if (engine := slot.engine) is None:
            self._post(SlotGranted(None, slot.worker))
        else:
            self._post(SlotGranted(engine.engine_id, slot.worker, engine.address))

    async def _deploy(self, number: int) -> None:
        engine = self._slot.engine if self._slot is not None else None
        self._services.guard()
        submission = self.submission
        self._services.executor.place(self._attempt(number), self.state.worker)
        deployment = Deployment(
            self._attempt(number),
            submission.graph,
            engine,
            owner=submission.owner,
            restricted=submission.restricted,
            given_up=self.state.given_up,
        )
        try:
            deployment = replace(deployment, environment=await self._services.environment(submission))
            self._services.guard()
            await self._services.executor.start(deployment)
        except FencingError:
            raise
        except (FiresteelError, OSError) as error:
            failure = Failure(
                FailureKind.ENGINE_START if isinstance(error, EngineError) else FailureKind.EXIT_CODE,
                f"the attempt could not be started: {error}",
            )
            self._post(DeployFailed(number, failure, await self._labels(failure)))
        else:
            self._services.metrics.count(ATTEMPTS)
            self._post(Deployed(number))
            if number > KEPT_ATTEMPTS:
                await self._patiently(
                    lambda: self._services.executor.prune(self.submission.job_id, KEPT_ATTEMPTS), "removing old logs"
                )

    async def _watch(self, number: int) -> None:
        attempt = self._attempt(number)
        result = await self._patiently(lambda: self._services.executor.wait(attempt), f"waiting for {attempt}")
        if result.failure is not None and result.failure.kind is FailureKind.ENGINE_LOST:
            # The driver notices before the next heartbeat: the next attempt must not be given the same engine.
            await self._suspect()
        labels = await self._labels(result.failure) if result.failure else {}
        self._post(AttemptEnded(number, result, labels))

    async def _cancel(self, number: int) -> None:
        try:
            await self._services.executor.cancel(self._attempt(number), guard=self._services.guard)
        except FencingError:
            raise
        except (FiresteelError, OSError) as error:
            logger.warning("attempt %d of job %s is fenced immediately: %s", number, self.submission.job_id, error)
        await self._fence(number)

    async def _stop(self, number: int) -> None:
        attempt = self._attempt(number)
        await self._patiently(lambda: self._services.executor.stop(attempt), f"stopping {attempt}")

    async def _patiently(self, action: Callable[[], Awaitable[T]], what: str) -> T:
        """A disk that is full or a descriptor that is missing delays us; it must not change what becomes of the job."""
        errors = (FiresteelError, OSError)
        return await retry(action, self._services.backoff, on=errors, but_not=(FencingError,), what=what)

    async def _fence(self, number: int) -> None:
        """Until it is certain that the attempt does nothing any more."""

        silent = 0

        async def once() -> AttemptResult:
            nonlocal silent
            guard = self._services.guard
            try:
                return await self._services.executor.fence(self._attempt(number), guard=guard)
            except EngineLostError:
                # Its session may still run there. An engine that does not answer is ended, and then nothing runs.
                silent += 1
                if not await self._suspect() and silent >= SILENT_TRIES:
                    # An engine of ours is surely ended by now. One that we are only attached to is out of reach, and
                    # nothing can be done about what it does there; the job must not wait for it forever.
                    return await self._services.executor.fence(self._attempt(number), unreachable=True, guard=guard)
                raise

        result = await retry(
            once,
            self._services.backoff,
            on=(FiresteelError, OSError),
            but_not=(FencingError,),
            what=f"fencing attempt {number} of job {self.submission.job_id}",
        )
        self._post(Fenced(number, result, await self._progress(number)))

    async def _progress(self, number: int) -> Mapping[str, Any]:
        """How far an attempt that is over was. It is only shown, so nothing waits for it that cannot be read."""
        try:
            return await self._services.executor.progress(self._attempt(number))
        except (FiresteelError, OSError) as error:
            logger.warning("the progress of attempt %d of job %s is unknown: %s", number, self.submission.job_id, error)
            return {}

    async def _suspect(self) -> bool:
        """Check the engine of the attempt; False when it is gone."""
        engine_id = self.state.engine_id
        return engine_id is not None and await self._services.resources.suspect(engine_id)

    async def _wait_for_restart(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._post(RestartDue())

    async def _await_loss(self, slot: Slot, number: int) -> None:
        reason = await slot.lost
        failure = Failure(FailureKind.WORKER_LOST if slot.worker_lost else FailureKind.ENGINE_LOST, reason)
        self._post(EngineLost(number, reason, await self._labels(failure), failure.kind))

    # -- small things ---------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """What the job is now. Its end is for the Dispatcher to tell, who makes it durable first (I5)."""
        state = self.state
        if not state.status.terminal:
            failure = state.pending.failure if state.pending else None
            now = self._services.now()
            last = state.story.last
            event = state_event(
                self.submission.job_id,
                state.status,
                now,
                attempt=state.attempt,
                failure=failure,
                cause=last.cause if last is not None else "",
            )
            self._services.events.publish(event)

    def _hold(self, slot: Slot, number: int) -> None:
        self._slot = slot
        self._loss = self._tasks.start(self._await_loss(slot, number), "engine")

    def _release_slot(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._loss is not None:
            self._loss.cancel()
            self._loss = None
        if self._slot is not None:
            self._services.resources.release_slot(self._slot)
            self._slot = None

    async def _labels(self, failure: Failure) -> dict[str, str]:
        return await self._services.enrichers.labels_of(failure)

    def _attempt(self, number: int) -> AttemptId:
        return AttemptId(self.submission.job_id, number)

    def _post(self, event: Event) -> None:
        self._mailbox.put_nowait((event, None))

    def _broke(self, error: BaseException) -> None:
        """A task of ours failed unexpectedly: the runner decides what becomes of the job."""
        if not self._outcome.done():
            self._outcome.set_exception(error)

    def _refuse_askers(self) -> None:
        while not self._mailbox.empty():
            _, answer = self._mailbox.get_nowait()
            if answer is not None and not answer.done():
                answer.set_exception(self._refusal())

    def _refusal(self) -> FiresteelError:
        ended = self._outcome.done() and not self._outcome.cancelled() and self._outcome.exception() is None
        if ended:
            return JobStateError(f"job {self.submission.job_id} is {self.state.status}; it has ended for good")
        return NotLeadingError("this node is no longer responsible for the job; ask the new leader")


def _refusal(error: Exception) -> Failure:
    match error:
        case InvalidPipelineError() | ResourcesUnavailableError():
            return Failure(FailureKind.INVALID_PIPELINE, str(error))
        case _:
            return Failure(FailureKind.ENGINE_START, str(error))
