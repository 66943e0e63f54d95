"""The rules by which engines are handed out, one small table each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from firesteel.engines.record import EngineSpec
from firesteel.resourcemanager.core import Decision, Grant, Limits, Refuse, StartEngine, StopEngine, apply, plan
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.resourcemanager.state import EngineState, ResourceState, Ticket
from firesteel.types import JobID

X = EngineSpec("local[1]")
Y = EngineSpec("local[2]")
Z = EngineSpec("local[2]", memory="2g")
ATTACHED = EngineSpec("sc://spark.example.com:15002")
LIMITS = Limits(slots=2, idle_timeout=100)
OFFER = WorkerOffer("w", "host", max_engines=2, max_cores=4, max_memory="4g")


class Desk:
    """A state with names: what is asked is called by the job, engines by the order of their start."""

    def __init__(
        self,
        limits: Limits = LIMITS,
        *,
        recovered: bool = True,
        max_engines: int = 2,
        offers: Sequence[WorkerOffer] | None = None,
        **changes: Any,
    ) -> None:
        self.state = ResourceState()
        self.state.offer(offers or [dataclasses.replace(OFFER, max_engines=max_engines)])
        self.state.recovered = recovered
        self.limits = dataclasses.replace(limits, **changes)
        self.now = 0.0
        self.tickets: dict[str, Ticket] = {}
        self.at: dict[str, str | None] = {}

    def ask(self, job: str, spec: EngineSpec = X, **more: Any) -> None:
        self.tickets[job] = self.state.ask(SlotRequest(JobID(job), spec, **more), self.now)

    def decisions(self) -> list[Decision]:
        return plan(self.state, self.limits, self.now)

    def act(self) -> list[Decision]:
        """Carry the plan out; engines keep starting and stopping until they are told otherwise."""
        decisions = self.decisions()
        for d in decisions:
            apply(self.state, self.limits, d, self.now)
            if isinstance(d, Grant):
                self.at[d.job_id] = d.engine
        assert self.decisions() == [], "one plan says it all"
        return decisions

    def settle(self) -> None:
        """Act until nothing changes; engines start and stop at once."""
        for _ in range(50):
            self.act()
            moving = [e for e in self.state.engines.values() if e.state is not EngineState.READY]
            if not moving:
                return
            for engine in moving:
                if engine.state is EngineState.STARTING:
                    self.state.ready(engine.key, engine.key.replace("starting", "engine"), self.now)
                else:
                    self.state.gone(engine.key)
        raise AssertionError("the plans never end")

    def run(self, job: str, spec: EngineSpec = X, **more: Any) -> str | None:
        """Ask and get; the engine's id."""
        self.ask(job, spec, **more)
        self.settle()
        return self.at[job]

    def leave(self, job: str) -> None:
        self.state.release(self.tickets[job], self.now)

    def granted(self, *jobs: str) -> list[bool]:
        return [job in self.at for job in jobs]

    @property
    def specs(self) -> list[EngineSpec]:
        return [e.spec for e in self.state.engines.values()]


def kinds(decisions: list[Decision]) -> list[type[Decision]]:
    return [type(d) for d in decisions]


def test_request_without_engine_starts_one_and_gets_it_when_ready() -> None:
    desk = Desk()
    desk.ask("a")
    assert desk.act() == [StartEngine(X, (desk.tickets["a"],), "w")]
    assert desk.granted("a") == [False]
    desk.settle()
    assert desk.at == {"a": "engine-1"}


def test_starting_engine_counts_for_as_many_requests_as_it_has_slots() -> None:
    desk = Desk()
    desk.ask("a")
    assert kinds(desk.act()) == [StartEngine]
    desk.ask("b")
    assert desk.act() == []
    desk.ask("c")
    assert desk.act() == [StartEngine(X, (desk.tickets["c"],), "w")]


