"""A leader's Fleet and workers without processes, hosts or HTTP: what one says, the other hears, unless the line is cut."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from firesteel.attempts.attempt import AttemptResult
from firesteel.errors import NotLeadingError
from firesteel.fleet.engines import FleetEngines
from firesteel.fleet.executor import FleetExecutor
from firesteel.fleet.registry import Fleet
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.rpc.messages import (
    NOT_ENDED,
    AttemptHeld,
    Command,
    Heard,
    Registered,
    Registration,
    WorkerInfo,
    WorkerReport,
    decode,
    encode,
    raw,
)
from firesteel.stores.workers import WorkerStore
from firesteel.testing.fakes import FakeEngines, FakeExecutor, runs_on
from firesteel.types import AttemptId, JobID
from firesteel.worker.epochs import ObeyedEpochs
from firesteel.worker.isolation import LeaderContact
from firesteel.worker.service import WorkerService
from firesteel.worker.session import WorkerSession

HEARTBEAT = 0.05
INCARNATIONS = itertools.count(1)


def raised(error: BaseException) -> None:
    raise error


@dataclass
class HeldByFakes:
    """Implements HeldAttempts on a FakeExecutor, whose attempts outlive a process as those on a disk do."""

    executor: FakeExecutor
    removed: list[JobID] = field(default_factory=list)
    isolated: list[AttemptId] = field(default_factory=list)

    def attempts(self) -> list[AttemptHeld]:
        found = [d.attempt for d in self.executor.started if d.attempt.job_id not in self.removed]
        return [AttemptHeld(a.job_id, a.number, self._result(a)) for a in found]

    def _result(self, attempt: AttemptId) -> msgspec.Raw:
        ended = self.executor.result_of(attempt)
        return NOT_ENDED if ended is None else raw(ended.to_json())

    def of_job(self, job_id: JobID) -> list[AttemptHeld]:
        return [h for h in self.attempts() if h.job == job_id]

    def files(self) -> dict[str, list[int]]:
        return {h.job: [h.number] for h in self.attempts()}

    def read(self, attempt: AttemptId, have: Mapping[str, int]) -> list[dict[str, Any]]:
        return []

    def isolate(self, attempt: AttemptId) -> None:
        self.isolated.append(attempt)

    def as_told(self, attempt: AttemptId, result: AttemptResult) -> AttemptResult:
        return result

    def remove(self, job_id: JobID) -> None:
        self.removed.append(job_id)


@dataclass
class Line:
    """The way of one worker to whoever leads: a LeaderConnection that can be cut, one way or both."""

    desk: FleetDesk
    worker: str
    up: bool = True
    """Whether what the worker says arrives."""
    down: bool = True
    """Whether what the leader says arrives."""
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    async def register(self, registration: Registration) -> Registered:
        self._check(self.up)
        answer = await self.desk.leader.register(decode(encode(registration), Registration))
        self._check(self.down)
        self.cut = asyncio.Event()
        return decode(encode(answer), Registered)

    async def commands(self, incarnation: str) -> AsyncIterator[Command]:
        self._check(self.up and self.down)
        lines = self.desk.leader.commands(self.worker, incarnation)
        upcoming = asyncio.ensure_future(anext(lines, None))
        cut = asyncio.ensure_future(self.cut.wait())
        try:
            while True:
                await asyncio.wait([upcoming, cut], return_when=asyncio.FIRST_COMPLETED)
                self._check(not cut.done())
                line = upcoming.result()
                if line is None:
                    return
                yield decode(line, Command)
                upcoming = asyncio.ensure_future(anext(lines, None))
        finally:
            cut.cancel()
            upcoming.cancel()
            await asyncio.wait([upcoming])
            await lines.aclose()  # type: ignore[attr-defined]

    async def report(self, report: WorkerReport) -> Heard:
        self._check(self.up)
        heard = self.desk.leader.report(self.worker, decode(encode(report), WorkerReport))
        self._check(self.down)
        return decode(encode(heard), Heard)

    def break_off(self, *, up: bool = False, down: bool = False) -> None:
        self.up, self.down = up, down
        self.cut.set()

    def heal(self) -> None:
        self.up = self.down = True

    @staticmethod
    def _check(passes: bool) -> None:
        if not passes:
            raise ConnectionError("the line is cut")


class FakeWorker:
    """The worker of a host: its attempts and engines outlive its processes."""

    def __init__(self, desk: FleetDesk, number: int, home: Path, *, policy: str, timeout: float) -> None:
        self.id = f"w{number:016x}"
        self.desk = desk
        self.home = home
        self.policy = policy
        self.timeout = timeout
        self.executor = FakeExecutor(runs_on)
        self.engines = FakeEngines()
        self.held = HeldByFakes(self.executor)
        self.line = Line(desk, self.id)
        self.name = f"host-{number}"
        self.service: WorkerService | None = None
        self.session: WorkerSession | None = None
        self.process: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A process of the worker: each is another incarnation."""
        info = WorkerInfo(
            self.id,
            self.name,
            f"i{next(INCARNATIONS)}",
            f"{self.name}/m/b",
            2,
            "4g",
            2,
            policy=self.policy,
            isolation_timeout=self.timeout,
        )
        epochs = await asyncio.to_thread(ObeyedEpochs, self.home)
        contact = await asyncio.to_thread(LeaderContact, self.home, self.timeout)
        self.service = WorkerService(info, self.held, self.executor, self.engines, epochs, on_error=raised)
        await self.service.open()
        self.session = WorkerSession(self.service, self.line, epochs, contact)
        self.process = asyncio.get_running_loop().create_task(self.session.run())

    async def kill(self) -> None:
        assert self.process is not None
        assert self.service is not None
        self.process.cancel()
        await asyncio.wait([self.process])
        await self.service.close()


