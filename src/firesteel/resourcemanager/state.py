"""The ResourceManager's state: engines, slots held, requests waiting. No clock, no awaits, no I/O; `core` decides on
it."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from firesteel.engines.record import EngineSpec
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.offers import Placement, WorkerOffer
from firesteel.types import JobID

Ticket = int
"""One request, and the slot that it was granted. A job may have asked twice; tickets are never mistaken for each other."""
Held = tuple[str | None, str]
"""What a job of an earlier life holds: an engine (None: a classic driver) and its worker (empty: not known)."""


class EngineState(StrEnum):
    STARTING = "STARTING"
    READY = "READY"
    STOPPING = "STOPPING"


@dataclass(slots=True)
class Engine:
    key: str
    """The engine's id; while it starts, a name of our own."""
    spec: EngineSpec
    slots: int
    state: EngineState
    idle_since: float
    worker: str = ""
    holders: dict[Ticket, JobID] = field(default_factory=dict)
    exclusive_to: JobID | None = None
    """Stays set when that job has left: no other job may use the engine."""
    foreign: bool = False
    """Not started by this cluster (`firesteel engine start`, or attached): used, never stopped, and not counted."""
    adopted: bool = False
    """Started under an earlier leader."""
    fresh: bool = True
    """No job was ever on it, as far as is known."""
    started_for: tuple[Ticket, ...] = ()
    stopped_for: Ticket | None = None
    """The request that its room is promised to."""

    @property
    def idle(self) -> bool:
        return self.state is EngineState.READY and not self.holders

    @property
    def adopting(self) -> bool:
        """Started under an earlier leader, and silent so far. Jobs that run there may hold it; it gets no new ones."""
        return self.adopted and self.state is EngineState.STARTING

    @property
    def spent(self) -> bool:
        return self.idle and self.exclusive_to is not None


@dataclass(frozen=True, slots=True)
class RequestShape:
    """Requests of one shape are interchangeable but for their place in the queue."""

    spec: EngineSpec
    classic: bool
    exclusive: bool
    placement: Placement


@dataclass(frozen=True, slots=True)
class ClassicDriver:
    """It takes the room of an engine."""

    job_id: JobID
    spec: EngineSpec
    worker: str


@dataclass(frozen=True, slots=True)
class Waiting:
    ticket: Ticket
    request: SlotRequest
    since: float

    @property
    def order(self) -> tuple[int, float, Ticket]:
        return (-self.request.priority, self.request.arrival, self.ticket)

    @property
    def shape(self) -> RequestShape:
        # A classic driver has its JVM alone anyway.
        return RequestShape(
            self.request.engine,
            self.request.classic,
            self.request.exclusive and not self.request.classic,
            self.request.placement,
        )


