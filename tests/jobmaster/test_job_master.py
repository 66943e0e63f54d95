"""The JobMaster with services that do as they are told, in virtual time: what hangs fails at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from tests.simulation.virtual_time import run

from firesteel.concurrency import Backoff
from firesteel.driver.attempt import AttemptResult, AttemptState
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import (
    EngineLostError,
    EngineStartError,
    FencingError,
    FiresteelError,
    InvalidPipelineError,
    JobStateError,
    NotLeadingError,
    Problem,
    ResourcesUnavailableError,
    StoreBrokenError,
    StoreUnavailableError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch
from firesteel.jobgraph.model import FixedDelayRestart, JobGraph
from firesteel.jobmaster.enrichers import type_label
from firesteel.jobmaster.executor import Deployment, Guard, Presence, certain
from firesteel.jobmaster.machine import Finish, JobState
from firesteel.jobmaster.master import JobMaster, JobMasterServices
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.resourcemanager.gateway import Slot, SlotRequest
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission, digest_of
from firesteel.stores.job_records import JobRecordStore
from firesteel.stores.job_results import JobResultStore
from firesteel.types import AttemptId, JobID

JOB = JobID("0" * 31 + "1")
EPOCH = Epoch(1)
SPEC = EngineSpec("local[1]")
FINISHED = AttemptResult(AttemptState.FINISHED)
USER = Failure(FailureKind.USER_CODE, "division by zero", vertex="orders")
FAILED = AttemptResult(AttemptState.FAILED, USER)
CANCELED = AttemptResult(AttemptState.CANCELED)
LONG = 1000.0
"""Virtual seconds in which everything that can happen has happened."""


def opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class Store(MemoryStateStore):
    """Writes wait for `gate`, and raise what stands in `errors`."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.newest_epoch = EPOCH
        self.gate = opened()
        self.errors: list[Exception] = []
        self.log = log

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        version = await super().put(path, value, epoch=epoch, expected=expected)
        self.log.append("persist")
        return version


class Resources:
    """Engines by number; a request waits for `gate`."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.gate = opened()
        self.reclaim_gate = opened()
        self.errors: list[Exception] = []
        self.slots: list[Slot] = []
        self.reclaimable = True
        self.classic = False

    def _slot(self, request: SlotRequest) -> Slot:
        engine = None if self.classic else EngineRecord(f"e{len(self.slots) + 1}", SPEC, "localhost", 1)
        slot = Slot(request.job_id, engine)
        self.slots.append(slot)
        return slot

    async def request_slot(self, request: SlotRequest) -> Slot:
        self.log.append("request")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.log.append("request given up")
            raise
        if self.errors:
            raise self.errors.pop(0)
        return self._slot(request)

    async def reclaim_slot(self, request: SlotRequest, engine_id: str | None) -> Slot | None:
        self.log.append(f"reclaim {engine_id}")
        await self.reclaim_gate.wait()
        return self._slot(request) if self.reclaimable else None

    def expect(self, engine_ids: Sequence[str | None]) -> None: ...

    def recovered(self) -> None: ...

    def release_slot(self, slot: Slot) -> None:
        self.log.append(f"release e{self.slots.index(slot) + 1}")

    async def suspect(self, engine_id: str) -> bool:
        self.log.append(f"suspect {engine_id}")
        return not any(s.lost.done() for s in self.slots)


class Executor:
    """Attempts that end when they are told to; everything that is asked is in the log."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.start_gate = opened()
        self.fence_gate = opened()
        self.find_gate = opened()
        self.start_errors: list[Exception] = []
        self.cancel_errors: list[Exception] = []
        self.fence_errors: list[Exception] = []
        self.stop_errors: list[Exception] = []
        self.fenced: AttemptResult = CANCELED
        self.presence = Presence.RUNNING
        self.left: list[int] = []
        self.engines: list[str | None] = []
        self._ends: dict[int, asyncio.Future[AttemptResult]] = {}

    def end(self, number: int, result: AttemptResult) -> None:
        self._end(number).set_result(result)

    def _end(self, number: int) -> asyncio.Future[AttemptResult]:
        return self._ends.setdefault(number, asyncio.get_running_loop().create_future())

    async def start(self, deployment: Deployment) -> None:
        self.log.append(f"start {deployment.attempt.number}")
        self.engines.append(deployment.engine.engine_id if deployment.engine else None)
        await self.start_gate.wait()
        if self.start_errors:
            raise self.start_errors.pop(0)

    async def find(self, attempt: AttemptId) -> Presence:
        await self.find_gate.wait()
        return self.presence

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        self.log.append(f"watch {attempt.number}")
        return await asyncio.shield(self._end(attempt.number))

    async def cancel(self, attempt: AttemptId, *, guard: Guard = certain) -> None:
        self.log.append(f"cancel {attempt.number}")
        if self.cancel_errors:
            raise self.cancel_errors.pop(0)

    async def stop(self, attempt: AttemptId) -> None:
        self.log.append(f"stop {attempt.number}")
        if self.stop_errors:
            raise self.stop_errors.pop(0)

    async def fence(self, attempt: AttemptId, *, unreachable: bool = False, guard: Guard = certain) -> AttemptResult:
        guard()
        self.log.append(f"fence {attempt.number}{' unreachable' if unreachable else ''}")
        await self.fence_gate.wait()
        if self.fence_errors and not unreachable:
            raise self.fence_errors.pop(0)
        return self.fenced

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        return {}

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        return {}

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        return self.left

    async def prune(self, job_id: JobID, keep: int) -> None:
        self.log.append(f"prune to {keep}")

    async def forget(self, attempt: AttemptId) -> None: ...