class FakeResources:
    """What the Fleet has told the ResourceManager."""

    def __init__(self) -> None:
        self.offers: dict[str, WorkerOffer] = {}
        self.lost: dict[str, str] = {}

    def offer(self, offers: Sequence[WorkerOffer]) -> None:
        self.offers = {o.worker: o for o in offers}

    def engines_on(self, worker: str) -> int:
        return 0

    def lose_worker(self, worker: str, reason: str) -> None:
        self.lost[worker] = reason


@dataclass
class Leadership:
    fleet: Fleet
    executor: FleetExecutor
    engines: FleetEngines
    resources: FakeResources
    guarded: list[BaseException] = field(default_factory=list)
    """Raised by the guard."""

    def guard(self) -> None:
        if self.guarded:
            raise self.guarded[0]


class FleetDesk:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = MemoryStateStore()
        self.epoch = 0
        self.current: Leadership | None = None
        self.workers: list[FakeWorker] = []
        self.ends: list[Leadership] = []

    @property
    def leader(self) -> Fleet:
        if self.current is None:
            raise NotLeadingError("nobody leads")
        return self.current.fleet

    async def elect(self, *, heartbeat: float = HEARTBEAT) -> Leadership:
        """The next leader; the one before ends."""
        await self.depose()
        self.epoch += 1
        self.store.newest_epoch = Epoch(self.epoch)
        local = FakeExecutor(runs_on)
        leadership: Leadership

        def guard() -> None:
            leadership.guard()

        fleet = Fleet(
            Epoch(self.epoch), WorkerStore(self.store), "", None, guard=guard, heartbeat=heartbeat, on_error=raised
        )
        leadership = Leadership(fleet, FleetExecutor(local, fleet), FleetEngines(FakeEngines(), fleet), FakeResources())
        await fleet.start(leadership.resources)
        self.current = leadership
        self.ends.append(leadership)
        return leadership

    async def depose(self) -> None:
        if self.current is not None:
            await self.current.fleet.close()
            self.current = None

    async def worker(self, *, policy: str = "stop", seconds: float = 60.0) -> FakeWorker:
        number = len(self.workers) + 1
        home = self.directory / f"host-{number}"
        home.mkdir()
        worker = FakeWorker(self, number, home, policy=policy, timeout=seconds)
        self.workers.append(worker)
        await worker.start()
        return worker

    async def close(self) -> None:
        for worker in self.workers:
            if worker.process is not None and not worker.process.done():
                await worker.kill()
        await self.depose()


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
