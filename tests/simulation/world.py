"""The world that outlives every control plane: the store, the engines, the attempts that run, and a record of what happened.

A simulated node touches it only through `Process`, which adds delay, and at which a crash or a pause can strike between any two
things that the node does. The world notes what was done by whom; `invariants.py` judges it afterwards.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import (
    EngineLostError,
    EngineStartError,
    FencingError,
    FiresteelError,
    SavepointError,
    StoreUnavailableError,
    VersionConflictError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.ha.protocols import NEW, Epoch, LeaderInformation, LeaderListener, Stored
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.types import AttemptId, Guard, JobID

LEASE = 3.0


@dataclass
class Script:
    """What the attempts of one job do, in their order; the last goes on for ever."""

    durations: list[float]
    outcomes: list[str]
    """`ok`, `fail`."""

    def attempt(self, number: int) -> tuple[float, str]:
        i = min(number, len(self.durations)) - 1
        return self.durations[i], self.outcomes[i]


@dataclass(eq=False)
class Run:
    """One driver process."""

    attempt: AttemptId
    engine_id: str | None
    began: float
    outcome: str
    streaming: bool
    ended: asyncio.Future[AttemptResult]
    ended_at: float | None = None
    how: str = ""
    """Why it ended: `itself`, `cancel`, `fence`, `engine`, `stop`."""


@dataclass(frozen=True)
class Effect:
    at: float
    epoch: int
    """Of the process that did it."""
    newest: int
    """The newest epoch that had been granted then."""
    what: str
    subject: str


@dataclass
class World:
    random: random.Random
    scripts: dict[JobID, Script] = field(default_factory=dict)
    data: dict[str, Stored] = field(default_factory=dict)
    epoch: int = 0
    leader: Process | None = None
    address: str = ""
    runs: dict[AttemptId, Run] = field(default_factory=dict)
    tombstones: dict[AttemptId, AttemptResult] = field(default_factory=dict)
    forgotten: set[AttemptId] = field(default_factory=set)
    engines: dict[str, EngineRecord] = field(default_factory=dict)
    dead_engines: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    """Engines that somebody is about to end."""
    silent: set[str] = field(default_factory=set)
    """Engines that run and do not answer."""
    effects: list[Effect] = field(default_factory=list)
    writes: list[tuple[float, int, int, str, bytes | None]] = field(default_factory=list)
    """(time, epoch, newest epoch, path, value) of every write that happened."""
    cleared: set[JobID] = field(default_factory=set)
    savepoints: dict[str, bool] = field(default_factory=dict)
    """By place; False until they are complete."""
    sequence: int = 0
    fencing: bool = True
    """False: a deliberate bug of the store."""
    contenders: list[Process] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def effect(self, process: Process, what: str, subject: object) -> None:
        self.effects.append(Effect(self.now, process.epoch, self.epoch, what, str(subject)))

    # -- elections ------------------------------------------------------------------------------------------------

    async def hold_elections(self) -> None:
        """A leader that is dead is replaced soon, one that is silent after its lease."""
        while True:
            leader = self.leader
            if leader is not None and leader.alive and not leader.paused_beyond_lease:
                await self._wait(0.5)
                continue
            if leader is not None:
                self.leader = None
            waiting = [p for p in self.contenders if p.alive and not p.paused and p is not leader]
            if not waiting:
                await self._wait(0.5)
                continue
            chosen = waiting[0]
            self.epoch += 1
            self.leader, chosen.epoch, self.address = chosen, self.epoch, ""
            chosen.election_.grant()

    async def _wait(self, seconds: float) -> None:
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except TimeoutError:
            pass

    # -- attempts -------------------------------------------------------------------------------------------------

    def start_run(self, deployment: Deployment) -> None:
        attempt = deployment.attempt
        if attempt in self.runs or attempt in self.tombstones:
            return  # the claim: an attempt is started once, by whomever
        duration, outcome = self.scripts[attempt.job_id].attempt(attempt.number)
        loop = asyncio.get_running_loop()
        engine = deployment.engine.engine_id if deployment.engine else None
        streaming = deployment.graph.mode.value == "streaming"
        run = Run(attempt, engine, self.now, outcome, streaming, loop.create_future())
        self.runs[attempt] = run
        loop.call_later(duration, self._end_by_itself, run)

    def _end_by_itself(self, run: Run) -> None:
        if run.ended.done():
            return
        if run.outcome == "ok":
            self.end_run(run, AttemptResult(AttemptState.FINISHED, ended_at=self.now), "itself")
        else:
            failure = Failure(FailureKind.DATA, "scripted")
            self.end_run(run, AttemptResult(AttemptState.FAILED, failure, self.now), "itself")

    def end_run(self, run: Run, result: AttemptResult, how: str) -> None:
        if not run.ended.done():
            run.ended_at, run.how = self.now, how
            run.ended.set_result(result)
            self.tombstones[run.attempt] = result

    def kill_engine(self, engine_id: str) -> None:
        self.engines.pop(engine_id, None)
        self.dead_engines.add(engine_id)
        for run in self.runs.values():
            if run.engine_id == engine_id and not run.ended.done():
                failure = Failure(FailureKind.ENGINE_LOST, "its engine is gone")
                self.end_run(run, AttemptResult(AttemptState.FAILED, failure, self.now), "engine")

    def live_runs(self, job_id: JobID) -> list[Run]:
        return [r for a, r in self.runs.items() if a.job_id == job_id and not r.ended.done()]


class Process:
    """One control-plane process: everything it does to the world goes through here."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.epoch = 0
        self.alive = True
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.paused = False
        self.paused_at = 0.0
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.steps = 0
        """Persistence steps so far: every write, and every act on the outside."""
        self.crash_at: tuple[int, str] | None = None
        """(step, `before` or `after`)."""
        self.election_ = SimElection(self)
        self.pause_at = 0
        """The persistence step at which it stands still until another has long led."""
        self.on_crash: Any = None
        self.on_pause: Any = lambda: None
        self.flaky = 0.0
        """How likely a store operation fails in passing."""
        self.doubts = 0.0
        """How likely a renewal of the lease comes with a moment of doubt."""
        self.nasty = 0.0
        """How likely anything asked of attempts or engines fails with an error of the system (F24)."""
        self.start_errors = 0.0
        """How likely the start of an attempt fails; half of those that fail did start it (F16)."""

    @property
    def paused_beyond_lease(self) -> bool:
        return self.paused and self.world.now - self.paused_at > LEASE

    @property
    def store(self) -> SimStore:
        return SimStore(self)

    def election(self, _contender: str) -> SimElection:
        return self.election_

    async def close(self) -> None: ...

    # -- faults ---------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        if self.alive:
            self.alive = False
            self.died.set_result(None)
            self.world.changed.set()
            self.on_crash(self)

    def pause(self) -> None:
        self.paused, self.paused_at = True, self.world.now
        self.on_pause()
        self._resumed.clear()

    def resume(self) -> None:
        self.paused = False
        self._resumed.set()
        # It is told in its own time; what it does until then is its own clock's matter.
        asyncio.get_running_loop().call_later(self.world.random.random(), self.election_.notice)

    async def touch(self, *, counts: bool = False, delay: float = 0.02) -> None:
        """Before anything reaches the world."""
        await self._live(delay)
        if counts:
            self.steps += 1
            if self.pause_at == self.steps:
                self.pause()
                asyncio.get_running_loop().call_later(LEASE * 4, self.resume)
                await self._live(0)
            if self.crash_at == (self.steps, "before"):
                self.crash()
                await self._live(0)

    async def touched(self, *, delay: float = 0.01) -> None:
        """After it did, before the caller hears of it."""
        if self.crash_at == (self.steps, "after"):
            self.crash()
        await self._live(delay)

    async def _live(self, delay: float) -> None:
        if not self.alive:
            raise asyncio.CancelledError
        await asyncio.sleep(self.world.random.random() * delay)
        while self.paused:
            await self._resumed.wait()
        if not self.alive:
            raise asyncio.CancelledError

    def fail_perhaps(self) -> None:
        if self.world.random.random() < self.nasty:
            raise OSError(errno.EMFILE, "too many open files")

    def check(self, epoch: Epoch) -> None:
        if self.world.fencing and epoch != self.world.epoch:
            raise FencingError(f"epoch {epoch} is not {self.world.epoch}")


