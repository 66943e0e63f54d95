"""Rounds are drawn from a seed, and played as planned."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.chaos.server_faults import postgresql_faults, zookeeper_faults

from firesteel_chaos import rounds
from firesteel_chaos.controlled import ChaosError, ControlledCluster
from firesteel_chaos.faults import ABILITIES, TABLE, Fault, NoTargetError, Strike, World, fault, playable, select
from firesteel_chaos.history import Event, History
from firesteel_chaos.rounds import Player, Round, RoundShape, Step, plan

ALL = (*TABLE, *zookeeper_faults(cast("Any", None)), *postgresql_faults(cast("Any", None)))


def test_the_table_has_every_fault_that_can_be_played_here() -> None:
    wanted = {f"F{n}" for n in [*range(1, 9), *range(10, 16), *range(18, 24), *range(26, 30)]}
    assert wanted <= {each.name for each in ALL}
    keys = [each.key for each in ALL]
    assert len(keys) == len(set(keys))
    assert all(each.needs <= set(ABILITIES) for each in ALL)
    harms = {"nodes", "drivers", "engines", "store", "quorum", "network", "clients", "disk", "hosts", "frozen"}
    assert all(each.harms <= harms for each in ALL)


def test_a_plan_is_a_function_of_its_seed() -> None:
    first = list(itertools.islice(plan(7, TABLE, lease=4), 60))
    assert first == list(itertools.islice(plan(7, TABLE, lease=4), 60))
    assert first != list(itertools.islice(plan(8, TABLE, lease=4), 60))
    assert first[:20] == list(itertools.islice(plan(7, TABLE, lease=4), 20))
    assert {r.shape for r in first} == set(RoundShape)
    assert [r.number for r in first] == list(range(1, 61))


def test_every_fault_comes_before_one_comes_again_and_lasts_as_long_as_it_says() -> None:
    known = {each.key: each for each in TABLE if each.weight == 1}
    steps = [s for r in itertools.islice(plan(3, list(known.values()), lease=4), 200) for s in r.steps]
    # A pair of one fault with itself is played as that one alone; only there a turn is lost.
    assert {s.fault for s in steps[: len(known) + 2]} >= set(known) - {steps[len(known) - 1].fault}
    for step in steps:
        low, high = known[step.fault].hold
        unit = 4 if known[step.fault].leases else 1
        assert low * unit - 0.01 <= step.hold <= high * unit + 0.01


def test_one_fault_is_played_alone() -> None:
    only = select(TABLE, ["F1/kill-leader"])
    assert {r.shape for r in itertools.islice(plan(1, only, lease=4), 20)} == {RoundShape.ALONE}


def test_words_that_name_no_fault_are_refused() -> None:
    assert {each.name for each in select(TABLE, ["F6", "F1/kill-leader"])} == {"F6", "F1"}
    with pytest.raises(ChaosError, match="F99"):
        select(TABLE, ["F99"])
    with pytest.raises(ChaosError, match="no fault can be played"):
        next(plan(1, playable(TABLE, []) and [], lease=4))


def test_what_a_cluster_cannot_do_is_not_played() -> None:
    assert {each.key for each in playable(TABLE, {"pause"})} == {
        "F4/pause-leader",
        "F4/pause-briefly",
        "F20/duplicates",
    }


# -- the player -----------------------------------------------------------------------------------------------------


class Node:
    name = "n1"

    def __init__(self) -> None:
        self.alive = True
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        self.alive = True


class Cluster:
    def __init__(self) -> None:
        self.node = Node()

    def nodes(self) -> list[Node]:
        return [self.node]


def example(variant: str, happened: list[str], *, target: bool = True) -> Fault:
    @fault("F1", variant, "an example", needs="", harms="nodes")
    def work(world: World, strike: Strike) -> Iterator[None]:
        if not target:
            raise NoTargetError("there is none")
        strike.later(lambda: happened.append(f"{variant} checked"))
        strike.finally_(lambda: happened.append(f"{variant} cleaned"))
        strike.begin("n1", ["job"])
        happened.append(f"{variant} injected")
        yield
        happened.append(f"{variant} healed")

    return work


class Table:
    """Two faults, a player of them, and what happened."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened: list[str] = []
        self.cluster = Cluster()
        self.history = History(file)
        self.answering = True
        monkeypatch.setattr(rounds, "answers", lambda _: self.answering)
        monkeypatch.setattr(rounds, "RECOVERY_SECONDS", 0.2)

    def play(self, shape: RoundShape, *, control: bool = False, target: bool = True) -> list[Event]:
        faults = [example("a", self.happened, target=target), example("b", self.happened)]
        world = World(cast("ControlledCluster", self.cluster), self.history, Path(), random.Random(0))
        steps = tuple(Step(each.key, 0, 0) for each in (faults if shape is not RoundShape.ALONE else faults[:1]))
        player = Player(world, faults, control=control, sleep=lambda _: None)
        self.back = player.play(Round(1, 1, shape, steps, 0))
        return self.history.events()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    made = Table(tmp_path / "history.jsonl", monkeypatch)
    yield made
    made.history.close()


def test_a_fault_is_written_down_before_it_happens_and_healed_after(table: Table) -> None:
    events = table.play(RoundShape.ALONE)
    assert [e.kind for e in events] == ["round", "fault", "healed", "recovered"]
    assert events[1].data | {"target": "n1", "jobs": ["job"], "name": "F1", "harms": ["nodes"]} == events[1].data
    assert table.happened == ["a injected", "a healed", "a checked", "a cleaned"]
    assert table.back


def test_a_pair_lasts_together(table: Table) -> None:
    table.play(RoundShape.PAIR)
    assert table.happened[:4] == ["a injected", "b injected", "b healed", "a healed"]


def test_one_after_the_other_in_recovery(table: Table) -> None:
    table.play(RoundShape.IN_RECOVERY)
    assert table.happened[:4] == ["a injected", "a healed", "b injected", "b healed"]


def test_a_control_run_injects_nothing(table: Table) -> None:
    events = table.play(RoundShape.PAIR, control=True)
    assert [e.kind for e in events] == ["round", "recovered"]
    assert events[0]["control"] is True
    assert table.happened == []


def test_a_fault_without_target_is_skipped_and_the_other_one_played(table: Table) -> None:
    events = table.play(RoundShape.PAIR, target=False)
    assert [e.kind for e in events] == ["round", "skipped", "fault", "healed", "recovered"]
    assert table.happened == ["b injected", "b healed", "b checked", "b cleaned"]


def test_a_node_that_died_is_started_when_the_round_ends(table: Table) -> None:
    table.cluster.node.alive = False
    table.play(RoundShape.ALONE)
    assert table.cluster.node.starts == 1


def test_a_cluster_that_does_not_come_back_is_a_violation(table: Table) -> None:
    table.answering = False
    events = table.play(RoundShape.ALONE)
    assert not table.back
    assert [e["seconds"] for e in events if e.kind == "recovered"] == [None]
    assert [(e["held"], e["invariant"]) for e in events if e.kind == "expectation"] == [(False, "I9")]
    assert table.happened == ["a injected", "a healed", "a cleaned"]


def test_an_error_in_a_thread_of_a_fault_is_raised(table: Table) -> None:
    world = World(cast("ControlledCluster", table.cluster), table.history, Path(), random.Random(0))
    strike = Strike(world, example("a", []), 0)

    def work(_: object) -> None:
        raise ValueError("of the thread")

    with pytest.raises(ValueError, match="of the thread"), strike.meanwhile(work):
        pass
