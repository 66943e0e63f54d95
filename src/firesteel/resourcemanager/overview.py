"""Engines and the slot queue, as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firesteel.engines.command import local_cores
from firesteel.engines.record import EngineRecord
from firesteel.resourcemanager.state import Engine, EngineState
from firesteel.types import JobID


@dataclass(frozen=True, slots=True)
class EngineOverview:
    engine_id: str
    """While it starts, a temporary name that no engine has."""
    master: str
    memory: str
    cores: int
    """0 when that is not known."""
    slots: int
    free: int
    state: EngineState
    since: float
    """When it was started (seconds since 1970); 0 for one that was attached."""
    address: str = ""
    foreign: bool = False
    """Not started by this cluster, and never stopped by it."""
    jobs: tuple[JobID, ...] = ()
    """Who holds its slots."""
    owner: str | None = None
    """The owner whose jobs it is for; None: all owners, or none assigned yet."""
    worker: str = ""
    """The id of the worker that has it."""
    worker_name: str = ""


@dataclass(frozen=True, slots=True)
class ResourceOverview:
    engines: tuple[EngineOverview, ...]
    waiting: int
    """Requests that have no slot yet."""
    classic: int
    """Classic drivers, each with the room of one engine."""
    waits_for: Mapping[JobID, str] = field(default_factory=dict)
    """Of jobs that no worker which would do accepts now: which workers they wait for."""

    @property
    def ready(self) -> list[EngineOverview]:
        """The engines that are there for jobs."""
        return [e for e in self.engines if e.state is EngineState.READY]


NO_RESOURCES = ResourceOverview((), 0, 0)


def engine_overview(
    engine: Engine, record: EngineRecord | None, since: float, worker: str, worker_name: str
) -> EngineOverview:
    usable = engine.state is EngineState.READY and engine.exclusive_to is None
    return EngineOverview(
        engine_id=engine.key,
        master=engine.spec.master,
        memory=engine.spec.memory,
        cores=record.cores if record and not engine.spec.attached else local_cores(engine.spec.master),
        slots=engine.slots,
        free=max(0, engine.slots - len(engine.holders)) if usable else 0,
        state=engine.state,
        since=record.started_at if record else since,
        address=record.address if record else "",
        foreign=engine.foreign,
        jobs=tuple(engine.holders.values()),
        owner=engine.spec.owner,
        worker=worker,
        worker_name=worker_name,
    )
