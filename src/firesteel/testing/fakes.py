"""Fake engines and attempts, to test a control plane without Spark, and in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import EngineLostError, SavepointError
from firesteel.failure import Failure
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.types import AttemptId, Guard, JobID

Outcome = Callable[[Deployment], AttemptResult | None]
"""How an attempt ends right after its start; None if it runs until it is told to end."""


def finishes(_deployment: Deployment) -> AttemptResult:
    """Every attempt finishes at once."""
    return AttemptResult(AttemptState.FINISHED, ended_at=time.time())


def runs_on(_deployment: Deployment) -> None:
    """Every attempt runs until it is told to end."""


def fails(failure: Failure) -> Outcome:
    """Every attempt fails at once, with this failure."""
    return lambda _: AttemptResult(AttemptState.FAILED, failure, time.time())


class FakeEngines:
    """An EngineProvider whose engines start at once and answer until they are lost."""

    def __init__(self) -> None:
        self.started: list[EngineRecord] = []
        """The specs of all started engines, in order."""
        self.start_errors: list[Exception] = []
        """Errors to raise, one for each of the next starts."""
        self._alive: dict[str, EngineRecord] = {}
        self._silent: set[str] = set()
        self._numbers = itertools.count(1)

    @property
    def alive(self) -> tuple[EngineRecord, ...]:
        return tuple(self._alive.values())

    def lose(self, engine_id: str) -> None:
        """Lose the engine, as if its process had been killed."""
        self._alive.pop(engine_id, None)

    def silence(self, engine_id: str) -> None:
        """Make the engine run on without answering."""
        self._silent.add(engine_id)

    async def start(self, spec: EngineSpec, worker: str = "") -> EngineRecord:
        if self.start_errors:
            raise self.start_errors.pop(0)
        record = EngineRecord(f"fake-{next(self._numbers)}", spec, "localhost", 1, worker=worker)
        self.started.append(record)
        self._alive[record.engine_id] = record
        return record

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        if await self.health(record) is not EngineHealth.WELL:
            raise EngineLostError(f"engine {record.engine_id} is gone, or does not answer")
        return record

    async def there(self, record: EngineRecord) -> bool:
        return record.engine_id in self._alive

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None:
        guard()
        self.lose(record.engine_id)

    async def health(self, record: EngineRecord) -> EngineHealth:
        if record.engine_id not in self._alive:
            return EngineHealth.GONE
        return EngineHealth.SILENT if record.engine_id in self._silent else EngineHealth.WELL

    async def last_words(self, record: EngineRecord) -> str:
        return ""

    async def existing(self) -> Sequence[EngineRecord]:
        return self.alive

    async def shared(self) -> Sequence[EngineRecord]:
        return ()


@dataclass(frozen=True, slots=True)
class FakeAttempt:
    """A started attempt, and its end."""

    deployment: Deployment
    ended: asyncio.Future[AttemptResult]


class FakeExecutor:
    """An AttemptExecutor whose attempts end as `outcome` says, without processes. They outlive a leader, like real ones."""

    def __init__(self, outcome: Outcome = finishes) -> None:
        self.outcome = outcome
        self._attempts: dict[AttemptId, FakeAttempt] = {}
        self._verdicts: dict[AttemptId, AttemptResult] = {}
        """Fenced attempts that were never started, and never will be."""

    @property
    def started(self) -> tuple[Deployment, ...]:
        """All attempts so far, in order."""
        return tuple(attempt.deployment for attempt in self._attempts.values())

    def end(self, job_id: JobID, result: AttemptResult) -> None:
        """End the running attempt of a job. Call it through `MiniCluster.call` in a test."""
        for attempt, fake in self._attempts.items():
            if attempt.job_id == job_id and not fake.ended.done():
                fake.ended.set_result(result)

    def result_of(self, attempt: AttemptId) -> AttemptResult | None:
        """How an attempt that was started has ended; None while it runs."""
        ended = self._attempts[attempt].ended
        return ended.result() if ended.done() else None

    def place(self, attempt: AttemptId, worker: str) -> None:
        """See AttemptExecutor. All are in this process."""

    async def start(self, deployment: Deployment) -> None:
        attempt = deployment.attempt
        if attempt in self._attempts or attempt in self._verdicts:
            return
        fake = FakeAttempt(deployment, asyncio.get_running_loop().create_future())
        self._attempts[attempt] = fake
        if (result := self.outcome(deployment)) is not None:
            fake.ended.set_result(result)

    async def find(self, attempt: AttemptId) -> Presence:
        if attempt not in self._attempts:
            return Presence.ENDED if attempt in self._verdicts else Presence.ABSENT
        return Presence.ENDED if self._attempts[attempt].ended.done() else Presence.RUNNING

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        if attempt in self._verdicts:
            return self._verdicts[attempt]
        return await asyncio.shield(self._attempts[attempt].ended)

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None:
        guard()
        self._end(attempt, AttemptResult(AttemptState.CANCELED, ended_at=time.time()))

    async def stop(self, attempt: AttemptId) -> None:
        self._end(attempt, AttemptResult(AttemptState.FINISHED, ended_at=time.time(), stopped=True))

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        guard()
        canceled = AttemptResult(AttemptState.CANCELED, ended_at=time.time())
        if attempt not in self._attempts:
            return self._verdicts.setdefault(attempt, canceled)
        self._end(attempt, canceled)
        return self._attempts[attempt].ended.result()

    def _end(self, attempt: AttemptId, result: AttemptResult) -> None:
        fake = self._attempts.get(attempt)
        if fake is not None and not fake.ended.done():
            fake.ended.set_result(result)

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        return {}

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None:
        raise SavepointError("attempts of a FakeExecutor have no state")

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        raise SavepointError("attempts of a FakeExecutor have no state")

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        raise SavepointError("attempts of a FakeExecutor have no state")

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None:
        pass

    async def dispose_savepoint(self, location: str, *, owner: str = "", resumed: bool = False) -> None:
        raise SavepointError("attempts of a FakeExecutor have no state")

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        return {}

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        return sorted(a.number for a in (*self._attempts, *self._verdicts) if a.job_id == job_id)

    async def tidied(self, attempt: AttemptId) -> None:
        pass

    async def prune(self, job_id: JobID, keep: int) -> None:
        pass

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None:
        guard()
