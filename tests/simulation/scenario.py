"""One seeded schedule: jobs, clients and faults on a simulated cluster, and the history that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.world import LEASE, Process, Script, SimEngines, SimExecutor, World

from firesteel.blob.store import BlobStore
from firesteel.config import Configuration, load_configuration
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.entrypoint.wiring import Node
from firesteel.errors import DuplicateJobError, FiresteelError, JobNotFoundError, JobStateError
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.enrichers import FailureEnrichers, load_enrichers
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.status import JobStatus
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.testing.virtual_time import NODE, VirtualTimeLoop, inline
from firesteel.testing.virtual_time import run_in_virtual_time as run
from firesteel.types import JobID
from firesteel.worker.offer import local_offer

SETTLE = 4000.0
"""Virtual seconds after the last fault within which every job must have ended and be clean."""


@dataclass(frozen=True)
class Plan:
    """What is to happen. Everything random is drawn from the seed."""

    seed: int
    jobs: int = 3
    nodes: int = 1
    crash_at: tuple[int, str] | None = None
    """The persistence step of the first leader at which it dies."""
    pause_at: int = 0
    """The persistence step of the first leader at which it is stopped for longer than its lease."""
    kills: int = 0
    pauses: int = 0
    engine_kills: int = 0
    flaky: float = 0.0
    start_errors: float = 0.0
    doubts: float = 0.0
    nasty: float = 0.0
    silences: int = 0
    """Engines that stop answering."""
    cancels: bool = True
    stops: bool = True
    repeats: bool = True
    failures: bool = True


@dataclass
class Ask:
    """One thing that a client wanted, as the client saw it."""

    what: str
    job_id: JobID
    began: float
    acked: float | None = None
    error: str = ""


@dataclass
class History:
    plan: Plan
    world: World
    submissions: dict[JobID, Submission] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)
    seen: list[tuple[float, JobID, JobStatus]] = field(default_factory=list)
    """Final states that clients were told."""
    results: dict[JobID, JobResult] = field(default_factory=dict)
    crashes: int = 0
    steps: int = 0
    """Persistence steps of the first leader."""
    settled: bool = False
    fatal: list[BaseException] = field(default_factory=list)
    engine_kills: list[tuple[float, str]] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)
    """When a control plane died or stood still."""

    def acked(self, what: str) -> list[Ask]:
        return [a for a in self.asks if a.what == what and a.acked is not None]


_CONFIGURATIONS: dict[str, Configuration] = {}


def _configuration() -> Configuration:
    if "one" not in _CONFIGURATIONS:
        _CONFIGURATIONS["one"] = load_configuration(
            overrides={
                "engine.master": "local[2]",
                "engine.slots": "2",
                "engine.max": "2",
                "engine.idle-timeout": "60 s",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": "5 s",
                "high-availability.type": "none",
            },
            environ={"HOME": "/nonexistent"},
        )
    return _CONFIGURATIONS["one"]


class Simulation:
    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.world = World(self.random)
        self.history = History(plan, self.world)
        self.directory = directory
        self.loop = asyncio.get_running_loop()
        self.dispatchers: dict[Process, Any] = {}
        self.started = 0

    # -- nodes ----------------------------------------------------------------------------------------------------

    def start_node(self) -> Process:
        self.started += 1
        process = Process(self.world, f"node-{self.started}")
        process.flaky = self.plan.flaky
        process.start_errors = self.plan.start_errors
        process.doubts, process.nasty = self.plan.doubts, self.plan.nasty
        if self.started == 1:
            process.crash_at = self.plan.crash_at
            process.pause_at = self.plan.pause_at
        process.on_crash = self._crashed
        process.on_pause = lambda: self.history.faults.append(self.world.now)
        finished = ExecutionGraphInfoStore(
            self.directory, max_count=100, max_age=1e9, cache_bytes=1 << 20, now=lambda: self.world.now
        )

        async def clear_outputs(submission: Submission, _result: JobResult) -> None:
            await process.touch(counts=True)
            self.world.cleared.add(submission.job_id)
            await process.touched()

        node = Node(
            configuration=_configuration(),
            ha=process,
            executor=SimExecutor(process),
            engines=SimEngines(process),
            finished=finished,
            archivist=HistoryArchivist(None),
            clear_outputs=clear_outputs,
            enrichers=FailureEnrichers(load_enrichers(())),
            files=JobFiles(BlobStore(self.directory / "blobs", max_size=1, quota=1), self.directory),
            worker_id="w",
            worker=local_offer(_configuration(), shared_engine_spec(_configuration()), "w"),
            now=lambda: self.world.now,
        )

        async def live() -> None:
            runner = node.dispatcher_runner(
                process.election(process.name),
                address=process.name,
                on_fatal=lambda error: self._fatal(process, error),
                on_shut_down=lambda: None,
            )
            self.dispatchers[process] = runner
            await runner.start()
            await process.election_.renew()

        self.inside(process, live())
        return process

    def inside(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something as code of a process: it dies with it."""

        def start() -> asyncio.Task[Any]:
            NODE.set(process)
            return self.loop.create_task(work)

        return contextvars.copy_context().run(start)

    def _fatal(self, process: Process, error: BaseException) -> None:
        """A node that cannot be trusted ends, as the entrypoint would have it."""
        self.history.fatal.append(error)
        process.crash()

    def _crashed(self, process: Process) -> None:
        self.history.crashes += 1
        self.history.faults.append(self.world.now)
        assert isinstance(self.loop, VirtualTimeLoop)
        if process.name == "node-1":
            self.history.steps = process.steps
        self.loop.kill(process)
        self.loop.call_later(self.random.random() * 3, self.start_node)

    # -- clients --------------------------------------------------------------------------------------------------

    async def ask(
        self, what: str, job_id: JobID, call: Callable[[Dispatcher], Coroutine[Any, Any, Any]], *, tries: int = 60
    ) -> Ask:
        """Like a good client: repeat the same wish until it is answered."""
        ask = Ask(what, job_id, self.world.now)
        self.history.asks.append(ask)
        for _ in range(tries):
            process = self.world.leader
            try:
                if process is None or process not in self.dispatchers:
                    raise FiresteelError("nobody leads")
                dispatcher = self.dispatchers[process].dispatcher
                task = self.inside(process, call(dispatcher))
                await asyncio.wait([task, process.died], timeout=8.0, return_when=asyncio.FIRST_COMPLETED)
                if task.done() and not task.cancelled() and process.alive:
                    task.result()
                    ask.acked = self.world.now
                    return ask
            except (DuplicateJobError, JobStateError, JobNotFoundError) as error:
                ask.error = f"{type(error).__name__}: {error}"
                return ask
            except FiresteelError as error:
                ask.error = str(error)
            await asyncio.sleep(0.5 + self.random.random())
        return ask

    async def client(self, number: int) -> None:
        streaming = self.plan.stops and self.random.random() < 0.4
        job_id = JobID(f"{self.plan.seed:016x}{number:016x}")
        graph = self._graph(number, streaming)
        await asyncio.sleep(self.random.random() * 10)
        submission = Submission(job_id, graph, self.world.now, digest_of(graph), priority=self.random.randrange(2))
        self.history.submissions[job_id] = submission
        if self.plan.repeats and self.random.random() < 0.3:
            twin = asyncio.ensure_future(self.ask("submit", job_id, lambda d: d.submit_job(submission)))
        else:
            twin = None
        await self.ask("submit", job_id, lambda d: d.submit_job(submission))
        if twin is not None:
            await twin
        if self.plan.repeats and self.random.random() < 0.3:
            other = JobGraph.model_validate({**graph.model_dump(by_alias=True), "name": "another"})
            different = Submission(job_id, other, self.world.now, digest_of(other))
            await self.ask("submit-different", job_id, lambda d: d.submit_job(different))
        await asyncio.sleep(self.random.random() * 40)
        fate = self.random.random()
        if self.plan.cancels and fate < 0.35:
            await self.ask("cancel", job_id, lambda d: d.cancel_job(job_id))
        elif streaming:
            await self.ask("checkpoint", job_id, lambda d: d.trigger_checkpoint(job_id, "c1"))
            await self.ask("stop", job_id, lambda d: d.stop_job(job_id, "t1"))
            await asyncio.sleep(200)
            await self.ask("cancel", job_id, lambda d: d.cancel_job(job_id))
        await self._await_end(job_id)
        if self.plan.repeats and self.random.random() < 0.5:
            await asyncio.sleep(self.random.random() * 20)
            await self.ask("submit", job_id, lambda d: d.submit_job(submission))

    async def _await_end(self, job_id: JobID) -> None:
        async def look(dispatcher: Dispatcher) -> None:
            status = await dispatcher.request_job_status(job_id)
            if status.terminal:
                self.history.seen.append((self.world.now, job_id, status))
            else:
                raise FiresteelError(status.value)

        for _ in range(2):
            await self.ask("status", job_id, look, tries=800)

    def _graph(self, number: int, streaming: bool) -> JobGraph:
        r = self.random
        job_id = JobID(f"{self.plan.seed:016x}{number:016x}")
        failing = r.randrange(4) if self.plan.failures else 0
        durations = [r.choice([0.5, 3.0, 20.0]) * (0.5 + r.random()) for _ in range(failing + 1)]
        outcomes = ["fail"] * failing + ["ok"]
        if streaming:
            durations[-1] = 1e7
        self.world.scripts[job_id] = Script(durations, outcomes)
        restart = r.choice(
            [
                {"type": "none"},
                {"type": "fixed-delay", "attempts": 2, "delay": "5 s"},
                {"type": "exponential-delay", "initial_delay": "1 s", "max_delay": "10 s", "attempts": 3},
                {"type": "failure-rate", "max_failures": 2, "interval": "5 min", "delay": "2 s"},
            ]
        )
        return JobGraph.model_validate(
            {
                "name": f"job-{number}",
                "mode": "streaming" if streaming else "batch",
                "settings": {"restart": restart},
                "vertices": [
                    {"kind": "source", "name": "i", "format": "rate" if streaming else "csv", "path": "/x"},
                    {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": "/y"},
                ],
            }
        )

    # -- faults ---------------------------------------------------------------------------------------------------

    async def faults(self) -> None:
        plan, r = self.plan, self.random
        todo = ["kill"] * plan.kills + ["pause"] * plan.pauses
        todo += ["engine"] * plan.engine_kills + ["silence"] * plan.silences
        r.shuffle(todo)
        for fault in todo:
            await asyncio.sleep(r.random() * 15)
            leader = self.world.leader
            if fault == "kill" and leader is not None:
                leader.crash()
            elif fault == "pause" and leader is not None and leader.alive and not leader.paused:
                leader.pause()
                self.loop.call_later(LEASE * (0.2 + 3 * r.random()), leader.resume)
            elif fault == "silence" and self.world.engines:
                victim = r.choice(sorted(self.world.engines))
                self.history.engine_kills.append((self.world.now, victim))
                self.world.silent.add(victim)
            elif fault == "engine" and self.world.engines:
                victim = r.choice(sorted(self.world.engines))
                self.history.engine_kills.append((self.world.now, victim))
                self.world.kill_engine(victim)

    # -- the whole ------------------------------------------------------------------------------------------------

    async def play(self) -> History:
        elections = asyncio.ensure_future(self.world.hold_elections())
        for _ in range(self.plan.nodes):
            self.start_node()
        clients = [asyncio.ensure_future(self.client(i)) for i in range(self.plan.jobs)]
        await asyncio.gather(self.faults(), *clients)
        deadline = self.world.now + SETTLE
        while self.world.now < deadline and not self._clean():  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(1.0)
        self.history.settled = self._clean()
        # Nothing runs any more: every engine is idle, and must have been stopped by whoever leads after this.
        await asyncio.sleep(400)
        self.history.orphans = sorted(self.world.engines)
        first = next((p for p in self.dispatchers if p.name == "node-1"), None)
        if first is not None and first.alive:
            self.history.steps = first.steps
        elections.cancel()
        return self.history

    def _clean(self) -> bool:
        busy = any(p.startswith(("graphs/", "jobs/")) for p in self.world.data)
        dirty = any(b'"dirty":true' in s.value for p, s in self.world.data.items() if p.startswith("results/"))
        return not busy and not dirty


def simulate(plan: Plan) -> History:
    """Play a plan to its end. The same plan gives the same history."""
    directory = Path(tempfile.mkdtemp(prefix="firesteel-sim-"))
    to_thread, state = asyncio.to_thread, random.getstate()
    random.seed(plan.seed)
    asyncio.to_thread = inline
    try:

        async def main() -> History:
            return await Simulation(plan, directory).play()

        return run(main)
    finally:
        asyncio.to_thread = to_thread
        random.setstate(state)
        with contextlib.suppress(OSError):
            shutil.rmtree(directory)