class ResourceState:
    """Engines, slots and the queue. Changed only through these methods, one per thing that can happen."""

    def __init__(self) -> None:
        self.workers: dict[str, WorkerOffer] = {}
        """The workers of the cluster as they offered themselves last, by their ids."""
        self.engines: dict[str, Engine] = {}
        self.classic: dict[Ticket, ClassicDriver] = {}
        self.queues: dict[RequestShape, list[Waiting]] = {}
        """By shape, each in the order of the queue, so that a plan costs nothing for those that wait behind others."""
        self.recovered = False
        """Whether jobs of an earlier life have taken back what they had. Until then nothing is stopped, and nothing granted
        that one of them may be about to take back."""
        self.expected: Counter[Held] | None = None
        """How many jobs have yet to reclaim a slot, by what they hold; None when that is not known."""
        self.warm_not_before = float("-inf")
        """When to try again after a warm engine did not start."""
        self._waiting: dict[Ticket, Waiting] = {}
        self._held: dict[Ticket, str | None] = {}
        self._tickets = itertools.count(1)
        self._names = itertools.count(1)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def rooms_taken(self) -> Counter[str]:
        """How much of `engine.max` is used, by worker; an engine takes room until it is gone for sure."""
        taken = Counter(self.home(e.worker) for e in self.engines.values() if not e.foreign)
        taken.update(self.home(c.worker) for c in self.classic.values())
        return taken

    def waits(self, ticket: Ticket) -> bool:
        return ticket in self._waiting

    # -- workers --------------------------------------------------------------------------------------------------

    def offer(self, offers: Iterable[WorkerOffer]) -> None:
        """These are the workers now. What one that is not among them has stays noted until it is gone."""
        self.workers = {offer.worker: offer for offer in offers}

    def home(self, worker: str) -> str:
        """Where something is whose worker was not noted: at the first, which is the leader's own."""
        return worker or next(iter(self.workers), "")

    # -- requests -------------------------------------------------------------------------------------------------

    def ask(self, request: SlotRequest, now: float) -> Ticket:
        waiting = Waiting(next(self._tickets), request, now)
        bisect.insort(self.queues.setdefault(waiting.shape, []), waiting, key=lambda w: w.order)
        self._waiting[waiting.ticket] = waiting
        return waiting.ticket

    def leave(self, ticket: Ticket) -> Waiting | None:
        """Take a request out of the queue; None when it does not wait."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is None:
            return None
        queue = self.queues[waiting.shape]
        del queue[bisect.bisect_left(queue, waiting.order, key=lambda w: w.order)]
        if not queue:
            del self.queues[waiting.shape]
        return waiting

    def grant(self, ticket: Ticket, key: str | None, worker: str) -> None:
        waiting = self.leave(ticket)
        assert waiting is not None
        self._hold(ticket, waiting.request, key, worker)

    def reclaim(self, request: SlotRequest, key: str | None, worker: str = "") -> Ticket:
        """Give a recovered job the slot that it held, whatever the limits are now."""
        ticket = next(self._tickets)
        self._hold(ticket, request, key, worker)
        return ticket

    def _hold(self, ticket: Ticket, request: SlotRequest, key: str | None, worker: str) -> None:
        self._held[ticket] = key
        if key is None:
            self.classic[ticket] = ClassicDriver(request.job_id, request.engine, worker)
            return
        engine = self.engines[key]
        engine.holders[ticket] = request.job_id
        engine.fresh = False
        if request.exclusive:
            engine.exclusive_to = request.job_id

    def release(self, ticket: Ticket, now: float) -> None:
        """Doing it twice, or for a slot whose engine is gone, is harmless."""
        if ticket not in self._held:
            return
        key = self._held.pop(ticket)
        if key is None:
            del self.classic[ticket]
            return
        engine = self.engines[key]
        del engine.holders[ticket]
        if not engine.holders:
            engine.idle_since = now
            if engine.foreign:
                engine.exclusive_to = None  # we cannot make a new one of it

    def settled(self, held: Held) -> None:
        """One job of an earlier life that held this has taken it back, or will not."""
        if self.expected and self.expected[held] > 0:
            self.expected[held] -= 1

    # -- engines --------------------------------------------------------------------------------------------------

    def start(self, spec: EngineSpec, tickets: tuple[Ticket, ...], worker: str, *, slots: int, now: float) -> str:
        """An engine is about to be started; returns its name until it has an id."""
        key = f"starting-{next(self._names)}"
        self.engines[key] = Engine(
            key, spec, slots, EngineState.STARTING, now, worker, foreign=spec.attached, started_for=tickets
        )
        return key

    def adopt(
        self, key: str, spec: EngineSpec, worker: str = "", *, slots: int, now: float, foreign: bool = False
    ) -> None:
        """An engine of an earlier leader, or a foreign one, was found; whether it works is not known yet."""
        self.engines[key] = Engine(
            key, spec, slots, EngineState.STARTING, now, worker, foreign=foreign, adopted=True, fresh=False
        )

    def ready(self, key: str, engine_id: str, now: float) -> None:
        engine = self.engines.pop(key)
        engine.key, engine.state, engine.idle_since, engine.started_for = engine_id, EngineState.READY, now, ()
        self.engines[engine_id] = engine

    def start_failed(self, key: str) -> list[Ticket]:
        """The engine did not come up. Returns the requests it was started for that wait still; they leave the queue."""
        engine = self.engines.pop(key)
        return [t for t in engine.started_for if self.leave(t) is not None]

    def stop(self, key: str, ticket: Ticket | None = None) -> list[Ticket]:
        """The engine is being ended, for a request or for none: it takes room, but its slots are no longer held. Returns
        those who held them."""
        engine = self.engines[key]
        engine.state = EngineState.STOPPING
        engine.stopped_for = ticket
        return self._drop(engine)

    def gone(self, key: str) -> list[Ticket]:
        """The engine is gone. Returns the holders of its slots."""
        engine = self.engines.pop(key, None)
        return self._drop(engine) if engine else []

    def _drop(self, engine: Engine) -> list[Ticket]:
        tickets = list(engine.holders)
        for ticket in tickets:
            del self._held[ticket]
        engine.holders.clear()
        return tickets