def test_requests_of_one_moment_share_the_engine_that_is_started_for_them() -> None:
    desk = Desk()
    for job in "abc":
        desk.ask(job)
    a, b, c = (desk.tickets[job] for job in "abc")
    assert desk.act() == [StartEngine(X, (a, b), "w"), StartEngine(X, (c,), "w")]


def test_specs_must_be_equal() -> None:
    desk = Desk()
    assert desk.run("a", Y) != desk.run("b", Z)


def test_fullest_fitting_engine_is_taken() -> None:
    desk = Desk(slots=3)
    first = desk.run("a")
    desk.run("b")
    desk.run("c")
    assert desk.run("d") != first  # full
    desk.leave("b")
    desk.leave("c")  # one each now
    second = desk.at["d"]
    assert desk.run("e") in (first, second)
    fuller = desk.at["e"]
    assert desk.run("f") == fuller


def test_no_room_and_nothing_idle_waits() -> None:
    desk = Desk(max_engines=1)
    desk.run("a", X)
    desk.ask("b", Y)
    assert desk.act() == []
    desk.leave("a")
    assert kinds(desk.act()) == [StopEngine]
    assert desk.act() == []  # it takes room until it is gone
    desk.settle()
    assert desk.specs == [Y]
    assert desk.granted("b") == [True]


def test_one_engine_is_stopped_for_one_request() -> None:
    desk = Desk()
    desk.run("a", X)
    desk.run("b", Y)
    desk.leave("a")
    desk.leave("b")
    desk.ask("c", Z)
    assert kinds(desk.act()) == [StopEngine]
    desk.ask("d", Z)  # fits in the engine that will come
    assert desk.act() == []


def test_engine_that_was_idle_longest_makes_room() -> None:
    desk = Desk()
    desk.run("a", X)
    old = desk.run("b", Y)
    desk.leave("b")
    desk.now = 1
    desk.leave("a")
    desk.ask("c", Z)
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert stop.engine == old


def test_higher_priority_first_then_arrival_then_the_order_of_asking() -> None:
    desk = Desk(slots=1, max_engines=1)
    desk.run("first")
    desk.ask("late", arrival=2.0)
    desk.ask("early", arrival=1.0)
    desk.ask("early-too", arrival=1.0)
    desk.ask("urgent", arrival=9.0, priority=5)
    served = ["first"]
    while desk.state.waiting:
        before = set(desk.at)
        desk.leave(served[-1])
        desk.settle()
        [new] = set(desk.at) - before
        served.append(new)
    assert served == ["first", "urgent", "early", "early-too", "late"]


def test_later_request_takes_a_free_slot_of_its_own_spec_but_never_room() -> None:
    desk = Desk(slots=3)
    desk.run("x1", X)
    desk.run("y1", Y)
    desk.run("y2", Y)
    desk.ask("head", Z)  # no room; the engine with the fewest jobs (X) is emptied for it
    desk.ask("y3", Y)
    desk.ask("x2", X)
    desk.settle()
    assert desk.granted("head", "y3", "x2") == [False, True, False]
    desk.leave("x1")
    desk.settle()
    assert desk.granted("head", "x2") == [True, False]
    assert desk.specs == [Y, Z]


def test_engine_is_emptied_for_the_head_although_others_keep_coming() -> None:
    desk = Desk(slots=4, max_engines=1)
    for job in ("a", "b"):
        desk.run(job, X)
    desk.ask("head", Y)
    for n in range(20):
        desk.ask(f"more-{n}", X)
        desk.settle()
    desk.leave("a")
    desk.settle()
    desk.leave("b")
    desk.settle()
    assert desk.granted("head") == [True]


def test_head_gets_a_turn_at_every_engine_when_the_first_one_holds_a_stream() -> None:
    """The engine with the fewest jobs holds one that never ends; the other would be refilled forever."""
    desk = Desk(slots=3, patience=10)
    desk.run("stream", X)
    for n in range(3):
        desk.run(f"batch-{n}", Y)
    desk.ask("head", Z)
    n = 0
    while not desk.granted("head")[0]:
        desk.now += 1
        assert desk.now < 100, "starved"
        desk.ask(f"batch-{n + 3}", Y)
        desk.leave(f"batch-{n}") if f"batch-{n}" in desk.at else None
        desk.settle()
        running = [j for e in desk.state.engines.values() for j in e.holders.values()]
        n = next((i for i in range(200) if f"batch-{i}" in running), n)
    assert "stream" in [j for e in desk.state.engines.values() for j in e.holders.values()]