@dataclass(eq=False)
class _Part:
    process: Process

    @property
    def world(self) -> World:
        return self.process.world


class SimElection(_Part):
    """A LeaderElectionDriver."""

    listener: LeaderListener | None = None
    granted = 0
    renewed = 0.0
    doubt_until = 0.0

    async def start(self, listener: LeaderListener) -> None:
        self.listener = listener
        self.world.contenders.append(self.process)
        self.world.changed.set()

    def grant(self) -> None:
        self.granted = self.world.epoch
        self.renewed = self.world.now
        assert self.listener is not None
        self.listener.on_grant(Epoch(self.granted))

    def notice(self) -> None:
        """Find out that somebody else leads."""
        if self.process.alive and self.granted and self.world.epoch != self.granted and self.listener is not None:
            self.granted = 0
            self.listener.on_revoke()

    def holds(self, epoch: Epoch) -> bool:
        """By its own clock and what it was told, like a real one: it knows nothing of other nodes."""
        if not (self.process.alive and epoch == self.granted):
            return False
        return self.world.now < self.renewed + LEASE * 2 / 3 and self.world.now >= self.doubt_until

    async def renew(self) -> None:
        """The renewals of a real driver; a process that stands still renews nothing."""
        while True:
            await asyncio.sleep(LEASE / 3)
            if self.process.paused or not self.process.alive:
                continue
            if self.granted and self.world.epoch == self.granted:
                self.renewed = self.world.now
                if self.world.random.random() < self.process.doubts:
                    # For a moment it is not certain, and then it turns out that nothing had happened.
                    self.doubt_until = self.world.now + 0.3
            else:
                self.notice()

    async def publish(self, epoch: Epoch, address: str) -> None:
        await self.process.touch()
        self.process.check(epoch)
        self.world.address = address

    async def leader(self) -> LeaderInformation | None:
        return None

    async def resign(self, epoch: Epoch, *, patience: float) -> None: ...

    async def close(self) -> None: ...


