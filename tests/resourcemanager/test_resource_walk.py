"""A seeded random walk through requests, ends, failures and losses; what must always hold is looked at after every step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from tests.support.marks import samples

from firesteel.engines.record import EngineSpec
from firesteel.resourcemanager.core import Decision, Grant, Limits, StartEngine, StopEngine, apply, plan
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.resourcemanager.state import Engine, EngineState, RequestShape, ResourceState, Ticket, Waiting
from firesteel.types import JobID

SPECS = [EngineSpec("local[1]"), EngineSpec("local[2]"), EngineSpec("local[2]", memory="2g")]
OWNERS = ["ann", "ann", "bob", None]
ATTACHED = EngineSpec("sc://h:15002")
LONGEST_JOB = 12.0
WORKER = "w"


@dataclass
class World:
    rng: random.Random
    limits: Limits
    max_engines: int
    state: ResourceState = field(default_factory=ResourceState)
    now: float = 0.0
    running: dict[Ticket, float] = field(default_factory=dict)
    """When each job ends."""
    asked: dict[Ticket, float] = field(default_factory=dict)
    longest_wait: float = 0.0
    granted: int = 0
    count: int = 0
    exclusive_users: dict[str, set[JobID]] = field(default_factory=dict)
    owners: dict[str, str | None] = field(default_factory=dict)
    """Of the first job that was on each engine."""

    def ask(self, *, priority: int | None = None) -> None:
        self.count += 1
        kind = self.rng.random()
        request = SlotRequest(
            JobID(f"job-{self.count}"),
            ATTACHED if kind < 0.05 else replace(self.rng.choice(SPECS), owner=self.rng.choice(OWNERS)),
            classic=0.05 <= kind < 0.12,
            exclusive=0.12 <= kind < 0.3,
            priority=self.rng.choice([0, 0, 0, 1]) if priority is None else priority,
            arrival=self.now - self.rng.choice([0, 0, 5]),
        )
        self.asked[self.state.ask(request, self.now)] = self.now

    def act(self) -> None:
        before = {shape: list(queue) for shape, queue in self.state.queues.items()}
        decisions = plan(self.state, self.limits, self.now)
        for decision in decisions:
            self.check(decision)
            apply(self.state, self.limits, decision, self.now)
        self.check_order(before, decisions)
        for d in decisions:
            if isinstance(d, Grant):
                self.granted += 1
                self.running[d.ticket] = self.now + self.rng.uniform(0.1, LONGEST_JOB)
                self.longest_wait = max(self.longest_wait, self.now - self.asked.pop(d.ticket))
        assert plan(self.state, self.limits, self.now) == []
        self.check_state()

    def check(self, decision: Decision) -> None:
        """Before it is carried out."""
        match decision:
            case Grant() if decision.engine is not None:
                engine = self.state.engines[decision.engine]
                [waiting] = [w for q in self.state.queues.values() for w in q if w.ticket == decision.ticket]
                assert engine.state is EngineState.READY
                spec = waiting.request.engine
                assert engine.spec == spec
                assert self.owners.setdefault(decision.engine, spec.owner) == spec.owner or engine.foreign
                assert engine.exclusive_to is None, "an engine that somebody has alone"
                assert len(engine.holders) < engine.slots
                users = self.exclusive_users.setdefault(decision.engine, set())
                if waiting.request.exclusive and not engine.foreign:
                    assert not users, "somebody was there before"
                users.add(decision.job_id)
            case StopEngine():
                engine = self.state.engines[decision.engine]
                assert engine.idle
                assert not engine.foreign
            case StartEngine() if not decision.spec.attached:
                assert self.state.rooms_taken[WORKER] < self.max_engines

    def check_order(self, before: dict[RequestShape, list[Waiting]], decisions: list[Decision]) -> None:
        """Of one shape, those that were granted were the first of the queue, in order."""
        tickets = [d.ticket for d in decisions if isinstance(d, Grant)]
        for queue in before.values():
            mine = [t for t in tickets if t in {w.ticket for w in queue}]
            assert mine == [w.ticket for w in queue][: len(mine)]
            assert [w.order for w in queue] == sorted(w.order for w in queue)

    def check_state(self) -> None:
        assert self.state.rooms_taken[WORKER] <= self.max_engines
        held = [t for e in self.state.engines.values() for t in e.holders] + list(self.state.classic)
        assert sorted(held) == sorted(self.running)
        for engine in self.state.engines.values():
            assert len(engine.holders) <= engine.slots
            assert engine.exclusive_to is None or len(engine.holders) <= 1
        assert self.state.waiting == len(self.asked)

    # -- what happens ---------------------------------------------------------------------------------------------

    def engines(self, state: EngineState) -> list[Engine]:
        return [e for e in self.state.engines.values() if e.state is state]

    def end_due(self) -> Iterator[None]:
        for ticket in [t for t, end in self.running.items() if end <= self.now]:
            self.release(ticket)
            yield

    def release(self, ticket: Ticket) -> None:
        del self.running[ticket]
        self.state.release(ticket, self.now)
        self.state.release(ticket, self.now)  # doing it twice is harmless

    def forget(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            del self.running[ticket]

    def step(self, *, trouble: bool) -> None:
        self.now += self.rng.uniform(0, 0.5)
        match self.rng.choice(["ask", "ask", "start", "stop", *(["cancel", "lose", "fail"] if trouble else [])]):
            case "ask" if self.state.waiting < 30:
                self.ask()
            case "start":
                for engine in self.engines(EngineState.STARTING):
                    name = "attached" if engine.foreign else f"engine-{self.rng.random()}"
                    self.state.ready(engine.key, name, self.now)
            case "stop":
                for engine in self.engines(EngineState.STOPPING):
                    self.state.gone(engine.key)
            case "cancel" if self.asked:
                ticket = self.rng.choice(list(self.asked))
                assert self.state.leave(ticket) is not None
                del self.asked[ticket]
            case "lose" if self.engines(EngineState.READY) and self.rng.random() < 0.2:
                engine = self.rng.choice(self.engines(EngineState.READY))
                self.forget(self.state.gone(engine.key) if engine.foreign else self.state.stop(engine.key))
            case "fail" if self.engines(EngineState.STARTING) and self.rng.random() < 0.2:
                for ticket in self.state.start_failed(self.rng.choice(self.engines(EngineState.STARTING)).key):
                    del self.asked[ticket]
        self.act()
        for _ in self.end_due():
            self.act()


def world(seed: int) -> World:
    rng = random.Random(seed)
    slots, max_engines = rng.randint(1, 4), rng.randint(1, 4)
    limits = Limits(
        slots=slots,
        idle_timeout=rng.choice([2.0, 50.0]),
        warm=rng.choice([0, 0, 1, 2]),
        warm_spec=replace(SPECS[0], owner=OWNERS[0]),
        patience=10.0,
    )
    made = World(rng, limits, max_engines)
    made.state.offer([WorkerOffer(WORKER, "host", made.max_engines, max_cores=4, max_memory="4g")])
    made.state.recovered = True
    return made


@pytest.mark.parametrize("seed", samples(range(8), quick=2))
def test_what_must_always_hold_does(seed: int) -> None:
    walk = world(seed)
    for _ in range(1000):
        walk.step(trouble=True)
    assert walk.granted > 40
    # When nobody asks any more, everybody is served.
    for _ in range(5000):
        if not walk.state.waiting and not walk.running:
            break
        walk.now += 0.5
        for engine in walk.engines(EngineState.STARTING):
            walk.state.ready(engine.key, "attached" if engine.foreign else f"engine-{walk.rng.random()}", walk.now)
        for engine in walk.engines(EngineState.STOPPING):
            walk.state.gone(engine.key)
        walk.act()
        for _ in walk.end_due():
            walk.act()
    assert (walk.state.waiting, walk.running) == (0, {})


@pytest.mark.parametrize("seed", samples(range(8), quick=2))
def test_nobody_starves_while_others_keep_coming(seed: int) -> None:
    """Requests of equal priority come faster than they can be served; no wait is longer than the queue explains."""
    walk = world(seed)
    for _ in range(2000):
        walk.now += 0.2
        if walk.state.waiting < 15:
            walk.ask(priority=0)
        for engine in walk.engines(EngineState.STARTING):
            walk.state.ready(engine.key, "attached" if engine.foreign else f"engine-{walk.rng.random()}", walk.now)
        for engine in walk.engines(EngineState.STOPPING):
            walk.state.gone(engine.key)
        walk.act()
        for _ in walk.end_due():
            walk.act()
        oldest = max((walk.now - t for t in walk.asked.values()), default=0.0)
        # At worst each of those before it has an engine to itself, for as long as a job can take.
        assert oldest < 16 * LONGEST_JOB / walk.max_engines + 2 * LONGEST_JOB