def test_request_with_an_engine_of_its_spec_waits_for_a_slot_before_others_are_emptied() -> None:
    desk = Desk(slots=1, patience=10)
    desk.run("x1", X)
    desk.run("y1", Y)
    desk.limits = dataclasses.replace(desk.limits, slots=1)
    desk.state.engines[desk.at["y1"] or ""].slots = 3
    desk.ask("x2", X)
    desk.ask("y2", Y)
    desk.settle()
    assert desk.granted("x2", "y2") == [False, True]
    desk.now = 25  # patience is over
    desk.ask("y3", Y)
    desk.settle()
    assert desk.granted("x2", "y3") == [False, False]
    desk.leave("y1")
    desk.leave("y2")
    desk.settle()
    assert desk.granted("x2") == [True]


# -- exclusive ----------------------------------------------------------------------------------------------------


def test_exclusive_engine_is_for_nobody_else_and_ends_with_its_job() -> None:
    desk = Desk(max_engines=1)
    engine = desk.run("a", exclusive=True)
    desk.ask("b")
    desk.settle()
    assert desk.granted("b") == [False]
    desk.leave("a")
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert stop.engine == engine
    desk.settle()
    assert desk.at["b"] not in (None, engine)


def test_exclusive_request_never_gets_an_engine_on_which_somebody_was() -> None:
    desk = Desk(max_engines=1)
    first = desk.run("a")
    desk.leave("a")
    assert desk.run("b", exclusive=True) not in (None, first)


def test_exclusive_requests_do_not_share_a_starting_engine() -> None:
    desk = Desk()
    desk.ask("a", exclusive=True)
    desk.ask("b", exclusive=True)
    assert kinds(desk.act()) == [StartEngine, StartEngine]


def test_engine_whose_exclusive_request_was_cancelled_serves_the_next() -> None:
    desk = Desk(max_engines=1)
    desk.ask("a", exclusive=True)
    desk.act()
    desk.state.leave(desk.tickets["a"])
    assert desk.run("b", exclusive=True) == "engine-1"


# -- warm ---------------------------------------------------------------------------------------------------------

WARM = dataclasses.replace(LIMITS, warm=1, warm_spec=X)


def test_warm_engine_is_started_used_and_replaced() -> None:
    desk = Desk(WARM, max_engines=3)
    desk.settle()
    assert desk.specs == [X]
    desk.ask("a", exclusive=True)
    assert kinds(desk.act()) == [Grant, StartEngine]
    desk.settle()
    assert len(desk.specs) == 2


def test_warm_engines_stay_within_the_limit_and_are_not_idle() -> None:
    desk = Desk(WARM, max_engines=3, warm=5)
    desk.settle()
    assert len(desk.specs) == 3
    desk.now = 1e6
    assert desk.act() == []


def test_warm_engine_makes_room_last() -> None:
    desk = Desk(WARM, max_engines=2)
    desk.settle()
    desk.run("a", Y)
    desk.now = 5
    desk.leave("a")
    desk.ask("b", Z)
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert desk.state.engines[stop.engine].spec == Y
    desk.settle()
    desk.ask("c", Y)
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert desk.state.engines[stop.engine].spec == X


def test_warm_engine_is_not_refilled_while_somebody_waits_for_room() -> None:
    desk = Desk(WARM, max_engines=1)
    desk.run("a", Y)
    desk.ask("b", Z)
    desk.settle()
    desk.leave("a")
    desk.settle()
    assert desk.specs == [Z]