class SimStore(_Part):
    """A StateStore."""

    async def _store(self) -> None:
        await self.process.touch()
        if self.world.random.random() < self.process.flaky:
            raise StoreUnavailableError("in passing")

    async def get(self, path: str) -> Stored | None:
        await self._store()
        return self.world.data.get(path)

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        await self._store()
        return {p: s for p, s in sorted(self.world.data.items()) if p.startswith(prefix + "/")}

    async def paths(self, prefix: str) -> Sequence[str]:
        return sorted(await self.list(prefix))

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        await self.process.touch(counts=True)
        unlucky = self.world.random.random() < self.process.flaky
        if unlucky and self.world.random.random() < 0.5:
            raise StoreUnavailableError("before the write")
        self.process.check(epoch)
        there = self.world.data.get(path)
        if expected is not None and expected != (there.version if there else NEW):
            raise VersionConflictError(path)
        self.world.sequence += 1
        self.world.data[path] = Stored(value, self.world.sequence)
        self.world.writes.append((self.world.now, epoch, self.world.epoch, path, value))
        version = self.world.sequence
        await self.process.touched()
        if unlucky:
            raise StoreUnavailableError("after the write")
        return version

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        await self.process.touch(counts=True)
        if self.world.random.random() < self.process.flaky:
            raise StoreUnavailableError("before the delete")
        self.process.check(epoch)
        found = self.world.data.pop(path, None)
        if found is not None:
            self.world.writes.append((self.world.now, epoch, self.world.epoch, path, None))
        await self.process.touched()
        return found is not None

    async def close(self) -> None: ...


class SimEngines(_Part):
    """An EngineProvider."""

    async def start(self, spec: EngineSpec, worker: str) -> EngineRecord:
        await self.process.touch(counts=True)
        if self.world.random.random() < self.process.start_errors:
            raise EngineStartError("it did not come up")
        self.world.sequence += 1
        engine_id = f"engine-{self.world.sequence}"
        process = ProcessIdentity(self.world.sequence, "1")
        record = EngineRecord(engine_id, spec, "localhost", 1, process=process, worker=worker)
        self.world.engines[engine_id] = record
        self.world.effect(self.process, "start-engine", engine_id)
        await self.process.touched(delay=3.0)
        return record

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        await self.process.touch()
        if record.engine_id in self.world.silent:
            await asyncio.sleep(30)
        if record.engine_id not in self.world.engines or record.engine_id in self.world.silent | self.world.stopping:
            raise EngineLostError(f"{record.engine_id} is gone, or does not answer")
        return record

    async def there(self, record: EngineRecord) -> bool:
        await self.process.touch()
        return record.engine_id in self.world.engines and record.engine_id not in self.world.stopping

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None:
        await self.process.touch(counts=True)
        there = record.engine_id in self.world.stopping
        self.world.stopping.add(record.engine_id)
        try:
            guard()
        except FencingError:
            if not there:
                self.world.stopping.discard(record.engine_id)
            raise
        await self.process.touch(counts=True)
        if record.engine_id in self.world.engines:
            self.world.effect(self.process, "stop-engine", record.engine_id)
            self.world.kill_engine(record.engine_id)
        await self.process.touched()

    async def health(self, record: EngineRecord) -> EngineHealth:
        await self.process.touch()
        if record.engine_id not in self.world.engines or record.engine_id in self.world.stopping:
            return EngineHealth.GONE
        return EngineHealth.SILENT if record.engine_id in self.world.silent else EngineHealth.WELL

    async def last_words(self, record: EngineRecord) -> str:
        return ""

    async def existing(self) -> Sequence[EngineRecord]:
        await self.process.touch()
        return tuple(self.world.engines.values())

    async def shared(self) -> Sequence[EngineRecord]:
        return ()

    async def close(self) -> None: ...


