"""The ResourceManager's interface to JobMasters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.resourcemanager.offers import ANYWHERE, Placement
from firesteel.types import JobID


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """What a job needs in order to run one attempt."""

    job_id: JobID
    engine: EngineSpec
    classic: bool = False
    """A JVM of its own that the attempt starts itself: it takes the room of an engine, and none is handed out."""
    driver_only: bool = False
    """A driver without Spark: it takes no room, and no engine is handed out."""
    exclusive: bool = False
    """No other job on the same engine (`engine.isolation: job`)."""
    priority: int = 0
    """Higher goes first; equal ones go by arrival."""
    arrival: float = 0.0
    """When the job was accepted. The order survives a failover because it is stored with the graph (I21)."""
    placement: Placement = ANYWHERE
    """Which workers will do."""


@dataclass(eq=False, slots=True)
class Slot:
    """A place to run, held by one job until it is released."""

    job_id: JobID
    engine: EngineRecord | None
    """None for a classic driver, and for one without Spark."""
    lost: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done, with the reason, when the engine or its worker is gone. The slot need not be released then."""
    worker: str = ""
    """Where the driver runs, and the engine, unless it was attached."""
    worker_lost: bool = False
    """Once `lost` is done: whether the whole worker is gone."""


class ResourceManagerGateway(Protocol):
    async def request_slot(self, request: SlotRequest) -> Slot:
        """Wait for a slot. Cancelling the call gives up the place in the queue.

        Raises ResourcesUnavailableError when no worker of the cluster will ever do for the job, and EngineStartError when
        an engine was started for this job and did not come up.
        """
        ...

    def expect(self, held: Sequence[tuple[str | None, str]]) -> None:
        """Announce, before any request, what recovered jobs hold, one entry per job: the engine (None: a classic driver)
        and the worker (empty: not known)."""
        ...

    async def reclaim_slot(self, request: SlotRequest, engine_id: str | None, worker: str = "") -> Slot | None:
        """The slot that the job held under an earlier leader; None when that engine is gone, or its worker is lost.

        Waits for a worker that has not come back yet. Until all jobs that `expect` named for an engine have asked, no
        other job is given a slot there.
        """
        ...

    def recovered(self) -> None:
        """All recovered jobs have reclaimed their slots; from here on, engines that no job needs may be stopped."""
        ...

    def release_slot(self, slot: Slot) -> None:
        """Give a slot back. Doing it twice is harmless."""
        ...

    async def suspect(self, engine_id: str) -> bool:
        """The engine seems not to answer: check it at once, and if it does not, end it and tell its jobs.

        Returns when that is settled: True when the engine answers after all, False when it is gone.
        """
        ...
