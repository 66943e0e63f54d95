"""A JobMaster on a desk: services that do what they are told, in virtual time, and note all that is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.concurrency import Backoff
from firesteel.config import load_configuration
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import (
    FencingError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import FixedDelayRestart, JobGraph
from firesteel.jobmaster.enrichers import FailureEnrichers, type_label
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.jobmaster.machine import Finish, JobState
from firesteel.jobmaster.master import JobMaster, JobMasterServices
from firesteel.resourcemanager.gateway import Slot, SlotRequest
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.testing.virtual_time import run_in_virtual_time as run
from firesteel.types import AttemptId, Guard, JobID

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

    async def reclaim_slot(self, request: SlotRequest, engine_id: str | None, worker: str = "") -> Slot | None:
        self.log.append(f"reclaim {engine_id}")
        await self.reclaim_gate.wait()
        return self._slot(request) if self.reclaimable else None

    def expect(self, held: Sequence[tuple[str | None, str]]) -> None: ...

    def recovered(self) -> None: ...

    def release_slot(self, slot: Slot) -> None:
        self.log.append(f"release e{self.slots.index(slot) + 1}")

    async def suspect(self, engine_id: str) -> bool:
        self.log.append(f"suspect {engine_id}")
        return not any(s.lost.done() for s in self.slots)


class Executor:
    """Attempts that end when they are told to; everything that is asked is in the log."""

    def place(self, attempt: AttemptId, worker: str) -> None:
        pass

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.start_gate = opened()
        self.fence_gate = opened()
        self.find_gate = opened()
        self.start_errors: list[Exception] = []
        self.cancel_errors: list[Exception] = []
        self.fence_errors: list[Exception] = []
        self.stop_errors: list[Exception] = []
        self.progress_errors: list[Exception] = []
        self.told: dict[int, Mapping[str, Any]] = {}
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

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None:
        self.log.append(f"cancel {attempt.number}")
        if self.cancel_errors:
            raise self.cancel_errors.pop(0)

    async def stop(self, attempt: AttemptId) -> None:
        self.log.append(f"stop {attempt.number}")
        if self.stop_errors:
            raise self.stop_errors.pop(0)

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        guard()
        self.log.append(f"fence {attempt.number}{' unreachable' if unreachable else ''}")
        await self.fence_gate.wait()
        if self.fence_errors and not unreachable:
            raise self.fence_errors.pop(0)
        return self.fenced

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        return {}

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None: ...

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        return {}

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        return {}

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None: ...

    async def dispose_savepoint(self, location: str, *, owner: str = "", resumed: bool = False) -> None: ...

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        if self.progress_errors:
            raise self.progress_errors.pop(0)
        return self.told.get(attempt.number, {})

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        return self.left

    async def tidied(self, attempt: AttemptId) -> None: ...

    async def prune(self, job_id: JobID, keep: int) -> None:
        self.log.append(f"prune to {keep}")

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None: ...


class Desk:
    """One job, its JobMaster and what that works with."""

    def __init__(self, *, restarts: int = 5, history_size: int = 16) -> None:
        self.log: list[str] = []
        self.store = Store(self.log)
        self.resources = Resources(self.log)
        self.executor = Executor(self.log)
        self.leads = True
        self.configuration = load_configuration(environ={"HOME": "/nonexistent"})
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
            enrichers=FailureEnrichers((type_label, lambda failure: {"where": failure.vertex or "nowhere"})),
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
