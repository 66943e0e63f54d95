"""Which worker a job is put on: the rules, one small table each, and a seeded random walk with several workers."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.resourcemanager.test_resource_core import ATTACHED, LIMITS, OFFER, Desk, X, Y, Z, kinds

from firesteel.engines.record import EngineSpec
from firesteel.resourcemanager.core import (
    Decision,
    DetachEngine,
    Grant,
    Limits,
    Refuse,
    StartEngine,
    StopEngine,
    apply,
    plan,
)
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.offers import ANYWHERE, Placement, WorkerOffer
from firesteel.resourcemanager.state import EngineState, ResourceState, Ticket
from firesteel.types import JobID


def offer(worker: str, **more: Any) -> WorkerOffer:
    labels = frozenset(more.pop("labels", {}).items())
    return replace(OFFER, worker=worker, name=f"host-{worker}", labels=labels, **more)


def labels(**asked: str) -> Placement:
    return Placement(frozenset(asked.items()))


def workers_of(desk: Desk) -> dict[str, str]:
    """Where each job is."""
    state = desk.state
    at = {str(job): e.worker for e in state.engines.values() for job in e.holders.values()}
    return at | {c.job_id: c.worker for c in state.classic.values()}


LANDLOCK = Placement(sandboxes=frozenset({"landlock"}))
ZONES = (offer("a", labels={"zone": "a"}), offer("b", labels={"zone": "b", "disk": "ssd"}))


def test_each_worker_has_rooms_of_its_own() -> None:
    desk = Desk(offers=[offer("a", max_engines=1), offer("b", max_engines=2)], slots=1)
    for n in range(4):
        desk.ask(f"job-{n}")
    desk.settle()
    assert sorted(workers_of(desk).values()) == ["a", "b", "b"]
    assert desk.granted("job-3") == [False]


def test_classic_drivers_take_rooms_of_their_worker() -> None:
    desk = Desk(offers=[offer("a", max_engines=1), offer("b", max_engines=1)])
    desk.ask("one", classic=True)
    desk.ask("two", classic=True)
    desk.ask("three", classic=True)
    assert [d.worker for d in desk.act() if isinstance(d, Grant)] == ["a", "b"]
    assert desk.granted("three") == [False]


def test_worker_that_does_not_accept_keeps_what_it_has_and_gets_nothing_new() -> None:
    desk = Desk(offers=[offer("a")], slots=3)
    first = desk.run("one")
    desk.state.offer([offer("a", accepting=False)])
    desk.ask("two")
    desk.ask("three", Y)
    desk.ask("four", classic=True)
    assert desk.act() == []
    assert list(desk.state.engines) == [first]
    desk.state.offer([offer("a")])
    desk.settle()
    assert desk.at["two"] == first


def test_engine_of_a_worker_that_is_away_is_no_place() -> None:
    desk = Desk(offers=[offer("a"), offer("b")], slots=3)
    first = desk.run("one")
    desk.state.offer([offer("b")])
    assert desk.run("two") != first
    assert workers_of(desk) == {"one": "a", "two": "b"}


def test_idle_engines_of_a_worker_that_is_emptied_are_stopped_at_once() -> None:
    desk = Desk(offers=[offer("a"), offer("b")], slots=1)
    desk.run("one")
    desk.run("two")
    assert workers_of(desk) == {"one": "a", "two": "a"}
    desk.leave("two")
    assert desk.act() == []
    desk.state.offer([offer("a", accepting=False, draining=True), offer("b")])
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert (stop.engine, "host-a" in stop.why) == (desk.at["two"], True)


@pytest.mark.parametrize(
    ("placement", "worker"),
    [
        (ANYWHERE, "a"),
        (labels(zone="a"), "a"),
        (labels(zone="b"), "b"),
        (labels(disk="ssd"), "b"),
        (labels(zone="b", disk="ssd"), "b"),
    ],
)
@pytest.mark.parametrize("kind", ["shared", "exclusive", "classic", "attached"])
def test_labels_are_respected(placement: Placement, worker: str, kind: str) -> None:
    desk = Desk(offers=ZONES)
    desk.ask(
        "job",
        ATTACHED if kind == "attached" else X,
        placement=placement,
        exclusive=kind == "exclusive",
        classic=kind == "classic",
    )
    desk.settle()
    assert workers_of(desk) == {"job": worker}


def test_free_slot_on_a_worker_without_the_labels_is_not_taken() -> None:
    desk = Desk(offers=ZONES)
    first = desk.run("one", placement=labels(zone="a"))
    assert desk.run("two", placement=labels(zone="b")) != first
    assert desk.run("three", placement=labels(zone="a")) == first


def test_engine_goes_where_it_is_small_enough() -> None:
    desk = Desk(offers=[offer("a", max_cores=1), offer("b", max_cores=4, max_memory="1g"), offer("c")])
    desk.run("one", Y)
    desk.run("two", Z)
    assert workers_of(desk) == {"one": "b", "two": "c"}


def test_cores_and_memory_that_are_free_come_before_fullness() -> None:
    desk = Desk(offers=[offer("a", max_cores=2), offer("b", max_cores=2)], slots=1)
    desk.run("one", Y)
    desk.run("two", Y)
    desk.run("three", Y)
    assert list(workers_of(desk).values()) == ["a", "b", "a"]
    desk = Desk(offers=[offer("a", max_memory="3g"), offer("b", max_memory="3g")], slots=1)
    desk.run("one", Z)
    desk.run("two", Z)
    assert list(workers_of(desk).values()) == ["a", "b"]


def test_new_engines_go_to_the_fullest_worker_or_to_the_emptiest() -> None:
    for spread, expected in ((False, ["a", "a", "a", "b"]), (True, ["a", "b", "a", "b"])):
        desk = Desk(offers=[offer("a", max_engines=3), offer("b", max_engines=3)], slots=1, spread=spread)
        at = []
        for n in range(4):
            desk.run(f"job-{n}")
            at.append(workers_of(desk)[f"job-{n}"])
        assert at == expected


def test_free_slots_are_filled_engine_by_engine_or_in_turn() -> None:
    for spread, expected in ((False, ["a", "a", "a", "b"]), (True, ["a", "b", "a", "b"])):
        desk = Desk(offers=[offer("a", max_engines=1), offer("b", max_engines=1)], slots=3, spread=spread)
        for n in range(4):  # so that there is an engine on each
            desk.run(f"first-{n}")
        for n in range(4):
            desk.leave(f"first-{n}")
        at = []
        for n in range(4):
            desk.run(f"job-{n}")
            at.append(workers_of(desk)[f"job-{n}"])
        assert at == expected


def test_spread_prefers_the_larger_worker_with_more_room() -> None:
    desk = Desk(offers=[offer("a", max_engines=1), offer("b", max_engines=3)], slots=1, spread=True)
    for n in range(3):
        desk.run(f"job-{n}")
    assert list(workers_of(desk).values()) == ["b", "b", "a"]


def test_idle_engine_makes_room_only_where_the_job_may_go() -> None:
    desk = Desk(offers=[replace(o, max_engines=1) for o in ZONES])
    desk.run("one", X, placement=labels(zone="a"))
    there = desk.run("two", X, placement=labels(zone="b"))
    desk.leave("two")
    desk.now = 1
    desk.leave("one")
    desk.ask("three", Y, placement=labels(zone="b"))
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert stop.engine == there
    desk.settle()
    assert workers_of(desk) == {"three": "b"}


def test_room_that_is_being_made_is_kept_for_whom_it_is_made() -> None:
    desk = Desk(offers=[offer("c", labels={"zone": "c"}), offer("b", max_engines=1)], slots=1)
    for job in ("one", "two"):
        desk.run(job, placement=labels(zone="c"))
    desk.run("three")
    desk.leave("three")
    desk.now = 1
    desk.leave("one")
    desk.leave("two")
    desk.ask("anywhere", Y)  # gets the room of the engine that was idle longest
    desk.ask("there", Z, placement=labels(zone="c"))
    assert kinds(desk.act()) == [StopEngine, StopEngine]  # and `act` looks whether one more would be stopped
    desk.settle()
    assert desk.granted("anywhere", "there") == [True, True]


def test_request_that_waits_for_one_worker_keeps_nobody_from_another() -> None:
    desk = Desk(offers=[replace(o, max_engines=1) for o in ZONES], slots=3)
    desk.run("one", X, placement=labels(zone="b"))
    desk.ask("head", Y, placement=labels(zone="b"))
    desk.ask("two", X, placement=labels(zone="b"))  # its engine is emptied for `head`
    desk.ask("three", Z)
    desk.settle()
    assert desk.granted("head", "two", "three") == [False, False, True]
    assert workers_of(desk) == {"one": "b", "three": "a"}
    desk.leave("one")
    desk.settle()
    assert workers_of(desk) == {"head": "b", "three": "a"}


def test_attached_engine_is_let_go_when_its_worker_accepts_no_more_and_nothing_runs_there() -> None:
    desk = Desk(offers=[offer("a"), offer("b")])
    desk.run("one", ATTACHED)
    desk.state.offer([offer("a", accepting=False), offer("b")])
    desk.ask("two", ATTACHED)
    assert desk.act() == []
    desk.leave("one")
    assert kinds(desk.act()) == [DetachEngine, StartEngine]
    desk.settle()
    assert workers_of(desk) == {"two": "b"}


def test_warm_engines_are_kept_where_jobs_are_accepted() -> None:
    limits = replace(LIMITS, warm=1, warm_spec=X)
    desk = Desk(limits, offers=[offer("a", accepting=False), offer("b")])
    desk.settle()
    assert [e.worker for e in desk.state.engines.values()] == ["b"]
    desk.state.offer([offer("a"), offer("b", accepting=False)])
    desk.settle()
    assert [e.worker for e in desk.state.engines.values()] == ["b", "a"]


# -- refused, or waiting ------------------------------------------------------------------------------------------

BIG = EngineSpec("local[5]")


@pytest.mark.parametrize(
    ("offers", "asked", "words"),
    [
        ([offer("a"), offer("b")], {"spec": BIG}, ("5 cores", "more than 4", "engine.max-cores")),
        ([offer("a"), offer("b", max_memory="6g")], {"spec": EngineSpec("local[1]", "8g")}, ("8g", "more than 6g")),
        (
            [offer("a", max_cores=8), offer("b", max_memory="8g")],
            {"spec": EngineSpec("local[8]", "8g")},
            ("8 cores", "8g", "no single worker"),
        ),
        (ZONES, {"placement": labels(zone="c")}, ("zone=c", "settings.placement.labels", "worker.labels")),
        (ZONES, {"placement": labels(zone="a", disk="ssd")}, ("disk=ssd, zone=a",)),
        (
            [offer("a", max_cores=8), offer("b", labels={"zone": "b"})],
            {"spec": BIG, "placement": labels(zone="b")},
            ("5 cores", "a worker with zone=b", "more than 4"),
        ),
        (
            ZONES,
            {"placement": LANDLOCK},
            ("sandbox landlock", "settings.placement.sandbox"),
        ),
        (
            [offer("a", sandbox="user"), offer("b", labels={"zone": "b"})],
            {"placement": replace(labels(zone="b"), sandboxes=frozenset({"user"}))},
            ("sandbox user", "with zone=b"),
        ),
    ],
)
def test_what_no_worker_will_ever_do_is_refused(
    offers: list[WorkerOffer], asked: dict[str, Any], words: tuple[str, ...]
) -> None:
    for accepting in (True, False):
        desk = Desk(offers=[replace(o, accepting=accepting) for o in offers])
        desk.ask("job", **asked)
        [refusal] = desk.act()
        assert isinstance(refusal, Refuse)
        for word in words:
            assert word in refusal.reason


@pytest.mark.parametrize(
    ("offers", "asked"),
    [
        ([offer("a"), offer("b", max_cores=8, accepting=False)], {"spec": BIG}),
        ([offer("a"), WorkerOffer.of_absent("b", "host-b")], {"spec": BIG}),
        ([offer("a"), WorkerOffer.of_absent("b", "host-b")], {"placement": labels(zone="b")}),
        ([ZONES[0], replace(ZONES[1], accepting=False)], {"placement": labels(zone="b")}),
    ],
)
def test_job_waits_for_a_worker_that_does_not_accept_or_has_not_come(
    offers: list[WorkerOffer], asked: dict[str, Any]
) -> None:
    desk = Desk(offers=offers)
    desk.ask("job", **asked)
    assert desk.act() == []
    desk.state.offer([offer("a"), offer("b", max_cores=8, labels={"zone": "b"})])
    desk.settle()
    assert workers_of(desk) == {"job": "b"}


def test_without_any_worker_all_wait() -> None:
    desk = Desk(offers=[offer("a")])
    desk.state.offer([])
    desk.ask("one", BIG)
    desk.ask("two", classic=True)
    desk.ask("three", ATTACHED)
    assert desk.act() == []


@pytest.mark.parametrize(
    ("has", "asked", "suits"),
    [
        ("", (), True),
        ("landlock", (), True),
        ("", ("landlock",), False),
        ("landlock", ("landlock",), True),
        ("landlock", ("user",), False),
        ("user", ("landlock",), False),
        ("user+landlock", ("landlock",), True),
        ("user+landlock", ("user", "landlock"), True),
        ("user", ("user", "landlock"), False),
    ],
)
def test_sandbox_of_a_worker(has: str, asked: tuple[str, ...], suits: bool) -> None:
    assert offer("a", sandbox=has).suits(Placement(sandboxes=frozenset(asked))) is suits


# -- recovery -----------------------------------------------------------------------------------------------------


def test_rooms_of_recovered_jobs_are_kept_on_their_worker() -> None:
    desk = Desk(offers=[offer("a", max_engines=1), offer("b", max_engines=1)], recovered=False)
    desk.state.expected = Counter([(None, "a")])
    desk.ask("new", classic=True)
    assert [d.worker for d in desk.act() if isinstance(d, Grant)] == ["b"]


def test_idle_engine_is_stopped_although_another_worker_has_not_come_back() -> None:
    desk = Desk(offers=[offer("a")], recovered=False)
    desk.state.expected = Counter([("far", "b")])
    desk.run("one")
    desk.leave("one")
    desk.now = 1000
    assert kinds(desk.act()) == [StopEngine]


# -- all together -------------------------------------------------------------------------------------------------

SPECS = [EngineSpec("local[1]"), EngineSpec("local[2]"), EngineSpec("local[4]", memory="2g")]
PLACEMENTS = [
    ANYWHERE,
    ANYWHERE,
    labels(zone="a"),
    labels(zone="b"),
    labels(disk="ssd"),
    LANDLOCK,
]


@dataclass
class Fleet:
    """Workers that come, go, and stop accepting; what must always hold is looked at after every step."""

    rng: random.Random
    limits: Limits
    state: ResourceState = field(default_factory=ResourceState)
    offers: dict[str, WorkerOffer] = field(default_factory=dict)
    now: float = 0.0
    asked: dict[Ticket, SlotRequest] = field(default_factory=dict)
    running: dict[Ticket, SlotRequest] = field(default_factory=dict)
    granted: int = 0
    on: set[str] = field(default_factory=set)
    """Workers on which a job was."""

    def __post_init__(self) -> None:
        self.state.recovered = True
        for n in range(self.rng.randint(2, 5)):
            self.offers[f"w{n}"] = self.draw(f"w{n}")
        self.state.offer(self.offers.values())

    def draw(self, worker: str) -> WorkerOffer:
        rng = self.rng
        return WorkerOffer(
            worker,
            worker,
            rng.randint(1, 3),
            rng.choice([2, 4, 4]),
            rng.choice(["1g", "4g"]),
            frozenset(rng.sample([("zone", "a"), ("zone", "b"), ("disk", "ssd")], rng.randint(0, 3))),
            rng.choice(["", "landlock", "user+landlock"]),
        )

    def request(self) -> None:
        kind = self.rng.random()
        request = SlotRequest(
            JobID(f"job-{self.rng.random()}"),
            ATTACHED if kind < 0.05 else self.rng.choice(SPECS),
            classic=0.05 <= kind < 0.15,
            exclusive=0.15 <= kind < 0.3,
            priority=self.rng.choice([0, 0, 0, 1]),
            arrival=self.now,
            placement=self.rng.choice(PLACEMENTS),
        )
        self.asked[self.state.ask(request, self.now)] = request

    def act(self) -> None:
        for decision in plan(self.state, self.limits, self.now):
            self.check(decision)
            apply(self.state, self.limits, decision, self.now)
            if isinstance(decision, Grant):
                self.granted += 1
                self.on.add(decision.worker)
                self.running[decision.ticket] = self.asked.pop(decision.ticket)
            elif isinstance(decision, Refuse):
                del self.asked[decision.ticket]
        assert plan(self.state, self.limits, self.now) == [], "one plan says it all"
        held = [t for e in self.state.engines.values() for t in e.holders] + list(self.state.classic)
        assert sorted(held) == sorted(self.running)

    def check(self, decision: Decision) -> None:
        match decision:
            case Grant():
                request, there = self.asked[decision.ticket], self.state.workers[decision.worker]
                assert there.accepting
                assert there.suits(request.placement)
                if decision.engine is None:
                    assert there.holds(request.engine)
                    assert self.state.rooms_taken[decision.worker] < there.max_engines
                else:
                    engine = self.state.engines[decision.engine]
                    assert (engine.state, engine.worker) == (EngineState.READY, decision.worker)
                    assert len(engine.holders) < engine.slots
            case StartEngine():
                there = self.state.workers[decision.worker]
                assert there.accepting
                assert there.holds(decision.spec)
                assert decision.spec.attached or self.state.rooms_taken[decision.worker] < there.max_engines
                assert not decision.tickets or any(there.suits(self.asked[t].placement) for t in decision.tickets)
            case StopEngine():
                engine = self.state.engines[decision.engine]
                assert engine.idle
                assert not engine.foreign
            case DetachEngine():
                assert self.state.engines[decision.engine].idle
            case Refuse():
                request = self.asked[decision.ticket]
                offers = self.state.workers.values()
                assert not any(o.suits(request.placement) and o.holds(request.engine) for o in offers)

    def forget(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            del self.running[ticket]

    def move(self) -> None:
        """Engines come up and end."""
        for engine in list(self.state.engines.values()):
            if engine.state is EngineState.STARTING:
                name = "attached" if engine.foreign else f"engine-{self.rng.random()}"
                self.state.ready(engine.key, name, self.now)
            elif engine.state is EngineState.STOPPING:
                self.state.gone(engine.key)

    def step(self) -> None:
        self.now += self.rng.uniform(0, 0.5)
        what = self.rng.choice(["ask", "ask", "ask", "end", "end", "move", "cancel", "worker", "worker gone", "fail"])
        match what:
            case "ask" if self.state.waiting < 30:
                self.request()
            case "end" if self.running:
                ticket = self.rng.choice(list(self.running))
                del self.running[ticket]
                self.state.release(ticket, self.now)
            case "move":
                self.move()
            case "cancel" if self.asked and self.rng.random() < 0.3:
                ticket = self.rng.choice(list(self.asked))
                self.state.leave(ticket)
                del self.asked[ticket]
            case "worker":
                worker = self.rng.choice(list(self.offers))
                accepting = self.rng.random() < 0.7
                there = self.offers[worker] if self.rng.random() < 0.8 else self.draw(worker)
                there = replace(there, accepting=accepting, draining=not accepting and self.rng.random() < 0.5)
                self.offers[worker] = there
                self.state.offer(self.offers.values())
            case "worker gone" if self.rng.random() < 0.2:
                worker = self.rng.choice(list(self.offers))
                for engine in [e for e in self.state.engines.values() if e.worker == worker]:
                    self.forget(self.state.gone(engine.key))
                for ticket in [t for t, c in self.state.classic.items() if c.worker == worker]:
                    self.state.release(ticket, self.now)
                    self.forget([ticket])
            case "fail":
                starting = [e.key for e in self.state.engines.values() if e.state is EngineState.STARTING]
                if starting and self.rng.random() < 0.2:
                    for ticket in self.state.start_failed(self.rng.choice(starting)):
                        del self.asked[ticket]
        self.act()


@pytest.mark.parametrize("seed", range(12))
def test_what_must_hold_with_several_workers_does(seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(
        slots=rng.randint(1, 3),
        idle_timeout=rng.choice([2.0, 50.0]),
        warm=rng.choice([0, 0, 1, 2]),
        warm_spec=SPECS[0],
        patience=10.0,
        spread=seed % 2 == 1,
    )
    fleet = Fleet(rng, limits)
    for _ in range(600):
        fleet.step()
    assert fleet.granted > 30
    assert len(fleet.on) > 1
    # When all workers accept and nobody asks any more, everybody is served or refused.
    fleet.offers = {w: fleet.draw(w) for w in fleet.offers}
    fleet.state.offer(fleet.offers.values())
    for _ in range(3000):
        if not fleet.state.waiting:
            break
        fleet.now += 1.0
        fleet.move()
        fleet.act()
        if fleet.running:
            ticket = next(iter(fleet.running))
            del fleet.running[ticket]
            fleet.state.release(ticket, fleet.now)
            fleet.act()
    assert fleet.state.waiting == 0
