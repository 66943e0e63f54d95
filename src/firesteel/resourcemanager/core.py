"""Decides which request gets which engine: one pure function from the known state to a plan.

Requests are served in the order of the queue. One that finds a free slot on an engine of its spec, which says whose it is,
gets it; else an engine is started for it when there is room; else an idle engine that does not fit makes room; else it
waits. Behind one that waits for room, others may still take free slots of their own spec, but never room: and one engine is
not filled up again, so that it becomes idle some day (see `_drain`). A plan is complete: once it is carried out, the next
plan for the same moment is empty.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from firesteel.config.values import memory_bytes
from firesteel.engines.command import local_cores
from firesteel.engines.record import EngineSpec
from firesteel.resourcemanager.state import Engine, EngineState, ResourceState, Ticket, Waiting
from firesteel.types import JobID

PATIENCE = 60.0
"""Seconds after which a request that waits for room has other engines emptied for it than the one with the fewest jobs."""


@dataclass(frozen=True, slots=True)
class Limits:
    slots: int
    max_engines: int
    idle_timeout: float
    max_cores: int
    max_memory: str
    warm: int = 0
    """How many unused engines of the spec `warm_spec` are kept ready."""
    warm_spec: EngineSpec | None = None
    patience: float = PATIENCE


@dataclass(frozen=True, slots=True)
class Grant:
    ticket: Ticket
    job_id: JobID
    engine: str | None
    """None for a classic driver."""


@dataclass(frozen=True, slots=True)
class StartEngine:
    spec: EngineSpec
    tickets: tuple[Ticket, ...]
    """The requests that it is started for: they are told when it does not come up."""


@dataclass(frozen=True, slots=True)
class StopEngine:
    engine: str
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    ticket: Ticket
    job_id: JobID
    reason: str


Decision = Grant | StartEngine | StopEngine | Refuse


def plan(state: ResourceState, limits: Limits, now: float) -> list[Decision]:
    """What is to be done now. This changes nothing."""
    return _Planner(state, limits, now).decide()


def apply(state: ResourceState, limits: Limits, decision: Decision, now: float) -> str | None:
    """Note that a decision is being carried out; the name of the engine that is to be started, if one is."""
    match decision:
        case Grant():
            state.grant(decision.ticket, decision.engine)
        case StartEngine():
            return state.start(decision.spec, decision.tickets, slots=limits.slots, now=now)
        case StopEngine():
            state.stop(decision.engine)
        case Refuse():
            state.leave(decision.ticket)
    return None


def too_large(spec: EngineSpec, limits: Limits) -> str | None:
    """Why no engine here will ever be large enough; None when one may be."""
    if spec.attached:
        return None
    cores = local_cores(spec.master)
    if cores > limits.max_cores:
        return (
            f"the job asks for an engine of {cores} cores ({spec.master}), and no engine here may have more than "
            f"{limits.max_cores} (engine.max-cores); ask for less cpu in the resources of its vertices or in "
            f"engine.master, or raise engine.max-cores"
        )
    if memory_bytes(spec.memory) > memory_bytes(limits.max_memory):
        return (
            f"the job asks for an engine with {spec.memory} of memory, and no engine here may have more than "
            f"{limits.max_memory} (engine.max-memory); ask for less memory in the resources of its vertices or in "
            f"engine.memory, or raise engine.max-memory"
        )
    return None


class _Outcome(Enum):
    SERVED = "granted, or there will be a place"
    BLOCKED = "waits until a slot or an engine becomes free"


class _Room(Enum):
    NOW = "now"
    LATER = "once an engine that is being stopped is gone"
    NONE = "none"


@dataclass(slots=True, eq=False)
class _Seat:
    """An engine as this plan will leave it; also one that is yet to be started."""

    spec: EngineSpec
    slots: int
    used: int
    """Holders; for an engine that does not run yet, requests that count on it."""
    ready: bool
    foreign: bool = False
    fresh: bool = True
    closed: bool = False
    """Exclusive, stopping, or being emptied."""
    engine: Engine | None = None
    new: bool = False
    """To be started by this plan."""
    tickets: list[Ticket] = field(default_factory=list)

    @property
    def free(self) -> int:
        return 0 if self.closed else self.slots - self.used

    @property
    def unused(self) -> bool:
        return self.used == 0 and not self.closed

    def fits(self, spec: EngineSpec) -> bool:
        return self.spec == spec


def _seat(engine: Engine) -> _Seat:
    return _Seat(
        engine.spec,
        engine.slots,
        len(engine.holders),
        engine.state is EngineState.READY,
        foreign=engine.foreign,
        fresh=engine.fresh,
        closed=engine.exclusive_to is not None or engine.state is EngineState.STOPPING,
        engine=engine,
    )


class _Planner:
    def __init__(self, state: ResourceState, limits: Limits, now: float) -> None:
        self._state = state
        self._limits = limits
        self._now = now
        self._decisions: list[Decision] = []
        self._seats = [_seat(e) for e in state.engines.values()]
        self._room = limits.max_engines - state.rooms_taken
        """Below zero when the limit was lowered, or recovered jobs reclaimed more than it allows."""
        self._promised = sum(e.state is EngineState.STOPPING for e in state.engines.values())
        """Rooms that engines which are being stopped will leave."""
        self._head_waits = False
        if not state.recovered:
            expected = state.expected or {}
            self._room -= expected.get(None, 0)
            for seat in self._seats:
                seat.closed = seat.closed or (seat.engine is not None and expected.get(seat.engine.key, 0) > 0)

    def decide(self) -> list[Decision]:
        refused = self._refuse()
        recovered = self._state.recovered
        if not recovered and self._state.expected is None:
            return self._decisions
        for seat in self._seats:
            if recovered and seat.engine is not None and seat.engine.spent and not seat.foreign:
                self._stop(seat, "the job that had it alone has left")
        queues = [queue for shape, queue in self._state.queues.items() if shape.spec not in refused]
        heads = [(queue[0].order, i, 0) for i, queue in enumerate(queues)]
        heapq.heapify(heads)
        while heads:
            _, i, position = heapq.heappop(heads)
            outcome = self._serve(queues[i][position])
            position += 1
            # Behind one that is blocked, those of the same shape are too.
            if outcome is _Outcome.SERVED and position < len(queues[i]):
                heapq.heappush(heads, (queues[i][position].order, i, position))
        if recovered:
            self._refill_warm()
            self._stop_idle()
        started = (StartEngine(s.spec, tuple(s.tickets)) for s in self._seats if s.new)
        return [*self._decisions, *started]

    def _refuse(self) -> set[EngineSpec]:
        refused = set()
        for shape, queue in self._state.queues.items():
            if reason := too_large(shape.spec, self._limits):
                refused.add(shape.spec)
                self._decisions += [Refuse(w.ticket, w.request.job_id, reason) for w in queue]
        return refused

    # -- one request ----------------------------------------------------------------------------------------------

    def _serve(self, waiting: Waiting) -> _Outcome:
        shape = waiting.shape
        if shape.classic:
            return self._serve_classic(waiting)
        fitting = [s for s in self._seats if s.free > 0 and s.fits(shape.spec)]
        if shape.exclusive:
            # An attached engine cannot be had new: being alone on it has to do.
            fitting = [s for s in fitting if s.unused and (s.fresh or s.spec.attached)]
        # The fullest, so that others become idle; then those that cost no room, and warm ones last.
        for seat in sorted((s for s in fitting if s.ready), key=lambda s: (-s.used, not s.foreign, s.fresh)):
            assert seat.engine is not None
            seat.used += 1
            seat.fresh = False
            seat.spec = shape.spec
            seat.closed = shape.exclusive
            self._decisions.append(Grant(waiting.ticket, waiting.request.job_id, seat.engine.key))
            return _Outcome.SERVED
        for seat in fitting:
            seat.used += 1
            seat.spec = shape.spec
            seat.closed = shape.exclusive
            seat.tickets.append(waiting.ticket)
            return _Outcome.SERVED
        if shape.spec.attached:
            if any(s.spec == shape.spec for s in self._seats):
                return _Outcome.BLOCKED  # there is only one of it; and it is not room that is waited for
            self._expect(waiting, new=True)
            return _Outcome.SERVED
        room = self._take_room()
        if room is _Room.NONE:
            self._drain(waiting)
            return _Outcome.BLOCKED
        self._expect(waiting, new=room is _Room.NOW)
        return _Outcome.SERVED

    def _serve_classic(self, waiting: Waiting) -> _Outcome:
        match self._take_room():
            case _Room.NOW:
                self._decisions.append(Grant(waiting.ticket, waiting.request.job_id, None))
                return _Outcome.SERVED
            case _Room.LATER:
                return _Outcome.SERVED
            case _Room.NONE:
                self._drain(waiting)
                return _Outcome.BLOCKED

    def _expect(self, waiting: Waiting, *, new: bool) -> None:
        """An engine that will be there counts for as many requests as it has slots."""
        shape = waiting.shape
        self._seats.append(
            _Seat(
                shape.spec,
                self._limits.slots,
                1,
                ready=False,
                foreign=shape.spec.attached,
                closed=shape.exclusive,
                new=new,
                tickets=[waiting.ticket],
            )
        )

    # -- room -----------------------------------------------------------------------------------------------------

    def _take_room(self) -> _Room:
        if self._room > 0:
            self._room -= 1
            return _Room.NOW
        while self._room + self._promised <= 0:
            if not self._state.recovered:
                return _Room.NONE  # an engine that seems idle may be about to be taken back
            idle = [s for s in self._seats if s.engine is not None and s.engine.idle and s.unused and not s.foreign]
            if not idle:
                return _Room.NONE
            # Warm ones last; of the others, the one that was idle longest.
            victim = min(idle, key=lambda s: (self._warm(s), s.engine.idle_since if s.engine else 0))
            self._stop(victim, "a job that needs another kind of engine waits for its room")
        self._promised -= 1
        return _Room.LATER

    def _stop(self, seat: _Seat, why: str) -> None:
        assert seat.engine is not None
        seat.closed = True
        self._promised += 1
        self._decisions.append(StopEngine(seat.engine.key, why))

    def _drain(self, waiting: Waiting) -> None:
        """Do not fill up one engine again, for the first request that waits for room.

        The one with the fewest jobs: their number can only fall then, so it will be empty when its jobs end. But these may
        be streams that never end, so after a while others have their turn, each for twice as long as the one before. A
        request that has an engine of its spec waits for a slot there first; only after a while it is given more.
        """
        if self._head_waits:
            return
        self._head_waits = True
        shape = waiting.shape
        own = set[_Seat]()
        if not shape.classic and not shape.exclusive:
            own = {s for s in self._seats if s.spec == shape.spec and not s.closed}
        others = [s for s in self._seats if s.ready and not s.foreign and not s.closed and s not in own]
        turn = int(math.log2(1 + max(0.0, self._now - waiting.since) / self._limits.patience))
        if not others or (turn == 0 and own):
            return
        if turn == 0:
            min(others, key=lambda s: (s.used, _key(s))).closed = True
        else:
            sorted(others, key=_key)[turn % len(others)].closed = True

    # -- engines that no request needs ----------------------------------------------------------------------------

    def _warm(self, seat: _Seat) -> bool:
        return self._limits.warm > 0 and seat.fresh and seat.unused and seat.spec == self._limits.warm_spec

    def _refill_warm(self) -> None:
        if self._limits.warm_spec is None or self._now < self._state.warm_not_before:
            return
        missing = self._limits.warm - sum(self._warm(s) and not s.foreign for s in self._seats)
        for _ in range(min(missing, self._room)):
            self._room -= 1
            self._seats.append(_Seat(self._limits.warm_spec, self._limits.slots, 0, ready=False, new=True))

    def _stop_idle(self) -> None:
        kept = self._limits.warm
        for seat in self._oldest_last(s for s in self._seats if s.unused and s.ready and not s.foreign):
            assert seat.engine is not None
            if self._warm(seat) and kept > 0:
                kept -= 1
            elif self._now - seat.engine.idle_since >= self._limits.idle_timeout:
                self._stop(seat, f"nothing ran on it for {self._limits.idle_timeout:g} s (engine.idle-timeout)")

    @staticmethod
    def _oldest_last(seats: Iterable[_Seat]) -> list[_Seat]:
        return sorted(seats, key=lambda s: -(s.engine.idle_since if s.engine else 0))


def _key(seat: _Seat) -> str:
    return seat.engine.key if seat.engine else ""