class Desk:
    """One job, its JobMaster and what that works with."""

    def __init__(self, *, restarts: int = 5, history_size: int = 16) -> None:
        self.log: list[str] = []
        self.store = Store(self.log)
        self.resources = Resources(self.log)
        self.executor = Executor(self.log)
        self.leads = True
        self.requirement_errors: list[Exception] = []
        restart = {"type": "fixed-delay", "attempts": restarts, "delay": "5 s"} if restarts else {"type": "none"}
        graph = JobGraph.model_validate(
            {
                "name": "orders",
                "mode": "streaming",
                "settings": {"restart": restart},
                "vertices": [
                    {"kind": "source", "name": "i", "format": "rate"},
                    {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": "/y"},
                ],
            }
        )
        self.submission = Submission(JOB, graph, 0.0, digest_of(graph))
        self.services = JobMasterServices(
            epoch=EPOCH,
            records=JobRecordStore(self.store),
            resources=self.resources,
            executor=self.executor,
            requirements=self._requirements,
            now=asyncio.get_running_loop().time,
            guard=self._guard,
            enrichers=(type_label, lambda failure: {"where": failure.vertex or "nowhere"}),
            history_size=history_size,
            backoff=Backoff(0.2, 5.0),
        )
        self.task: asyncio.Task[Finish] | None = None

    async def _requirements(self, submission: Submission) -> SlotRequest:
        if self.requirement_errors:
            raise self.requirement_errors.pop(0)
        return SlotRequest(submission.job_id, SPEC)

    def _guard(self) -> None:
        if not self.leads:
            raise FencingError("does not lead")

    def begin(self, record: Mapping[str, Any] | None = None) -> JobMaster:
        self.master = JobMaster(self.submission, record, self.services)
        self.task = asyncio.get_running_loop().create_task(self.master.run())
        return self.master

    async def until(self, word: str, times: int = 1) -> None:
        """Until it stands in the log, so often."""
        await self.meet(lambda: self.log.count(word) >= times, word)

    async def meet(self, condition: Callable[[], bool], what: str = "") -> None:
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"it never came to {what!r}: {self.log}, {self.master.state}")

    async def finish(self) -> Finish:
        assert self.task is not None
        return await asyncio.wait_for(self.task, LONG)

    async def record(self) -> dict[str, Any] | None:
        return await self.services.records.get(JOB)

    async def let_go(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()

    def at(self, word: str) -> int:
        return self.log.index(word)


def play(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In virtual time, in which threads would be a source of chance: what is for them is done at once."""

    async def inside() -> None:
        loop = asyncio.get_running_loop()

        def in_place(_: object, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
            done = loop.create_future()
            try:
                done.set_result(function(*args))
            except Exception as error:
                done.set_exception(error)
            return done

        loop.run_in_executor = in_place  # type: ignore[assignment,method-assign]
        await main()

    run(inside)


def record_of(**more: Any) -> dict[str, Any]:
    """What an earlier leader wrote of a job whose first attempt runs."""
    return {**JobState(FixedDelayRestart(), attempt=1, deployed=True, engine_id="e9").record(), **more}


# -- a life without trouble -------------------------------------------------------------------------------------------


def test_job_that_finishes() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin()
        await desk.until("watch 1")
        assert desk.master.state.status is JobStatus.RUNNING
        desk.executor.end(1, FINISHED)
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.log == ["request", "persist", "start 1", "watch 1", "release e1"]
        assert desk.executor.engines == ["e1"]

    play(main)


def test_classic_driver_has_no_engine() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.classic = True
        desk.begin()
        await desk.until("watch 1")
        assert desk.executor.engines == [None]
        assert desk.master.state.engine_id is None

    play(main)


def test_intent_is_durable_before_the_start() -> None:
    async def main() -> None:
        desk = Desk()
        desk.store.gate.clear()
        desk.begin()
        await asyncio.sleep(LONG)
        assert "start 1" not in desk.log
        desk.store.gate.set()
        await desk.until("start 1")
        record = await desk.record()
        assert record is not None
        assert (record["attempt"], record["deployed"], record["engine_id"]) == (1, True, "e1")

    play(main)


# -- cancel -----------------------------------------------------------------------------------------------------------


async def asked(desk: Desk) -> asyncio.Task[None]:
    """A cancel that somebody waits for, while the store takes nothing."""
    desk.store.gate.clear()
    answer = asyncio.get_running_loop().create_task(desk.master.cancel())
    await asyncio.sleep(LONG)
    return answer


async def waiting_for_a_slot(desk: Desk) -> None:
    desk.resources.gate.clear()
    desk.begin()
    await desk.until("request")


async def deploying(desk: Desk) -> None:
    desk.executor.start_gate.clear()
    desk.begin()
    await desk.until("start 1")


async def running(desk: Desk) -> None:
    desk.begin()
    await desk.until("watch 1")


async def fencing(desk: Desk) -> None:
    await running(desk)
    desk.executor.fence_gate.clear()
    desk.executor.end(1, FAILED)
    await desk.until("fence 1")


async def restarting(desk: Desk) -> None:
    await running(desk)
    desk.executor.end(1, FAILED)
    await desk.meet(lambda: desk.master.state.status is JobStatus.RESTARTING)


async def reconciling(desk: Desk) -> None:
    desk.executor.find_gate.clear()
    desk.begin(record_of())
    await desk.until("reclaim e9")


Stage = Callable[[Desk], Coroutine[Any, Any, None]]
STAGES: list[tuple[Stage, list[str]]] = [
    (waiting_for_a_slot, []),
    (deploying, ["cancel 1", "fence 1"]),
    (running, ["cancel 1", "fence 1"]),
    (fencing, []),
    (restarting, []),
    (reconciling, ["cancel 1", "fence 1"]),
]


@pytest.mark.parametrize(("stage", "acts"), STAGES, ids=[s[0].__name__ for s in STAGES])
def test_cancel_is_durable_before_it_is_acknowledged(stage: Stage, acts: list[str]) -> None:
    """At any moment; and from then on nothing of the job begins any more (I10)."""

    async def main() -> None:
        desk = Desk()
        await stage(desk)
        before = len(desk.log)
        answer = await asked(desk)
        assert not answer.done()
        assert not [w for w in desk.log[before:] if w.startswith(("cancel", "fence"))]
        desk.store.gate.set()
        await asyncio.wait_for(answer, LONG)
        record = await desk.record()
        assert record is not None
        assert record["cancel_requested"] is True
        desk.executor.fence_gate.set()
        assert await desk.finish() == Finish(JobStatus.CANCELED)
        after = desk.log[before:]
        assert [w for w in after if w.startswith(("cancel", "fence"))] == acts
        assert not [w for w in after if w.startswith(("start", "watch", "request "))] or stage is waiting_for_a_slot
        assert desk.log.count("start 2") == 0
        for number in range(1, len(desk.resources.slots) + 1):
            assert desk.log.count(f"release e{number}") >= 1

    play(main)


def test_cancel_gives_the_place_in_the_queue_up() -> None:
    async def main() -> None:
        desk = Desk()
        await waiting_for_a_slot(desk)
        await desk.master.cancel()
        await desk.finish()
        assert desk.log == ["request", "persist", "request given up"]

    play(main)


def test_cancel_of_a_job_whose_outputs_were_being_committed() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fenced = AttemptResult(AttemptState.FINISHED, stopped=True)
        await desk.master.cancel()
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.master.state.stopped

    play(main)


def test_cancel_twice_is_one_cancel() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_gate.clear()
        await asyncio.gather(desk.master.cancel(), desk.master.cancel())
        await asyncio.wait_for(desk.master.cancel(), LONG)
        desk.executor.fence_gate.set()
        await desk.finish()
        assert desk.log.count("cancel 1") == 1
        assert desk.log.count("persist") == 2

    play(main)


def test_cancel_of_an_ended_job() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.end(1, FINISHED)
        await desk.finish()
        with pytest.raises(JobStateError, match=f"job {JOB} is FINISHED; it has ended for good"):
            await desk.master.cancel()

    play(main)


def test_cancel_that_the_executor_cannot_begin_still_ends_in_a_fence() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.cancel_errors = [OSError(28, "No space left on device")]
        await desk.master.cancel()
        assert await desk.finish() == Finish(JobStatus.CANCELED)

    play(main)


# -- stop -------------------------------------------------------------------------------------------------------------


def test_stop_is_durable_before_the_attempt_is_told() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.gate.clear()
        answer = asyncio.get_running_loop().create_task(desk.master.stop())
        await asyncio.sleep(LONG)
        assert not answer.done()
        assert "stop 1" not in desk.log
        desk.store.gate.set()
        await asyncio.wait_for(answer, LONG)
        await desk.until("stop 1")
        desk.executor.end(1, AttemptResult(AttemptState.FINISHED, stopped=True))
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.master.state.stopped

    play(main)


def test_stop_while_deploying_reaches_the_attempt_once_it_is_there() -> None:
    async def main() -> None:
        desk = Desk()
        await deploying(desk)
        await desk.master.stop()
        desk.executor.start_gate.set()
        await desk.until("watch 1")
        await desk.until("stop 1", times=2)

    play(main)


@pytest.mark.parametrize("stage", [waiting_for_a_slot, fencing, restarting], ids=lambda s: s.__name__)
def test_stop_of_a_job_that_does_not_run(stage: Stage) -> None:
    async def main() -> None:
        desk = Desk()
        await stage(desk)
        with pytest.raises(JobStateError, match="only running jobs can be stopped"):
            await desk.master.stop()

    play(main)


def test_stop_that_cannot_be_told_does_not_break_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.stop_errors = [OSError(28, "No space left on device")]
        with contextlib.suppress(OSError, FiresteelError):
            await desk.master.stop()
        desk.executor.end(1, FINISHED)
        assert await desk.finish() == Finish(JobStatus.FINISHED)

    play(main)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_lost_engine_is_fenced_before_the_next_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_gate.clear()
        desk.resources.slots[0].lost.set_result("engine e1 was lost: its process is gone")
        await desk.until("fence 1")
        await asyncio.sleep(LONG)
        assert desk.log.count("request") == 1
        desk.executor.fence_gate.set()
        await desk.until("watch 2")
        assert desk.log[desk.at("fence 1") :] == [
            "fence 1",
            "persist",
            "release e1",
            "request",
            "persist",
            "start 2",
            "watch 2",
        ]
        assert desk.executor.engines == ["e1", "e2"]
        (entry,) = desk.master.state.exceptions
        assert entry.failure == Failure(FailureKind.ENGINE_LOST, "engine e1 was lost: its process is gone")

    play(main)


def test_restart_waits_for_its_delay() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        loop = asyncio.get_running_loop()
        desk.executor.end(1, FAILED)
        await desk.until("fence 1")
        failed = loop.time()
        await desk.until("request", times=2)
        assert 4.8 <= loop.time() - failed <= 5.2

    play(main)


def test_engine_that_does_not_answer_is_suspected_until_the_fence_holds() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_errors = [EngineLostError("it does not answer"), EngineLostError("still not")]
        desk.executor.end(1, FAILED)
        await desk.until("watch 2")
        acts = [w for w in desk.log if w.startswith(("fence", "suspect", "start"))]
        assert acts == ["start 1", "fence 1", "suspect e1", "fence 1", "suspect e1", "fence 1", "start 2"]

    play(main)


def test_engine_that_a_driver_found_lost_is_looked_at_before_the_next_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        lost = Failure(FailureKind.ENGINE_LOST, "the connection was refused")
        desk.executor.end(1, AttemptResult(AttemptState.FAILED, lost))
        await desk.until("watch 2")
        assert desk.log.count("suspect e1") == 1
        assert desk.at("suspect e1") < desk.at("fence 1") < desk.at("start 2")

    play(main)


@pytest.mark.parametrize("error", [FiresteelError("held by a process"), OSError(5, "Input/output error")])
def test_fence_that_fails_otherwise_is_repeated_and_suspects_nobody(error: Exception) -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_errors = [error]
        await desk.master.cancel()
        assert await desk.finish() == Finish(JobStatus.CANCELED)
        assert desk.log.count("fence 1") == 2
        assert not [w for w in desk.log if w.startswith("suspect")]

    play(main)


def test_failed_start_is_fenced_and_tried_again() -> None:
    """It may have started all the same (F16)."""

    async def main() -> None:
        desk = Desk()
        desk.executor.start_errors = [FiresteelError("the zygote is gone"), OSError(28, "No space left on device")]
        desk.begin()
        await desk.until("watch 3")
        acts = [w for w in desk.log if w.startswith(("start", "fence", "watch"))]
        assert acts == ["start 1", "fence 1", "start 2", "fence 2", "start 3", "watch 3"]
        assert [e.failure.message for e in desk.master.state.exceptions] == [
            "the attempt could not be started: the zygote is gone",
            "the attempt could not be started: [Errno 28] No space left on device",
        ]

    play(main)


def test_labels_stand_in_the_history_which_is_bounded() -> None:
    async def main() -> None:
        desk = Desk(history_size=2)
        desk.begin()
        for number in range(1, 5):
            await desk.until(f"watch {number}")
            failure = Failure(FailureKind.DATA, f"row {number}", vertex=f"v{number}")
            desk.executor.end(number, AttemptResult(AttemptState.FAILED, failure))
        await desk.until("watch 5")
        kept = desk.master.state.exceptions
        assert [e.failure.message for e in kept] == ["row 3", "row 4"]
        assert [dict(e.labels) for e in kept] == [
            {"type": "DATA_ERROR", "where": "v3"},
            {"type": "DATA_ERROR", "where": "v4"},
        ]
        record = await desk.record()
        assert record is not None
        assert len(record["exceptions"]) == 2
        assert len(record["failures"]["times"]) == 4, "what the strategy counts is not what people look at"

    play(main)


def test_strategy_gives_up() -> None:
    async def main() -> None:
        desk = Desk(restarts=1)
        desk.begin()
        for number in (1, 2):
            await desk.until(f"watch {number}")
            desk.executor.end(number, FAILED)
        assert await desk.finish() == Finish(JobStatus.FAILED, USER)
        assert desk.log[-2:] == ["fence 2", "release e2"]

    play(main)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ResourcesUnavailableError("no engine has 99 cores"), FailureKind.INVALID_PIPELINE),
        (InvalidPipelineError([Problem("the script is no valid Python")]), FailureKind.INVALID_PIPELINE),
        (EngineStartError("it died at start"), FailureKind.ENGINE_START),
    ],
)
def test_slot_that_is_refused(error: Exception, kind: FailureKind) -> None:
    """What no engine could ever run is given up at once; an engine that did not come up is tried again."""

    async def main() -> None:
        desk = Desk()
        desk.resources.errors = [error]
        desk.begin()
        if kind is FailureKind.ENGINE_START:
            await desk.until("watch 1")
            (entry,) = desk.master.state.exceptions
            assert entry.failure == Failure(kind, "it died at start")
            assert entry.labels["type"] == "ENGINE_LOST"
        else:
            assert await desk.finish() == Finish(JobStatus.FAILED, Failure(kind, str(error)))
            assert not [w for w in desk.log if w.startswith(("start", "fence"))]

    play(main)


def test_engine_that_is_lost_after_it_was_given_back_does_not_concern_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        await restarting(desk)
        if not (lost := desk.resources.slots[0].lost).done():
            lost.set_result("engine e1 was lost")
        await desk.until("watch 2")
        await asyncio.sleep(LONG)
        assert desk.master.state.status is JobStatus.RUNNING
        assert "fence 2" not in desk.log

    play(main)


def test_restarts_leave_nothing_behind() -> None:
    async def main() -> None:
        desk = Desk(restarts=50)
        await running(desk)
        before = len(desk.master._tasks)
        for number in range(1, 21):
            await desk.until(f"watch {number}")
            desk.executor.end(number, FAILED)
        await desk.until("watch 21")
        assert len(desk.master._tasks) <= before + 1

    play(main)


# -- the store --------------------------------------------------------------------------------------------------------


def test_store_that_is_away_or_full_delays_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        desk.store.errors = [StoreUnavailableError("busy"), StoreBrokenError("the disk is full")] * 5
        desk.begin()
        await desk.until("watch 1")
        assert desk.log == ["request", "persist", "start 1", "watch 1"]

    play(main)


def test_store_that_is_full_does_not_touch_the_attempt_and_delays_only_decisions() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.errors = [StoreBrokenError("the disk is full") for _ in range(20)]
        desk.executor.end(1, FAILED)
        await desk.until("fence 1")
        await asyncio.sleep(20)
        assert desk.log[-1] == "fence 1"
        await desk.until("watch 2")
        assert desk.log[desk.at("fence 1") + 1] == "persist"

    play(main)


def test_cancel_is_acknowledged_when_the_store_is_back() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.errors = [StoreUnavailableError("busy") for _ in range(10)]
        await asyncio.wait_for(desk.master.cancel(), LONG)
        assert not desk.store.errors
        assert await desk.finish() == Finish(JobStatus.CANCELED)

    play(main)


def test_write_of_an_old_leader_ends_its_work_on_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        desk.store.newest_epoch = Epoch(2)
        desk.begin()
        with pytest.raises(FencingError):
            await desk.finish()
        assert not [w for w in desk.log if w.startswith("start")]

    play(main)


@pytest.mark.parametrize("act", ["start", "fence", "cancel", "stop"])
def test_nothing_is_done_by_a_node_that_may_not_lead(act: str) -> None:
    async def main() -> None:
        desk = Desk()
        if act == "start":
            await waiting_for_a_slot(desk)
            desk.leads = False
            desk.resources.gate.set()
        else:
            await running(desk)
            desk.leads = False
            if act == "fence":
                desk.executor.end(1, FAILED)
            else:
                with pytest.raises(FencingError):
                    await (desk.master.cancel() if act == "cancel" else desk.master.stop())
        with pytest.raises(FencingError):
            await desk.finish()
        assert f"{act} 1" not in desk.log

    play(main)


# -- letting go -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [s[0] for s in STAGES], ids=lambda s: s.__name__)
def test_letting_go_leaves_the_attempt_alone(stage: Stage) -> None:
    async def main() -> None:
        desk = Desk()
        await stage(desk)
        before = len(desk.log)
        await desk.let_go()
        await asyncio.sleep(LONG)
        assert {w.partition(" e")[0] for w in desk.log[before:]} <= {"release", "request given up"}
        assert desk.master.reclaimed.is_set()

    play(main)


@pytest.mark.parametrize("wish", ["cancel", "stop"])
def test_letting_go_tells_everybody_who_asks(wish: str) -> None:
    """One whose wish is being written, and two who wait behind it."""

    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.gate.clear()
        ask = desk.master.cancel if wish == "cancel" else desk.master.stop
        askers = [asyncio.get_running_loop().create_task(ask()) for _ in range(3)]
        await asyncio.sleep(1)
        await desk.let_go()
        for asker in askers:
            with pytest.raises(NotLeadingError, match="ask the new leader"):
                await asyncio.wait_for(asker, LONG)

    play(main)


@pytest.mark.parametrize("stage", [waiting_for_a_slot, restarting], ids=lambda s: s.__name__)
def test_cancel_that_did_not_become_durable_is_not_told_as_done(stage: Stage) -> None:
    async def main() -> None:
        desk = Desk()
        await stage(desk)
        answer = await asked(desk)
        await desk.let_go()
        record = await desk.record()
        assert not (record or {}).get("cancel_requested")
        with pytest.raises(NotLeadingError):
            await asyncio.wait_for(answer, LONG)

    play(main)


def test_whoever_asks_after_that_is_told_too() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        await desk.let_go()
        with pytest.raises(NotLeadingError):
            await asyncio.wait_for(desk.master.cancel(), LONG)

    play(main)


# -- a job of an earlier leader ---------------------------------------------------------------------------------------


def test_running_attempt_is_watched_again() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(record_of())
        await desk.until("watch 1")
        assert desk.master.reclaimed.is_set()
        desk.executor.end(1, FINISHED)
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.log == ["reclaim e9", "watch 1", "release e1"]

    play(main)


def test_slot_is_reclaimed_before_the_others_may_have_it() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaim_gate.clear()
        desk.begin(record_of())
        await asyncio.sleep(LONG)
        assert not desk.master.reclaimed.is_set()
        desk.resources.reclaim_gate.set()
        await desk.until("watch 1")
        assert desk.master.reclaimed.is_set()

    play(main)


def test_attempt_that_was_only_intended_is_started_under_the_same_number() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.presence = Presence.ABSENT
        desk.begin(record_of())
        await desk.until("watch 1")
        assert [w for w in desk.log if w.startswith("start")] == ["start 1"]

    play(main)


def test_engine_that_is_gone_costs_an_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaimable = False
        desk.begin(record_of())
        await desk.until("watch 2")
        acts = [w for w in desk.log if w.startswith(("fence", "start"))]
        assert acts == ["fence 1", "start 2"]
        (entry,) = desk.master.state.exceptions
        assert "engine e9 was gone" in entry.failure.message

    play(main)


def test_silent_engine_of_a_job_that_is_to_be_cancelled_is_looked_at() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.fence_errors = [EngineLostError("it does not answer")]
        desk.begin(record_of(cancel_requested=True))
        assert await desk.finish() == Finish(JobStatus.CANCELED)
        assert desk.log.index("suspect e9") < max(i for i, w in enumerate(desk.log) if w.startswith("fence 1"))

    play(main)


def test_ended_attempt_is_believed_though_its_engine_is_gone() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaimable = False
        desk.executor.presence = Presence.ENDED
        desk.executor.end(1, FINISHED)
        desk.begin(record_of())
        assert await desk.finish() == Finish(JobStatus.FINISHED)

    play(main)


def test_wishes_of_an_earlier_life_are_carried_out() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(record_of(stop_requested=True))
        await desk.until("stop 1")
        other = Desk()
        other.begin(record_of(cancel_requested=True))
        assert await other.finish() == Finish(JobStatus.CANCELED)
        assert [w for w in other.log if w.startswith(("cancel", "fence"))] == ["cancel 1", "fence 1"]

    play(main)


def test_rest_of_a_restart_delay_is_waited_for() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(record_of(deployed=False, restart_at=30.0))
        await desk.until("request")
        assert 29 <= asyncio.get_running_loop().time() <= 31
        assert desk.log[0] == "request"

    play(main)


@pytest.mark.parametrize("presence", [Presence.RUNNING, Presence.ABSENT])
def test_engine_that_is_lost_while_the_job_is_recovered(presence: Presence) -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.presence = presence
        await reconciling(desk)
        await desk.meet(lambda: bool(desk.resources.slots))
        desk.resources.slots[0].lost.set_result("engine e9 was lost: its process is gone")
        await asyncio.sleep(1)
        desk.executor.find_gate.set()
        await desk.until("fence 1")

    play(main)


def test_running_attempt_survives_a_failover_after_its_script_was_removed() -> None:
    async def main() -> None:
        desk = Desk()
        desk.requirement_errors = [InvalidPipelineError([Problem("cannot be read", file="job.py")])]
        desk.executor.left = [1]
        results = JobResultStore(desk.store, 10)
        runner = JobManagerRunner(desk.submission, record_of(), desk.services, results)
        task = asyncio.get_running_loop().create_task(runner.run())
        await asyncio.sleep(1)
        desk.executor.end(1, FINISHED)
        assert (await asyncio.wait_for(task, LONG)).status is JobStatus.FINISHED

    play(main)


# -- the runner -------------------------------------------------------------------------------------------------------


class Broken(JobMaster):
    """A bug of ours."""

    async def _request_slot(self) -> None:
        raise ZeroDivisionError("a bug")


def test_broken_job_master_fails_its_job_after_everything_is_fenced() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.left = [1, 2]
        desk.executor.fence_errors = [EngineLostError("it does not answer")]
        runner = JobManagerRunner(desk.submission, None, desk.services, JobResultStore(desk.store, 10), Broken)
        result = await runner.run()
        assert result.status is JobStatus.FAILED
        assert result.failure == Failure(FailureKind.INTERNAL, "the JobMaster broke: ZeroDivisionError: a bug")
        assert desk.log == ["fence 1", "fence 1", "fence 2"]

    play(main)


def test_wishes_before_there_is_a_job_master_wait_for_it() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.gate.clear()
        runner = JobManagerRunner(desk.submission, None, desk.services, JobResultStore(desk.store, 10))
        cancel = asyncio.get_running_loop().create_task(runner.cancel())
        await asyncio.sleep(1)
        assert not cancel.done()
        result = await asyncio.wait_for(runner.run(), LONG)
        await asyncio.wait_for(cancel, LONG)
        assert result.status is JobStatus.CANCELED
        assert (result.attempts, result.restarts, result.digest) == (0, 0, desk.submission.digest)

    play(main)


def test_job_that_has_a_result_never_runs() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.end(1, FINISHED)
        results = JobResultStore(desk.store, 10)
        first = JobManagerRunner(desk.submission, None, desk.services, results)._result(await desk.finish())
        await results.put_dirty(first, epoch=EPOCH)
        desk.log.clear()
        runner = JobManagerRunner(desk.submission, record_of(), desk.services, results)
        assert await runner.run() == first
        assert desk.log == []
        with pytest.raises(JobStateError, match="has ended for good"):
            await runner.cancel()

    play(main)


def test_wish_for_a_job_whose_job_master_broke_is_answered() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.left = [1]
        desk.executor.fence_gate.clear()
        runner = JobManagerRunner(desk.submission, None, desk.services, JobResultStore(desk.store, 10), Broken)
        task = asyncio.get_running_loop().create_task(runner.run())
        await asyncio.sleep(1)
        cancel = asyncio.get_running_loop().create_task(runner.cancel())
        await asyncio.sleep(1)
        desk.executor.fence_gate.set()
        assert (await asyncio.wait_for(task, LONG)).status in (JobStatus.FAILED, JobStatus.CANCELED)
        with pytest.raises(FiresteelError):
            await asyncio.wait_for(cancel, LONG)

    play(main)