class SimExecutor(_Part):
    """An AttemptExecutor."""

    def place(self, attempt: AttemptId, worker: str) -> None:
        pass

    async def start(self, deployment: Deployment) -> None:
        await self.process.touch(counts=True)
        unlucky = self.world.random.random() < self.process.start_errors
        if unlucky and self.world.random.random() < 0.5:
            raise FiresteelError("it was not started")
        before = len(self.world.runs)
        self.world.start_run(deployment)
        if len(self.world.runs) > before:
            self.world.effect(self.process, "start", deployment.attempt)
        engine = deployment.engine
        if engine is not None and engine.engine_id in self.world.dead_engines:
            self.world.kill_engine(engine.engine_id)
        await self.process.touched()
        if unlucky:
            raise FiresteelError("it was started, but nobody can tell")

    async def find(self, attempt: AttemptId) -> Presence:
        await self.process.touch()
        self.process.fail_perhaps()
        run = self.world.runs.get(attempt)
        if run is None:
            return Presence.ENDED if attempt in self.world.tombstones else Presence.ABSENT
        return Presence.ENDED if run.ended.done() else Presence.RUNNING

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        await self.process.touch()
        run = self.world.runs.get(attempt)
        result = await asyncio.shield(run.ended) if run is not None else self.world.tombstones[attempt]
        await self.process.touch()
        self.process.fail_perhaps()
        return result

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None:
        await self.process.touch(counts=True)
        self.process.fail_perhaps()
        guard()
        self._end(attempt, "cancel")
        await self.process.touched(delay=2.0)

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        await self.process.touch(counts=True)
        self.process.fail_perhaps()
        guard()
        run = self.world.runs.get(attempt)
        if run is not None and run.engine_id in self.world.silent and not unreachable:
            raise EngineLostError("its engine does not answer")
        self._end(attempt, "fence")
        result = self.world.tombstones.setdefault(
            attempt, AttemptResult(AttemptState.CANCELED, ended_at=self.world.now)
        )
        await self.process.touched()
        return result

    def _end(self, attempt: AttemptId, how: str) -> None:
        run = self.world.runs.get(attempt)
        if run is not None and not run.ended.done():
            self.world.effect(self.process, how, attempt)
            self.world.end_run(run, AttemptResult(AttemptState.CANCELED, ended_at=self.world.now), how)

    async def stop(self, attempt: AttemptId) -> None:
        await self.process.touch(counts=True)
        self.process.fail_perhaps()
        run = self.world.runs.get(attempt)
        if run is not None:
            result = AttemptResult(AttemptState.FINISHED, ended_at=self.world.now, stopped=True)
            asyncio.get_running_loop().call_later(1.0, self.world.end_run, run, result, "stop")

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        await self.process.touch(delay=2.0)
        self.process.fail_perhaps()
        if attempt in self.world.tombstones:
            raise FiresteelError("the attempt has ended")
        return {"o": 1}

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None:
        await self.process.touch(counts=True)
        self.process.fail_perhaps()
        self.world.savepoints.setdefault(location, False)
        await self.process.touched()

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        return {"o": 64}

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        await self.process.touch(counts=True, delay=2.0)
        self.process.fail_perhaps()
        if not self.world.savepoints.get(location):
            if location not in self.world.savepoints:
                raise SavepointError("it was never prepared")
            if not stopped and (attempt is None or attempt in self.world.tombstones):
                raise SavepointError("the job ended before")
            self.world.savepoints[location] = True
        await self.process.touched()
        return {"o": 1}

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None:
        await self.process.touch(counts=True)
        if self.world.savepoints.get(location) is False:
            del self.world.savepoints[location]
        await self.process.touched()

    async def dispose_savepoint(self, location: str, *, owner: str = "", resumed: bool = False) -> None:
        await self.process.touch(counts=True)
        self.process.fail_perhaps()
        if not self.world.savepoints.get(location) and not resumed:
            raise SavepointError(f"there is no savepoint at {location}")
        self.world.savepoints.pop(location, None)
        await self.process.touched()

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        return {}

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        await self.process.touch()
        known = {a.number for a in (*self.world.runs, *self.world.tombstones) if a.job_id == job_id}
        return sorted(known)

    async def tidied(self, attempt: AttemptId) -> None: ...

    async def prune(self, job_id: JobID, keep: int) -> None: ...

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None:
        await self.process.touch(counts=True)
        self.process.fail_perhaps()
        guard()
        self.world.forgotten.add(attempt)
        await self.process.touched()