def test_shared_request_leaves_the_warm_engine_when_another_is_idle() -> None:
    desk = Desk(WARM, max_engines=3)
    desk.settle()
    [warm] = desk.state.engines
    used = desk.run("a")
    assert used == warm  # nothing else is there
    desk.leave("a")
    desk.settle()
    assert desk.run("b") == used


# -- classic ------------------------------------------------------------------------------------------------------


def test_classic_driver_takes_the_room_of_an_engine() -> None:
    desk = Desk()
    desk.ask("a", classic=True)
    assert desk.act() == [Grant(desk.tickets["a"], JobID("a"), None, "w")]
    desk.run("b", X)
    desk.ask("c", classic=True)
    assert desk.act() == []
    desk.leave("a")
    assert kinds(desk.act()) == [Grant]


def test_idle_engine_makes_room_for_a_classic_driver() -> None:
    desk = Desk(max_engines=1)
    desk.run("a", X)
    desk.leave("a")
    desk.ask("b", X, classic=True)
    assert kinds(desk.act()) == [StopEngine]
    desk.settle()
    assert desk.granted("b") == [True]
    assert desk.specs == []


# -- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovered", [True, False])
@pytest.mark.parametrize("classic", [True, False])
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            EngineSpec("local[5]"),
            ("5 cores", "local[5]", "more than 4 ", "(engine.max-cores)", "raise engine.max-cores"),
        ),
        (EngineSpec("local[1]", "5g"), ("5g", "more than 4g ", "(engine.max-memory)", "raise engine.max-memory")),
        (EngineSpec("spark://h:7077", "4097m"), ("4097m", "engine.max-memory")),
    ],
)
def test_too_large_is_refused_with_what_and_why_and_the_fix(
    spec: EngineSpec, words: tuple[str, ...], classic: bool, recovered: bool
) -> None:
    desk = Desk(recovered=recovered)
    desk.ask("a", spec, classic=classic)
    [refusal] = desk.act()
    assert isinstance(refusal, Refuse)
    for word in words:
        assert word in refusal.reason
    assert desk.state.waiting == 0


@pytest.mark.parametrize("spec", [EngineSpec("local[4]", "4g"), EngineSpec("spark://h:7077", "4096m"), ATTACHED])
def test_largest_that_is_allowed_is_not_refused(spec: EngineSpec) -> None:
    desk = Desk()
    assert desk.run("a", spec) is not None


# -- idle, recovery, engines of others ----------------------------------------------------------------------------


def test_idle_engine_is_stopped_after_its_time_and_not_before() -> None:
    desk = Desk()
    desk.run("a")
    desk.now = 50
    desk.leave("a")
    desk.now = 149.9
    assert desk.act() == []
    desk.now = 150
    [stop] = desk.act()
    assert isinstance(stop, StopEngine)
    assert "engine.idle-timeout" in stop.why


def test_nothing_is_granted_started_or_stopped_before_recovery_ended() -> None:
    desk = Desk(recovered=False, warm=1, warm_spec=X)
    desk.state.adopt("old", X, slots=2, now=0)
    desk.state.ready("old", "old", 0)
    desk.ask("a", X)
    desk.ask("b", Y)
    desk.ask("c", Y, classic=True)
    desk.now = 1000
    assert desk.act() == []
    desk.state.recovered = True
    assert Grant(desk.tickets["a"], JobID("a"), "old", "w") in desk.act()


def test_adopted_engine_that_nobody_needs_falls_under_the_idle_rule() -> None:
    desk = Desk()
    desk.state.adopt("old", X, slots=2, now=0)
    desk.state.ready("old", "old", 0)
    assert desk.act() == []
    desk.now = 100
    assert kinds(desk.act()) == [StopEngine]


