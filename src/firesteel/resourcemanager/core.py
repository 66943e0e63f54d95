"""Decides which request gets which engine: one pure function from the known state to a plan.

Requests are served in the order of the queue. One that finds a free slot on an engine of its spec, which says whose it is,
gets it; else an engine is started for it on a worker that has room; else an idle engine that does not fit makes room; else
it waits. All that only on workers that accept jobs and suit it. Behind one that waits for room, others may still take free
slots of their own spec, but never room: and one engine is not filled up again, so that it becomes idle some day (see
`_drain`). A plan is complete: once it is carried out, the next plan for the same moment is empty.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from firesteel.config.values import memory_bytes
from firesteel.engines.command import local_cores
from firesteel.engines.record import EngineSpec
from firesteel.resourcemanager.offers import ANYWHERE, Placement, too_large
from firesteel.resourcemanager.state import Engine, EngineState, Held, RequestShape, ResourceState, Ticket, Waiting
from firesteel.types import JobID

PATIENCE = 60.0
"""Seconds after which a request that waits for room has other engines emptied for it than the one with the fewest jobs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for all workers; what each has room for is in its offer."""

    slots: int
    idle_timeout: float
    warm: int = 0
    """How many unused engines of the spec `warm_spec` are kept ready."""
    warm_spec: EngineSpec | None = None
    patience: float = PATIENCE
    spread: bool = False
    """Whether jobs go to the workers with the most room, and not to the fullest engines and workers."""


@dataclass(frozen=True, slots=True)
class Grant:
    ticket: Ticket
    job_id: JobID
    engine: str | None
    """None for a classic driver."""
    worker: str


@dataclass(frozen=True, slots=True)
class StartEngine:
    spec: EngineSpec
    tickets: tuple[Ticket, ...]
    """The requests that it is started for: they are told when it does not come up."""
    worker: str


@dataclass(frozen=True, slots=True)
class StopEngine:
    engine: str
    why: str
    ticket: Ticket | None = None
    """The request that gets its room."""


@dataclass(frozen=True, slots=True)
class DetachEngine:
    """Let go of an attached engine, which another worker can attach then."""

    engine: str


@dataclass(frozen=True, slots=True)
class Refuse:
    ticket: Ticket
    job_id: JobID
    reason: str


Decision = Grant | StartEngine | StopEngine | DetachEngine | Refuse


def plan(state: ResourceState, limits: Limits, now: float) -> list[Decision]:
    """What is to be done now. This changes nothing."""
    return _Planner(state, limits, now).decide()


def apply(state: ResourceState, limits: Limits, decision: Decision, now: float) -> str | None:
    """Note that a decision is being carried out; the name of the engine that is to be started, if one is."""
    match decision:
        case Grant():
            state.grant(decision.ticket, decision.engine, decision.worker)
        case StartEngine():
            return state.start(decision.spec, decision.tickets, decision.worker, slots=limits.slots, now=now)
        case StopEngine():
            state.stop(decision.engine, decision.ticket)
        case DetachEngine():
            state.gone(decision.engine)
        case Refuse():
            state.leave(decision.ticket)
    return None


class _Outcome(Enum):
    SERVED = "granted, or there will be a place"
    BLOCKED = "waits until a slot or an engine becomes free"


@dataclass(frozen=True, slots=True)
class _Room:
    worker: str
    now: bool
    """False: once an engine that is being stopped is gone."""


@dataclass(slots=True, eq=False)
class _Seat:
    """An engine as this plan will leave it; also one that is yet to be started."""

    spec: EngineSpec
    worker: str
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


def _seat(engine: Engine, worker: str) -> _Seat:
    return _Seat(
        engine.spec,
        worker,
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
        self._seats = [_seat(e, state.home(e.worker)) for e in state.engines.values()]
        taken = state.rooms_taken
        self._rooms = {o.worker: o.max_engines - taken[o.worker] for o in state.workers.values()}
        """By worker. Below zero when the limit was lowered, or recovered jobs reclaimed more than it allows."""
        self._promises: dict[str, list[Ticket | None]] = {worker: [] for worker in self._rooms}
        """Rooms that engines which are being stopped will leave, each with the request that it was promised to."""
        for seat in self._seats:
            if (engine := seat.engine) is not None and engine.state is EngineState.STOPPING and not seat.foreign:
                ticket = engine.stopped_for
                waits = ticket is not None and state.waits(ticket)
                self._promises.setdefault(seat.worker, []).append(ticket if waits else None)
        self._open: dict[EngineSpec, list[_Seat]] = {}
        """Seats that had a free slot when this was last looked at, by spec: what is full costs nothing."""
        self._jobs = Counter[str]()
        self._size: dict[str, tuple[int, int]] | None = None
        """Cores and bytes that engines and classic drivers of a worker have together; None until somebody asks."""
        if state.queues:
            for seat in self._seats:
                self._note(seat)
            self._jobs.update(state.home(c.worker) for c in state.classic.values())
        self._order = {worker: i for i, worker in enumerate(state.workers)}
        self._suitable: dict[Placement, frozenset[str]] = {}
        self._awaited = set[str]()
        """Workers for whose rooms a request waits that comes before all others that do."""
        self._unsettled = set[str]()
        """Workers that have something that a job of an earlier life has yet to take back."""
        if not state.recovered:
            expected: Mapping[Held, int] = state.expected or {}
            engines = set[str]()
            for (key, worker), count in expected.items():
                if count <= 0:
                    continue
                self._unsettled.add(state.home(worker))
                if key is not None:
                    engines.add(key)
                elif (home := state.home(worker)) in self._rooms:
                    self._rooms[home] -= count
            for seat in self._seats:
                seat.closed = seat.closed or (seat.engine is not None and seat.engine.key in engines)

    def _note(self, seat: _Seat) -> None:
        self._jobs[seat.worker] += seat.used
        if seat.free > 0:
            self._open.setdefault(seat.spec, []).append(seat)

    def _grow(self, worker: str, spec: EngineSpec) -> None:
        if self._size is not None and not spec.attached:
            cores, memory = self._size.get(worker, (0, 0))
            self._size[worker] = (cores + local_cores(spec.master), memory + memory_bytes(spec.memory))

    def _sizes(self) -> dict[str, tuple[int, int]]:
        if self._size is None:
            self._size = {}
            for seat in self._seats:
                self._grow(seat.worker, seat.spec)
            for classic in self._state.classic.values():
                self._grow(self._state.home(classic.worker), classic.spec)
        return self._size

    def _use(self, seat: _Seat, shape: RequestShape) -> None:
        seat.used += 1
        seat.closed = shape.exclusive
        self._jobs[seat.worker] += 1
        if seat.free <= 0:
            self._open[seat.spec].remove(seat)

    def decide(self) -> list[Decision]:
        refused = self._refuse()
        if not self._state.recovered and self._state.expected is None:
            return self._decisions
        for seat in self._seats:
            if seat.engine is not None and seat.engine.spent and not seat.foreign and self._settled(seat.worker):
                self._stop(seat, "the job that had it alone has left")
        queues = [queue for shape, queue in self._state.queues.items() if shape not in refused]
        heads = [(queue[0].order, i, 0) for i, queue in enumerate(queues)]
        heapq.heapify(heads)
        while heads:
            _, i, position = heapq.heappop(heads)
            outcome = self._serve(queues[i][position])
            position += 1
            # Behind one that is blocked, those of the same shape are too.
            if outcome is _Outcome.SERVED and position < len(queues[i]):
                heapq.heappush(heads, (queues[i][position].order, i, position))
        self._refill_warm()
        self._stop_idle()
        started = (StartEngine(s.spec, tuple(s.tickets), s.worker) for s in self._seats if s.new)
        return [*self._decisions, *started]

    def _refuse(self) -> set[RequestShape]:
        refused = set()
        offers = self._state.workers.values()
        for shape, queue in self._state.queues.items():
            if reason := too_large(shape.spec, shape.placement, offers):
                refused.add(shape)
                self._decisions += [Refuse(w.ticket, w.request.job_id, reason) for w in queue]
        return refused

    def _settled(self, worker: str) -> bool:
        """Whether nothing there that seems idle may be about to be taken back."""
        return worker not in self._unsettled and "" not in self._unsettled

    def _suiting(self, placement: Placement) -> frozenset[str]:
        """The workers that accept such jobs."""
        if (found := self._suitable.get(placement)) is None:
            offers = self._state.workers.values()
            found = frozenset(o.worker for o in offers if o.accepting and o.suits(placement))
            self._suitable[placement] = found
        return found

    def _holding(self, shape: RequestShape) -> list[str]:
        """Those of them that may run an engine of this size, in the order in which they came."""
        workers = self._suiting(shape.placement)
        return [o.worker for o in self._state.workers.values() if o.worker in workers and o.holds(shape.spec)]

    # -- one request ----------------------------------------------------------------------------------------------

    def _serve(self, waiting: Waiting) -> _Outcome:
        shape = waiting.shape
        if shape.classic:
            return self._serve_classic(waiting)
        workers = self._suiting(shape.placement)
        fitting = [s for s in self._open.get(shape.spec, ()) if s.free > 0 and s.worker in workers]
        if shape.exclusive:
            # An attached engine cannot be started anew: being alone on it has to do.
            fitting = [s for s in fitting if s.unused and (s.fresh or s.spec.attached)]
        if ready := [s for s in fitting if s.ready]:
            seat = min(ready, key=self._spread_rank if self._limits.spread else self._pack_rank)
            assert seat.engine is not None
            self._use(seat, shape)
            seat.fresh = False
            self._decisions.append(Grant(waiting.ticket, waiting.request.job_id, seat.engine.key, seat.worker))
            return _Outcome.SERVED
        if fitting:
            # Those that are yet to be planned first: the next plan, which finds the others started, decides the same.
            seat = min(fitting, key=lambda s: s.new or s.engine is not None)
            self._use(seat, shape)
            seat.tickets.append(waiting.ticket)
            return _Outcome.SERVED
        if shape.spec.attached:
            return self._attach(waiting)
        if (room := self._take_room(waiting)) is None:
            self._drain(waiting)
            return _Outcome.BLOCKED
        self._expect(waiting, room)
        return _Outcome.SERVED

    def _pack_rank(self, seat: _Seat) -> tuple[object, ...]:
        """The fullest, so that others become idle; then those that cost no room, and warm ones last."""
        return (-seat.used, not seat.foreign, seat.fresh, self._rooms[seat.worker])

    def _spread_rank(self, seat: _Seat) -> tuple[object, ...]:
        """On the worker with the most room, and of those the one with the fewest jobs."""
        return (-self._rooms[seat.worker], self._jobs[seat.worker], seat.used, not seat.foreign, seat.fresh)

    def _serve_classic(self, waiting: Waiting) -> _Outcome:
        room = self._take_room(waiting)
        if room is None:
            self._drain(waiting)
            return _Outcome.BLOCKED
        if room.now:
            self._jobs[room.worker] += 1
            self._grow(room.worker, waiting.shape.spec)
            self._decisions.append(Grant(waiting.ticket, waiting.request.job_id, None, room.worker))
        return _Outcome.SERVED

    def _attach(self, waiting: Waiting) -> _Outcome:
        """There is only one of an attached engine, and one worker has it; it takes no room."""
        shape = waiting.shape
        workers = self._suiting(shape.placement)
        there = [s for s in self._seats if s.spec == shape.spec]
        away = [s for s in there if s.engine is not None and s.engine.idle and s.unused and s.worker not in workers]
        if len(there) > len(away) or not workers:
            return _Outcome.BLOCKED  # and it is not room that is waited for
        for seat in away:
            assert seat.engine is not None
            if not self._settled(seat.worker):
                return _Outcome.BLOCKED
            self._seats.remove(seat)
            self._decisions.append(DetachEngine(seat.engine.key))
        self._expect(waiting, _Room(min(workers, key=self._order.__getitem__), now=True))
        return _Outcome.SERVED

    def _expect(self, waiting: Waiting, room: _Room) -> None:
        """An engine that will be there counts for as many requests as it has slots."""
        shape = waiting.shape
        seat = _Seat(
            shape.spec,
            room.worker,
            self._limits.slots,
            1,
            ready=False,
            foreign=shape.spec.attached,
            closed=shape.exclusive,
            new=room.now,
            tickets=[waiting.ticket],
        )
        self._seats.append(seat)
        self._note(seat)
        self._grow(seat.worker, seat.spec)

    # -- room -----------------------------------------------------------------------------------------------------

    def _take_room(self, waiting: Waiting) -> _Room | None:
        workers = self._holding(waiting.shape)
        if free := [w for w in workers if self._rooms[w] > 0]:
            worker = self._choose(free, waiting.shape.spec)
            self._rooms[worker] -= 1
            return _Room(worker, now=True)
        while True:
            # Its own first, so that the next plan promises the same rooms to the same requests.
            for whose in (waiting.ticket, None):
                for worker in workers:
                    if whose in self._promises[worker] and self._rooms[worker] + len(self._promises[worker]) > 0:
                        self._promises[worker].remove(whose)
                        return _Room(worker, now=False)
            seats = [s for s in self._seats if s.engine is not None and s.engine.idle and s.unused and not s.foreign]
            idle = [s for s in seats if s.worker in workers and self._settled(s.worker)]
            if not idle:
                break
            victim = min(idle, key=self._expendable)
            self._stop(victim, "a job that needs another kind of engine waits for its room", waiting.ticket)
        for worker in workers:  # one that comes later in the queue has to wait for another
            if self._promises[worker] and self._rooms[worker] + len(self._promises[worker]) > 0:
                self._promises[worker].pop()
                return _Room(worker, now=False)
        return None

    def _expendable(self, seat: _Seat) -> tuple[object, ...]:
        """Where the fewest have to be stopped; warm ones last; of the others, the one that was idle longest."""
        missing = max(1, 1 - self._rooms[seat.worker] - len(self._promises[seat.worker]))
        return (missing, self._warm(seat), seat.engine.idle_since if seat.engine else 0)

    def _choose(self, workers: Sequence[str], spec: EngineSpec) -> str:
        """Of workers that have room: one whose cores and memory are really free; then the fullest, or the emptiest."""
        towards = -1 if self._limits.spread else 1

        def rank(worker: str) -> tuple[object, ...]:
            return (not self._roomy(worker, spec), towards * self._rooms[worker], self._order[worker])

        return min(workers, key=rank) if len(workers) > 1 else workers[0]

    def _roomy(self, worker: str, spec: EngineSpec) -> bool:
        """Whether an engine would share no core and no memory with those that are there."""
        offer = self._state.workers[worker]
        cores, memory = self._sizes().get(worker, (0, 0))
        cores, memory = cores + local_cores(spec.master), memory + memory_bytes(spec.memory)
        return cores <= offer.max_cores and memory <= memory_bytes(offer.max_memory)

    def _stop(self, seat: _Seat, why: str, ticket: Ticket | None = None) -> None:
        assert seat.engine is not None
        seat.closed = True
        self._promises.setdefault(seat.worker, []).append(ticket)
        self._decisions.append(StopEngine(seat.engine.key, why, ticket))

    def _drain(self, waiting: Waiting) -> None:
        """Do not fill up one engine again, for the first request that waits for room of a worker.

        The one with the fewest jobs: their number can only fall then, so it will be empty when its jobs end. But these may
        be streams that never end, so after a while others have their turn, each for twice as long as the one before. A
        request that has an engine of its spec waits for a slot there first; only after a while it is given more.
        """
        shape = waiting.shape
        workers = set(self._holding(shape))
        if self._awaited & workers:
            return
        self._awaited |= workers
        own = set[_Seat]()
        if not shape.classic and not shape.exclusive:
            own = {s for s in self._seats if s.spec == shape.spec and s.worker in workers and not s.closed}
        others = [
            s
            for s in self._seats
            if s.ready and s.worker in workers and not s.foreign and not s.closed and s not in own
        ]
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
        spec = self._limits.warm_spec
        if spec is None or self._now < self._state.warm_not_before:
            return
        workers = self._suiting(ANYWHERE)
        missing = self._limits.warm - sum(self._warm(s) and not s.foreign and s.worker in workers for s in self._seats)
        for _ in range(missing):
            free = [o.worker for o in self._state.workers.values() if o.worker in workers and o.holds(spec)]
            free = [w for w in free if self._rooms[w] > 0 and self._settled(w)]
            if not free:
                return
            worker = self._choose(free, spec)
            self._rooms[worker] -= 1
            seat = _Seat(spec, worker, self._limits.slots, 0, ready=False, new=True)
            self._seats.append(seat)
            self._grow(worker, spec)

    def _stop_idle(self) -> None:
        kept = self._limits.warm
        idle = [s for s in self._seats if s.unused and s.ready and not s.foreign and self._settled(s.worker)]
        for seat in self._oldest_last(idle):
            assert seat.engine is not None
            offer = self._state.workers.get(seat.worker)
            if offer is not None and offer.draining:
                self._stop(seat, f"worker {offer.name} is being emptied")
            elif self._warm(seat) and kept > 0 and seat.worker in self._suiting(ANYWHERE):
                kept -= 1
            elif self._now - seat.engine.idle_since >= self._limits.idle_timeout:
                self._stop(seat, f"nothing ran on it for {self._limits.idle_timeout:g} s (engine.idle-timeout)")

    @staticmethod
    def _oldest_last(seats: Iterable[_Seat]) -> list[_Seat]:
        return sorted(seats, key=lambda s: -(s.engine.idle_since if s.engine else 0))


def _key(seat: _Seat) -> str:
    return seat.engine.key if seat.engine else ""
