"""A leader's Fleet and its workers in virtual time: real sessions on lines that delay, lose and cut, with clocks that drift.

A worker is the real WorkerSession, WorkerService, LeaderContact and ObeyedEpochs on a directory; a leader is the real Fleet.
Hosts are fakes whose attempts outlive worker processes, and take a while to start and to end. Jobs are driven as a JobMaster
would do it: an attempt at a time, the next one only when the one before is over, the worker of each written down first.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.fleet_desk import HeldByFakes

from firesteel.attempts.attempt import AttemptResult
from firesteel.errors import FencingError, FiresteelError, NotLeadingError
from firesteel.fleet.contact import DRIFT
from firesteel.fleet.executor import FleetExecutor
from firesteel.fleet.registry import Fleet
from firesteel.fleet.view import Standing
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.rpc.messages import Command, Heard, Registered, Registration, WorkerInfo, WorkerReport, decode, encode
from firesteel.stores.workers import WorkerStore
from firesteel.testing.fakes import FakeEngines, FakeExecutor, runs_on
from firesteel.types import AttemptId, Guard, JobID
from firesteel.worker.epochs import ObeyedEpochs
from firesteel.worker.isolation import LeaderContact
from firesteel.worker.service import WorkerService
from firesteel.worker.session import WorkerSession

HEARTBEAT = 1.0
ISOLATION = 9.0
PATIENCE = 2.0
"""Seconds after which whoever has asked and heard nothing gives up."""
GRAPH = JobGraph.model_validate(
    {
        "name": "nothing",
        "vertices": [
            {"name": "one", "kind": "sql", "query": "SELECT 1"},
            {"name": "out", "kind": "sink", "input": "one", "format": "noop", "delivery": "at-least-once"},
        ],
    }
)


@dataclass(frozen=True)
class WorkerPlan:
    """What is to happen. Everything random is drawn from the seed."""

    seed: int
    workers: int = 3
    jobs: int = 4
    seconds: float = 80.0
    cuts: tuple[float, float] | None = None
    """A line is cut again and again, one way or both, for so many seconds."""
    kills: bool = False
    """Worker processes die and are started again, sometimes with another isolation time."""
    elections: bool = False
    slow: float = 1.0
    """Seconds that starting and ending an attempt take at most."""


class HostClock:
    """Counts on while its host is suspended, and not quite as fast as others."""

    def __init__(self, rate: float, offset: float) -> None:
        self._rate, self._offset = rate, offset

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() * self._rate + self._offset


class SlowExecutor(FakeExecutor):
    """Attempts need a moment to begin and to end, as processes do."""

    def __init__(self, draw: random.Random, slow: float) -> None:
        super().__init__(runs_on)
        self._draw, self._slow = draw, slow

    async def start(self, deployment: Deployment) -> None:
        await asyncio.sleep(self._draw.uniform(0, self._slow))
        await super().start(deployment)

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        await asyncio.sleep(self._draw.uniform(0, self._slow))
        return await super().fence(attempt, guard=guard, unreachable=unreachable)

    def runs(self, attempt: AttemptId) -> bool:
        known = self._attempts.get(attempt)
        return known is not None and not known.ended.done()


class DelayingLine:
    """The way of one worker to whoever leads."""

    def __init__(self, world: FleetWorld, worker: str, draw: random.Random) -> None:
        self._world, self._worker, self._draw = world, worker, draw
        self.up = self.down = True
        self._leader: Fleet | None = None

    async def _pass(self, way: Callable[[], bool]) -> None:
        await asyncio.sleep(self._draw.uniform(0, 0.3))
        if not way():
            await asyncio.sleep(PATIENCE)
            raise ConnectionError("no answer")

    async def register(self, registration: Registration) -> Registered:
        await self._pass(lambda: self.up)
        self._leader = self._world.leader
        answer = await self._leader.register(decode(encode(registration), Registration))
        await self._pass(lambda: self.down)
        return decode(encode(answer), Registered)

    async def report(self, report: WorkerReport) -> Heard:
        await self._pass(lambda: self.up)
        assert self._leader is not None
        answer = self._leader.report(self._worker, decode(encode(report), WorkerReport))
        await self._pass(lambda: self.down)
        return decode(encode(answer), Heard)

    async def commands(self, incarnation: str) -> AsyncIterator[Command]:
        await self._pass(lambda: self.up)
        assert self._leader is not None
        lines = self._leader.commands(self._worker, incarnation)
        try:
            while True:
                upcoming = asyncio.ensure_future(anext(lines, None))
                waited = 0.0
                while not upcoming.done():
                    await asyncio.wait([upcoming], timeout=HEARTBEAT)
                    # The leader writes an empty line at each heartbeat; one that does not come is missed.
                    waited = 0.0 if self.down else waited + HEARTBEAT
                    if waited >= 3 * HEARTBEAT:
                        upcoming.cancel()
                        raise ConnectionError("silence")
                line = upcoming.result()
                if line is None:
                    return
                await self._pass(lambda: self.down)
                yield decode(line, Command)
        finally:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await lines.aclose()  # type: ignore[attr-defined]


class SimulatedHost:
    def __init__(self, world: FleetWorld, number: int) -> None:
        draw = random.Random(f"{world.plan.seed}/{number}")
        self.id = f"w{number:016x}"
        self.world, self.draw = world, draw
        self.home = world.directory / f"host-{number}"
        self.home.mkdir()
        # Any two clocks drift apart by no more than DRIFT.
        self.clock = HostClock(1 + draw.uniform(-DRIFT / 2, DRIFT / 2), draw.uniform(0, 1000))
        self.executor = SlowExecutor(draw, world.plan.slow)
        self.held = HeldByFakes(self.executor)
        self.line = DelayingLine(world, self.id, draw)
        self.isolation = ISOLATION
        self.restarting = asyncio.Lock()
        self._incarnations = itertools.count(1)
        self._service: WorkerService | None = None
        self._process: asyncio.Task[None] | None = None

    async def start(self) -> None:
        info = WorkerInfo(
            self.id,
            f"host-{self.id[-1]}",
            f"i{next(self._incarnations)}",
            f"host-{self.id[-1]}/m/b",
            2,
            "4g",
            2,
            policy="stop",
            isolation_timeout=self.isolation,
        )
        epochs = ObeyedEpochs(self.home)
        contact = LeaderContact(self.home, self.isolation, self.clock)
        self._service = WorkerService(info, self.held, self.executor, FakeEngines(), epochs, on_error=self.world.failed)
        await self._service.open()
        session = WorkerSession(self._service, self.line, epochs, contact)
        self._process = asyncio.get_running_loop().create_task(session.run())

    async def kill(self) -> None:
        assert self._process is not None
        assert self._service is not None
        self._process.cancel()
        await asyncio.wait([self._process])
        await self._service.close()


@dataclass
class SimulatedJob:
    job_id: JobID
    number: int = 0
    worker: str = ""
    restarts: int = 0


class NoResources:
    def offer(self, offers: Iterable[WorkerOffer]) -> None: ...

    def lose_worker(self, worker: str, reason: str) -> None: ...

    def engines_on(self, worker: str) -> int:
        return 0


@dataclass
class FleetHistory:
    overlaps: list[str] = field(default_factory=list)
    """Attempts that began while the one before them ran (I27)."""
    restarts: int = 0
    errors: list[BaseException] = field(default_factory=list)
    elections: int = 0
    stuck: list[str] = field(default_factory=list)
    """Jobs that did not run at the end, when everything had long been healed."""


class FleetWorld:
    def __init__(self, plan: WorkerPlan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.draw = random.Random(plan.seed)
        self.store = MemoryStateStore()
        self.epoch = 0
        self.history = FleetHistory()
        self.fleet: Fleet | None = None
        self.executor: FleetExecutor | None = None
        self.hosts = [SimulatedHost(self, n + 1) for n in range(plan.workers)]
        self.jobs = [SimulatedJob(JobID(f"{n:032x}")) for n in range(plan.jobs)]
        self._masters: list[asyncio.Task[None]] = []

    def failed(self, error: BaseException) -> None:
        self.history.errors.append(error)

    @property
    def leader(self) -> Fleet:
        if self.fleet is None:
            raise NotLeadingError("nobody leads")
        return self.fleet

    async def elect(self) -> None:
        await self.depose()
        self.epoch += 1
        self.history.elections += 1
        self.store.newest_epoch = Epoch(self.epoch)

        def guard() -> None:
            if self.fleet is not fleet:
                raise FencingError("it does not lead any more")

        clock = HostClock(1 + self.draw.uniform(-DRIFT / 2, DRIFT / 2), self.draw.uniform(0, 1000))
        fleet = Fleet(
            Epoch(self.epoch),
            WorkerStore(self.store),
            "",
            None,
            guard=guard,
            heartbeat=HEARTBEAT,
            on_error=self.failed,
            clock=clock,
            now=asyncio.get_running_loop().time,
        )
        self.fleet, self.executor = fleet, FleetExecutor(FakeExecutor(), fleet)
        await fleet.start(NoResources())
        for job in self.jobs:
            if job.number:
                self.executor.place(AttemptId(job.job_id, job.number), job.worker)
        fleet.recovered(lambda _: True)
        self._masters = [asyncio.ensure_future(self._drive(job, self.executor)) for job in self.jobs]

    async def depose(self) -> None:
        """It dies; nobody leads until the next one is elected."""
        for master in self._masters:
            master.cancel()
        if self._masters:
            await asyncio.wait(self._masters)
        if self.fleet is not None:
            fleet, self.fleet = self.fleet, None
            await fleet.close()

    async def _drive(self, job: SimulatedJob, executor: FleetExecutor) -> None:
        """A JobMaster's way: the attempt and its worker are durable before anything is told to anybody."""
        try:
            while True:
                attempt = AttemptId(job.job_id, job.number)
                if job.number == 0 or (await self._over(executor, attempt)) is not None:
                    await self._next(job, executor)
        except FencingError:
            return

    async def _over(self, executor: FleetExecutor, attempt: AttemptId) -> AttemptResult | None:
        if await executor.find(attempt) is Presence.ABSENT:
            with contextlib.suppress(FiresteelError):
                await executor.start(Deployment(attempt, GRAPH, None, owner="somebody"))
        return await executor.wait(attempt)

    async def _next(self, job: SimulatedJob, executor: FleetExecutor) -> None:
        free = [v.worker for v in self.leader.workers() if v.standing is Standing.CONNECTED]
        while not free:
            await asyncio.sleep(0.1)
            free = [v.worker for v in self.leader.workers() if v.standing is Standing.CONNECTED]
        before = AttemptId(job.job_id, job.number)
        for host in self.hosts:
            if host.executor.runs(before):
                now = asyncio.get_running_loop().time()
                self.history.overlaps.append(f"{now:.1f} s: attempt {job.number} of {job.job_id} runs on {host.id}")
        self.history.restarts += job.number > 0
        job.number, job.worker = job.number + 1, self.draw.choice(free)
        attempt = AttemptId(job.job_id, job.number)
        executor.place(attempt, job.worker)
        # One that could not be started is found absent, or lost with its worker, next.
        with contextlib.suppress(FiresteelError):
            await executor.start(Deployment(attempt, GRAPH, None, owner="somebody"))

    # -- faults -------------------------------------------------------------------------------------------------------

    async def _cut_lines(self, low: float, high: float) -> None:
        while True:
            await asyncio.sleep(self.draw.uniform(1, 15))
            host = self.draw.choice(self.hosts)
            host.line.up, host.line.down = self.draw.choice([(False, False), (True, False), (False, True)])
            seconds = self.draw.uniform(low, high)
            if self.plan.kills and self.draw.random() < 0.5:
                # Its next process must know for how long the one before it was alone.
                await asyncio.sleep(min(seconds, ISOLATION) * self.draw.uniform(0.3, 0.9))
                await self._restart(host)
            await asyncio.sleep(seconds)
            host.line.up = host.line.down = True

    async def _kill_processes(self) -> None:
        while True:
            await asyncio.sleep(self.draw.uniform(2, 20))
            await self._restart(self.draw.choice(self.hosts))

    async def _restart(self, host: SimulatedHost) -> None:
        async with host.restarting:
            await host.kill()
            await asyncio.sleep(self.draw.uniform(0, 2))
            host.isolation = self.draw.choice([ISOLATION, ISOLATION, 3 * ISOLATION])
            await host.start()

    async def _hold_elections(self) -> None:
        while True:
            await asyncio.sleep(self.draw.uniform(1, 25))
            await self.depose()
            await asyncio.sleep(self.draw.uniform(0, 2))
            await self.elect()

    async def play(self) -> FleetHistory:
        await self.elect()
        for host in self.hosts:
            await host.start()
        faults = []
        if self.plan.cuts:
            faults.append(asyncio.ensure_future(self._cut_lines(*self.plan.cuts)))
        if self.plan.kills:
            faults.append(asyncio.ensure_future(self._kill_processes()))
        if self.plan.elections:
            faults.append(asyncio.ensure_future(self._hold_elections()))
        await asyncio.sleep(self.plan.seconds)
        for fault in faults:
            fault.cancel()
        if faults:
            await asyncio.wait(faults)
        for host in self.hosts:
            host.line.up = host.line.down = True
            if host._process is None or host._process.done():
                await host.start()
        if self.fleet is None:
            await self.elect()
        await asyncio.sleep(5 * ISOLATION)
        for job in self.jobs:
            if not any(host.executor.runs(AttemptId(job.job_id, job.number)) for host in self.hosts):
                self.history.stuck.append(f"{job.job_id} attempt {job.number} on {job.worker}")
        for host in self.hosts:
            if host._process is not None and not host._process.done():
                await host.kill()
        await self.depose()
        return self.history
