"""What others see of the workers: one line each, and what people may say of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from firesteel.rpc.messages import Heard, Registered, Registration, WorkerReport
from firesteel.stores.workers import WorkerRecord
from firesteel.types import AttemptId, JobID


class Standing(StrEnum):
    """What the leader knows of a worker."""

    EXPECTED = "EXPECTED"
    """It is known from the store or from records of jobs, and has not registered at this leader yet."""
    CONNECTED = "CONNECTED"
    SILENT = "SILENT"
    """It was connected, and is not heard any more. What runs there may run on."""
    LOST = "LOST"
    """Nothing of it runs any more, for certain: it was bound to stop by itself, or somebody who can know has said so."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    worker: str
    name: str
    host: str
    address: str
    standing: Standing
    draining: bool
    incarnation: str
    embedded: bool
    """It is part of a node, which speaks for it."""
    cores: int
    memory: str
    labels: Mapping[str, str]
    sandbox: str
    policy: str
    """What it does when it hears from no node: `stop` or `run-on`."""
    max_engines: int
    engines: int
    attempts: int
    since: float
    """When it came into its standing."""
    last_heard: float | None
    gone_at: float | None
    """When nothing of a silent worker runs any more, by its own word; None when nobody can say."""
    revoked: bool = False
    """Its credential is of no use any more."""


class FleetView(Protocol):
    """The workers of a leader. Each change raises WorkerNotFoundError for an id that is not known."""

    def workers(self) -> Sequence[WorkerView]: ...

    def joined(self, record: WorkerRecord) -> None:
        """A worker has joined, and will register. May be told again."""
        ...

    async def drain(self, worker: str) -> None:
        """Let it get no new jobs; what runs there runs to its end. Durable when this returns."""
        ...

    async def undrain(self, worker: str) -> None: ...

    async def declare_lost(self, worker: str, by: str) -> None:
        """Count everything that runs there as ended, because `by` says so. Raises WorkerStateError for one that is heard."""
        ...

    async def revoke(self, worker: str) -> None:
        """Let its credential be of no use from now on, and end its connection."""
        ...


class WorkerSessions(Protocol):
    """What workers themselves ask of their leader."""

    heartbeat: float
    """Seconds between two reports."""

    async def register(self, registration: Registration) -> Registered: ...

    def commands(self, worker: str, incarnation: str) -> AsyncIterator[bytes]:
        """The commands for one process of a worker, a line each. Raises WorkerStateError for one that is not registered."""
        ...

    def report(self, worker: str, report: WorkerReport) -> Heard: ...

    def attempts_of(self, job_id: JobID) -> Sequence[tuple[str, AttemptId]]:
        """The attempts of a job whose files are on workers that are there."""
        ...

    async def call(self, worker: str, method: str, args: Mapping[str, Any]) -> Any:
        """Have a worker do something. Raises WorkerLostError."""
        ...
