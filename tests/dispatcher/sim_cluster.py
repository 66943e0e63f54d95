"""A simulated cluster for tests of one thing at a time: production nodes on the simulated world, with faults on demand."""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.simulation.world import Process, Script, SimEngines, SimExecutor, SimStore, World

from firesteel.attempts.attempt import AttemptResult
from firesteel.blob.store import BlobStore
from firesteel.config import Configuration, load_configuration
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.entrypoint.wiring import Node
from firesteel.errors import NotLeadingError
from firesteel.ha.protocols import Epoch, Stored
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.enrichers import FailureEnrichers, load_enrichers
from firesteel.jobmaster.master import JobMaster
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.jobmaster.runner import MakeJobMaster
from firesteel.metrics.registry import MetricRegistry
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.status import JobStatus
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.testing.virtual_time import NODE, VirtualTimeLoop, inline
from firesteel.testing.virtual_time import run_in_virtual_time as run
from firesteel.types import AttemptId, Guard, JobID
from firesteel.worker.offer import local_offer

T = TypeVar("T")

LONG = 1000.0
"""Virtual seconds in which everything that can happen has happened."""
FOR_EVER = 1e7


@dataclass
class Faults:
    """What goes wrong next, on whichever node it happens."""

    writes: list[tuple[str, Exception]] = field(default_factory=list)
    """(how the path begins, what the write of it raises), each once."""
    closed: set[str] = field(default_factory=set)
    """How the paths begin whose writes wait."""
    fences: list[Exception] = field(default_factory=list)
    forgets: list[Exception] = field(default_factory=list)
    checkpoints_hang: bool = False
    savepoints_hang: bool = False
    prepares_hang: bool = False
    prepares: list[Exception] = field(default_factory=list)
    savepoints: list[Exception] = field(default_factory=list)
    clears: list[Exception] = field(default_factory=list)
    clears_wait: bool = False
    told: dict[str, Any] = field(default_factory=dict)
    """No fault: what drivers tell of themselves."""

    async def write(self, path: str) -> None:
        while any(path.startswith(p) for p in self.closed):  # noqa: ASYNC110 - virtual time: it costs nothing
            await asyncio.sleep(0.1)
        for fault in self.writes:
            if path.startswith(fault[0]):
                self.writes.remove(fault)
                raise fault[1]


class FaultyStore(SimStore):
    def __init__(self, process: Process, faults: Faults) -> None:
        super().__init__(process)
        self.faults = faults

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        await self.faults.write(path)
        return await super().put(path, value, epoch=epoch, expected=expected)

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        await self.faults.write(path)
        return await super().delete(path, epoch=epoch, expected=expected)


class FaultyExecutor(SimExecutor):
    def __init__(self, process: Process, faults: Faults) -> None:
        super().__init__(process)
        self.faults = faults

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        if self.faults.fences and not unreachable:
            await self.process.touch()
            raise self.faults.fences.pop(0)
        return await super().fence(attempt, unreachable=unreachable, guard=guard)

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        return self.faults.told

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None:
        if self.faults.forgets:
            raise self.faults.forgets.pop(0)
        await super().forget(attempt, guard=guard)

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        while self.faults.checkpoints_hang:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return await super().checkpoint(attempt)

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None:
        while self.faults.prepares_hang:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if self.faults.prepares:
            raise self.faults.prepares.pop(0)
        await super().prepare_savepoint(location, request)

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        while self.faults.savepoints_hang:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if self.faults.savepoints:
            raise self.faults.savepoints.pop(0)
        return await super().savepoint(location, attempt, stopped=stopped)


class FaultyProcess(Process):
    faults: Faults

    @property
    def store(self) -> SimStore:
        return FaultyStore(self, self.faults)


