"""The interface between a JobMaster and what runs its attempts. Free of processes and Spark, so that it can be
simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from firesteel.attempts.attempt import AttemptResult
from firesteel.engines.record import EngineRecord
from firesteel.jobgraph.model import JobGraph
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.types import AttemptId, Guard, JobID


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything that one attempt needs to know."""

    attempt: AttemptId
    graph: JobGraph
    engine: EngineRecord | None
    """None: a classic driver with a JVM of its own."""
    owner: str = ""
    restricted: bool = False
    """Whether the job's submitter is not an admin."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that its driver has beside the usual ones. They may be secret."""
    given_up: int = 0
    """The last attempt of the job that was given up without being seen to end (its host is lost, or out of reach): it may
    wake up, and must not be able to commit. 0 when each was seen to end."""


class Presence(StrEnum):
    ABSENT = "absent"
    """Never started, and it is certain that no other leader is about to start it unnoticed: starting is safe."""
    RUNNING = "running"
    ENDED = "ended"


class AttemptExecutor(Protocol):
    """Runs attempts that outlive the control plane. Every method may be repeated, by this leader or the next."""

    def place(self, attempt: AttemptId, worker: str) -> None:
        """Say which worker has an attempt, or is to have it, before anything is asked about it. Empty: that of this node."""
        ...

    async def start(self, deployment: Deployment) -> None:
        """Start the attempt. An attempt that was started before, by any leader, is not started again.

        Raises FiresteelError when it cannot be started; the caller then calls `fence`.
        """
        ...

    async def find(self, attempt: AttemptId) -> Presence:
        """What became of an attempt that an earlier leader meant to start."""
        ...

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        """Wait for the end of a running attempt. A driver that vanished gives the failure that its end shows."""
        ...

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None:
        """Ask a running attempt to end, and see to it that it does, within the driver's cancel timeout.

        `guard` is called as late as possible: a leader that was paused on its way here, and wakes up when another
        one has taken the attempt over, ends nothing (I7).
        """
        ...

    async def stop(self, attempt: AttemptId) -> None:
        """Ask a streaming attempt to end after its current batch, FINISHED. Returns at once."""
        ...

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        """Make sure that the attempt does nothing any more, now or later: end its driver, release its Spark session, spend
        its id. Returns its result, which is final: the one it had reached by itself, else CANCELED. `given_up` in it says
        that nobody could make sure, and that the attempt counts as ended all the same.

        Raises EngineLostError when the engine does not answer, so that its session may still run there; not with
        `unreachable`, by which the caller says that it will never be reached again.
        """
        ...

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        """Wait until all that a streaming attempt has read so far is committed; the last batch by sink."""
        ...

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None:
        """Write down at `location` what a savepoint there is to hold. Raises SavepointError when that is impossible.

        Here and below: nothing is opened that `owner` may not open, wherever the place leads.
        """
        ...

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        """Complete the savepoint that was prepared at `location`; the last batch by sink. A complete one stays as it is.

        `attempt` is the one that runs, and goes on. Without one the job is `stopped` and its checkpoints are kept; else
        nothing can be copied any more, and only a savepoint that is complete already is answered.

        Raises SavepointError.
        """
        ...

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        """Bytes by sink, of a complete savepoint. Raises SavepointError."""
        ...

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None:
        """Remove what `prepare_savepoint` left, of a savepoint that will not be taken."""
        ...

    async def dispose_savepoint(self, location: str, *, owner: str = "", resumed: bool = False) -> None:
        """Remove a complete savepoint, and nothing else; see `savepoint.dispose`. Raises SavepointError."""
        ...

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        """The progress of the attempt, as its driver reports it: phase, and per sink its state, rows and batch. May be
        empty."""
        ...

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        """The numbers of all attempts of a job that left a trace, ascending."""
        ...

    async def tidied(self, attempt: AttemptId) -> None:
        """Return when nothing more will be known of an attempt that has its result. Not long."""
        ...

    async def prune(self, job_id: JobID, keep: int) -> None:
        """Remove all that is left of attempts but the last `keep`."""
        ...

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None:
        """Remove what is only needed while the job may run again, once `guard` has let it pass. Its logs stay."""
        ...