def test_reclaimed_slots_count_even_beyond_the_limits() -> None:
    desk = Desk(max_engines=1)
    for key in ("one", "two"):
        desk.state.adopt(key, X, slots=1, now=0)
        desk.state.ready(key, key, 0)
    tickets = [desk.state.reclaim(SlotRequest(JobID(j), X), "one") for j in "abc"]
    desk.ask("d", Y)
    assert kinds(desk.act()) == [StopEngine]  # `two` is idle; but its room is not free, there was one too many
    desk.settle()
    assert desk.granted("d") == [False]
    for ticket in tickets:
        desk.state.release(ticket, 0)
    desk.settle()
    assert desk.granted("d") == [True]


def test_reclaimed_exclusive_engine_ends_with_its_job() -> None:
    desk = Desk(recovered=False)
    desk.state.adopt("old", X, slots=2, now=0)
    desk.state.ready("old", "old", 0)
    ticket = desk.state.reclaim(SlotRequest(JobID("a"), X, exclusive=True), "old")
    desk.state.recovered = True
    desk.ask("b", X)
    assert kinds(desk.act()) == [StartEngine]
    desk.state.release(ticket, 0)
    assert StopEngine("old", "the job that had it alone has left") in desk.act()


def shared(desk: Desk, key: str = "users", spec: EngineSpec = X) -> None:
    desk.state.adopt(key, spec, slots=2, now=0, foreign=True)
    desk.state.ready(key, key, 0)


def test_engine_of_the_user_is_used_never_stopped_and_does_not_count() -> None:
    desk = Desk(max_engines=1)
    shared(desk)
    assert desk.run("a") == "users"
    assert desk.run("b", Y) not in (None, "users")
    desk.leave("a")
    desk.ask("c", Z)
    desk.now = 1e6
    assert desk.act() == []  # Y is busy, and the user's engine makes no room
    assert desk.run("d") == "users"


def test_exclusive_request_does_not_take_the_users_engine() -> None:
    desk = Desk()
    shared(desk)
    assert desk.run("a", exclusive=True) != "users"


def test_attached_engine_needs_no_room_and_there_is_one_of_it() -> None:
    desk = Desk(max_engines=1)
    desk.run("a", X)
    first = desk.run("b", ATTACHED)
    assert first == desk.run("c", ATTACHED)
    desk.ask("d", ATTACHED)
    desk.ask("e", X)
    desk.settle()
    assert desk.granted("d", "e") == [False, True]  # it waits for a slot, and keeps nobody from an engine
    desk.leave("b")
    desk.settle()
    assert desk.at["d"] == first


def test_attached_engine_is_had_alone_one_after_the_other() -> None:
    desk = Desk()
    first = desk.run("a", ATTACHED, exclusive=True)
    desk.ask("b", ATTACHED, exclusive=True)
    desk.settle()
    assert desk.granted("b") == [False]
    desk.leave("a")
    desk.settle()
    assert desk.at["b"] == first


def test_failed_start_gives_back_those_it_was_for_and_the_others_wait() -> None:
    desk = Desk()
    desk.ask("a")
    desk.act()
    desk.ask("b")
    desk.act()
    [key] = desk.state.engines
    assert desk.state.start_failed(key) == [desk.tickets["a"]]
    assert desk.act() == [StartEngine(X, (desk.tickets["b"],), "w")]


def test_lost_engine_frees_nothing_until_it_is_gone() -> None:
    desk = Desk(max_engines=1)
    engine = desk.run("a")
    assert engine is not None
    desk.ask("b", X, exclusive=True)
    assert desk.state.stop(engine) == [desk.tickets["a"]]
    assert desk.act() == []
    desk.leave("a")  # harmless: it holds nothing any more
    desk.state.gone(engine)
    assert kinds(desk.act()) == [StartEngine]


def test_waiting_behind_ten_thousand_costs_little() -> None:
    desk = Desk(slots=1, max_engines=1)
    desk.run("a")
    for n in range(10_000):
        desk.ask(f"job-{n}", arrival=n)
    looked = 0

    class Counting(list[Any]):
        def __getitem__(self, i: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(i)

    for shape, queue in desk.state.queues.items():
        desk.state.queues[shape] = Counting(queue)
    desk.decisions()
    assert looked < 10