class Cluster:
    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.world = World(random.Random(1))
        self.faults = Faults()
        self.directory = directory
        self.configuration = configuration(options)
        self.make_job_master: MakeJobMaster = JobMaster
        self.archivist = HistoryArchivist(None)
        self.runners: dict[Process, DispatcherRunner] = {}
        self.fatal: list[BaseException] = []
        self.shut_downs = 0
        self.cleared: list[JobID] = []
        self.metrics = MetricRegistry()
        """Of all nodes."""
        self._elections = asyncio.ensure_future(self.world.hold_elections())

    # -- nodes ----------------------------------------------------------------------------------------------------

    def start_node(self) -> Process:
        process = FaultyProcess(self.world, f"node-{len(self.runners) + 1}")
        process.faults = self.faults
        process.on_crash = self._crashed
        node = Node(
            configuration=self.configuration,
            ha=process,
            executor=FaultyExecutor(process, self.faults),
            engines=SimEngines(process),
            finished=ExecutionGraphInfoStore(
                self.directory / process.name,
                max_count=100,
                max_age=1e9,
                cache_bytes=1 << 20,
                now=lambda: self.world.now,
            ),
            archivist=self.archivist,
            clear_outputs=self._clear_outputs,
            enrichers=FailureEnrichers(load_enrichers(())),
            files=JobFiles(
                BlobStore(self.directory / process.name / "blobs", max_size=1, quota=1), self.directory / process.name
            ),
            worker_id="w",
            worker=local_offer(self.configuration, shared_engine_spec(self.configuration), "w"),
            make_job_master=self.make_job_master,
            now=lambda: self.world.now,
            metrics=self.metrics,
        )

        async def live() -> None:
            runner = node.dispatcher_runner(
                process.election(process.name),
                address=process.name,
                on_fatal=self.fatal.append,
                on_shut_down=self._shut_down,
            )
            self.runners[process] = runner
            await runner.start()
            await process.election_.renew()

        self._inside(process, live())
        return process

    async def _clear_outputs(self, submission: Submission, _result: JobResult) -> None:
        while self.faults.clears_wait:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if self.faults.clears:
            raise self.faults.clears.pop(0)
        self.cleared.append(submission.job_id)

    def _shut_down(self) -> None:
        self.shut_downs += 1

    def _crashed(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.kill(process)

    def _inside(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as code of a process: it dies with it."""

        def start() -> asyncio.Task[T]:
            NODE.set(process)
            return asyncio.get_running_loop().create_task(work)

        return contextvars.copy_context().run(start)

    async def leader(self) -> Process:
        """The process that leads and serves."""

        def serves() -> bool:
            process = self.world.leader
            try:
                return process is not None and process.alive and self.runners[process].dispatcher is not None
            except (NotLeadingError, KeyError):
                return False

        await self.until(serves)
        assert self.world.leader is not None
        return self.world.leader

    async def dispatcher(self) -> Dispatcher:
        return self.runners[await self.leader()].dispatcher

    async def fail_over(self) -> Process:
        """The leader dies; a new node leads."""
        (await self.leader()).crash()
        self.start_node()
        return await self.leader()

    # -- clients --------------------------------------------------------------------------------------------------

    async def begin(self, call: Callable[[Dispatcher], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        process = await self.leader()
        return self._inside(process, call(self.runners[process].dispatcher))

    async def ask(self, call: Callable[[Dispatcher], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wait_for(await self.begin(call), LONG)

    def job(
        self,
        number: int,
        *durations: float,
        fails: int = 0,
        streaming: bool = False,
        name: str = "",
        restart: dict[str, Any] | None = None,
        heartbeat: float | None = None,
        **more: Any,
    ) -> Submission:
        """A job whose first `fails` attempts fail."""
        job_id = JobID(f"{number:032x}")
        durations = durations or ((FOR_EVER,) if streaming else (5.0,))
        self.world.scripts[job_id] = Script(
            [durations[min(n, len(durations) - 1)] for n in range(fails + 1)], ["fail"] * fails + ["ok"]
        )
        graph = JobGraph.model_validate(
            {
                "name": name or f"job-{number}",
                "mode": "streaming" if streaming else "batch",
                "settings": {"restart": restart or {"type": "none"}},
                "vertices": [
                    {"kind": "source", "name": "i", "format": "rate" if streaming else "csv", "path": "/x"},
                    {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": "/y"},
                ],
                **more,
            }
        )
        digest = digest_of(graph, initial_client_heartbeat_timeout=heartbeat)
        return Submission(job_id, graph, self.world.now, digest, initial_client_heartbeat_timeout=heartbeat)

    async def submit(self, submission: Submission) -> JobID:
        await self.ask(lambda d: d.submit_job(submission))
        return submission.job_id

    async def running(self, submission: Submission) -> JobID:
        """Submit, and wait until its attempt runs."""
        job_id = await self.submit(submission)
        await self.until(lambda: bool(self.world.live_runs(job_id)))
        await self.status(job_id, JobStatus.RUNNING)
        return job_id

    async def status(self, job_id: JobID, wanted: JobStatus) -> None:
        async def is_so() -> bool:
            return await self.ask(lambda d: d.request_job_status(job_id)) is wanted

        await self.until(is_so)

    async def result(self, job_id: JobID) -> JobResult:
        return await self.ask(lambda d: d.request_job_result(job_id))

    async def clean(self, *job_ids: JobID) -> None:
        """Until all that is left of the jobs is a clean result."""
        await self.until(lambda: all(self.stored(f"results/{j}").get("dirty") is False for j in job_ids))
        await asyncio.sleep(1)  # and the leader has heard of its own write

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], seconds: float = LONG) -> None:
        deadline = self.world.now + seconds
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            if self.world.now > deadline:
                pytest.fail(f"it never came to that; the store holds {sorted(self.world.data)}, fatal: {self.fatal}")
            await asyncio.sleep(0.1)

    # -- looking --------------------------------------------------------------------------------------------------

    def stored(self, path: str) -> dict[str, Any]:
        """What stands in the store; empty when nothing does, or nothing that can be read."""
        found = self.world.data.get(path)
        try:
            return dict(json.loads(found.value)) if found is not None else {}
        except ValueError:
            return {}

    def put(self, path: str, value: bytes) -> None:
        """By a hand that is not ours."""
        self.world.sequence += 1
        self.world.data[path] = Stored(value, self.world.sequence)

    def numbers(self, job_id: JobID) -> list[int]:
        """The attempts that were started."""
        return sorted(a.number for a in self.world.runs if a.job_id == job_id)

    def writes_of(self, prefix: str) -> list[str]:
        return [path for _, _, _, path, value in self.world.writes if value is not None and path.startswith(prefix)]


def configuration(options: dict[str, str]) -> Configuration:
    base = {
        "engine.master": "local[2]",
        "engine.slots": "4",
        "engine.max": "2",
        "heartbeat.interval": "1 s",
        "heartbeat.timeout": "5 s",
        "high-availability.type": "none",
    }
    return load_configuration(overrides=base | options, environ={"HOME": "/nonexistent"})


def play(
    directory: Path, main: Callable[[Cluster], Coroutine[Any, Any, None]], *, fatal: bool = False, **options: str
) -> None:
    """Run `main` with a cluster of no nodes in virtual time. Options by key, with `__` for a dot and `_` for a dash."""
    to_thread, state = asyncio.to_thread, random.getstate()
    random.seed(1)
    asyncio.to_thread = inline
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}

    async def inside() -> None:
        cluster = Cluster(directory, given)
        await main(cluster)
        assert fatal or not cluster.fatal, cluster.fatal

    try:
        run(inside)
    finally:
        asyncio.to_thread = to_thread
        random.setstate(state)


def once(
    directory: Path, main: Callable[[Cluster], Coroutine[Any, Any, None]], *, fatal: bool = False, **options: str
) -> None:
    """`play` with one node that leads."""

    async def with_node(cluster: Cluster) -> None:
        cluster.start_node()
        await cluster.leader()
        await main(cluster)

    play(directory, with_node, fatal=fatal, **options)
