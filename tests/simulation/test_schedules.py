"""Seeded schedules with crashes, pauses and lost engines: whatever happens, I1-I12 hold.

A failure names its seed and plan: `simulate(Plan(...))` plays it again.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.invariants import violations
from tests.simulation.scenario import Plan, simulate
from tests.support.marks import samples

from firesteel.jobmaster import machine, master

CHUNK = 10


def _plans(first: int, **more: object) -> list[Plan]:
    return [Plan(seed, **more) for seed in range(first, first + CHUNK)]  # type: ignore[arg-type]


def _check(plans: list[Plan]) -> None:
    found = [v for plan in plans for v in violations(simulate(plan))]
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("first", samples(range(0, 100, CHUNK)))
def test_no_faults(first: int) -> None:
    """The control: what the others are compared with."""
    _check(_plans(first))


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=[pytest.mark.slow, pytest.mark.sample]), *samples(range(1, 25), quick=0)]
)
def test_crash_at_every_persistence_step(seed: int) -> None:
    """F5, exhaustively: the leader of a schedule dies before and after each thing that it makes last."""
    quiet = simulate(Plan(seed, jobs=2))
    assert not violations(quiet)
    steps = quiet.steps
    assert steps > 10
    _check([Plan(seed, jobs=2, crash_at=(step, side)) for step in range(1, steps + 1) for side in ("before", "after")])


@pytest.mark.parametrize("seed", samples(range(1_000, 1_012)))
def test_pause_at_every_persistence_step(seed: int) -> None:
    """F4, exhaustively: the leader stands still before each thing that it is about to do, another node leads for a while,
    and then the first one does it, or rather does not (I7)."""
    quiet = simulate(Plan(seed, jobs=2, nodes=2, engine_kills=1))
    assert not violations(quiet)
    _check([Plan(seed, jobs=2, nodes=2, engine_kills=1, pause_at=step) for step in range(1, quiet.steps + 1)])


@pytest.mark.parametrize("first", samples(range(10_000, 10_200, CHUNK)))
def test_leader_killed_again_and_again(first: int) -> None:
    """F1, also while it recovers from the time before."""
    _check(_plans(first, kills=6, jobs=4))


@pytest.mark.parametrize("first", samples(range(20_000, 20_200, CHUNK)))
def test_two_nodes_and_a_leader_that_is_paused_past_its_lease(first: int) -> None:
    """F4: SIGSTOP, another node leads, SIGCONT."""
    _check(_plans(first, nodes=2, pauses=3, kills=1))


@pytest.mark.parametrize("first", samples(range(30_000, 30_100, CHUNK)))
def test_engines_are_lost(first: int) -> None:
    """F13, with a control plane that dies in between."""
    _check(_plans(first, engine_kills=3, kills=2))


@pytest.mark.parametrize("first", samples(range(40_000, 40_100, CHUNK)))
def test_store_fails_in_passing(first: int) -> None:
    """F11: a fifth of all store operations is not answered; half of those happened all the same."""
    _check(_plans(first, flaky=0.2, kills=2))


@pytest.mark.parametrize("first", samples(range(45_000, 45_100, CHUNK)))
def test_starts_that_fail_though_they_succeeded(first: int) -> None:
    """F16: the answer to a start is an error, and half of these attempts run all the same."""
    _check(_plans(first, start_errors=0.3, kills=2))


@pytest.mark.parametrize("first", samples(range(46_000, 46_100, CHUNK)))
def test_moments_of_doubt(first: int) -> None:
    """The lease is not certain for a moment, and then it turns out that nobody took it: the node must lead on."""
    _check(_plans(first, doubts=0.1))


@pytest.mark.parametrize("first", samples(range(47_000, 47_100, CHUNK)))
def test_errors_of_the_system_and_silent_engines(first: int) -> None:
    """F14, F24: a tenth of all that is asked of attempts fails, engines stop answering, and the leader dies now and then."""
    _check(_plans(first, nasty=0.1, silences=2, kills=2))


@pytest.mark.parametrize("first", samples(range(50_000, 50_100, CHUNK)))
def test_everything_at_once(first: int) -> None:
    _check(_plans(first, nodes=3, kills=3, pauses=2, engine_kills=2, flaky=0.05, jobs=5))


def test_same_seed_same_history() -> None:
    """Without it a failure could not be looked at twice."""
    plan = Plan(7, nodes=2, kills=2, pauses=1, jobs=4)
    first, second = simulate(plan), simulate(plan)
    assert first.asks == second.asks
    assert first.world.effects == second.world.effects
    assert first.world.writes == second.world.writes


@pytest.mark.slow
def test_schedules_go_where_the_bugs_are() -> None:
    """Checks that nothing ever reaches prove nothing: what must be met, is."""
    met: Counter[str] = Counter()
    original = machine.step

    def step(state: machine.JobState, event: machine.Event, now: float) -> machine.Step:
        met[type(event).__name__] += 1
        match event:
            case machine.Recovered():
                met[f"recovered {event.presence}"] += 1
                met["recovered to be cancelled"] += state.cancel_requested and state.deployed
            case machine.CancelRequested() | machine.StopRequested():
                met[f"{type(event).__name__} in {state.status}"] += 1
        return original(state, event, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(master, "step", step)
        for seed in range(60_000, 60_040):
            history = simulate(
                Plan(seed, nodes=2, kills=4, pauses=1, engine_kills=1, start_errors=0.1, nasty=0.05, jobs=4)
            )
            met["stale effect or write tried"] += any(e.epoch != e.newest for e in history.world.effects)
        for seed in range(6):
            for at in range(5, 45, 2):
                simulate(Plan(seed, jobs=2, crash_at=(at, "after")))
    wanted = {
        *("SlotGranted", "SlotRefused", "DeployFailed", "AttemptEnded", "EngineLost", "Fenced", "RestartDue"),
        *("recovered running", "recovered ended", "recovered absent", "recovered to be cancelled"),
        *("CancelRequested in RUNNING", "CancelRequested in CREATED", "CancelRequested in RESTARTING"),
        "StopRequested in RUNNING",
    }
    assert not [w for w in wanted if not met[w]], met
