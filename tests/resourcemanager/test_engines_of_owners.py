"""An engine is of one owner: who gets which, what makes room for whom, and that nobody is starved."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from tests.resourcemanager.test_resource_core import ATTACHED, X
from tests.resourcemanager.test_resource_core import Desk as Plans
from tests.resourcemanager.test_resource_manager import Desk, play, record

from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.core import PATIENCE, StopEngine
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.types import JobID
from firesteel.worker.engines import LocalEngineProvider

ANN = dataclasses.replace(X, owner="ann")
BOB = dataclasses.replace(X, owner="bob")


def test_jobs_of_two_owners_are_never_on_one_engine() -> None:
    plans = Plans(slots=8)
    of_ann = plans.run("a1", ANN)
    assert plans.run("b1", BOB) != of_ann
    assert plans.run("a2", ANN) == of_ann
    for job in ("a1", "a2"):
        plans.leave(job)
    assert plans.run("b2", BOB) != of_ann, "nor is one that the other owner has left"


def test_one_owner_alone_has_no_more_engines_than_with_shared_ones() -> None:
    shared, owned = Plans(slots=2), Plans(slots=2)
    for job in "abc":
        shared.run(job, X)
        owned.run(job, ANN)
    assert len(shared.state.engines) == len(owned.state.engines) == 2


def test_idle_engine_of_another_owner_makes_room() -> None:
    plans = Plans(max_engines=1)
    of_ann = plans.run("a1", ANN)
    plans.leave("a1")
    plans.ask("b1", BOB)
    assert [d.engine for d in plans.act() if isinstance(d, StopEngine)] == [of_ann]
    plans.settle()
    assert plans.granted("b1") == [True]
    assert {e.spec.owner for e in plans.state.engines.values()} == {"bob"}


@pytest.mark.parametrize("streams", [0, 1], ids=["batch jobs only", "a stream on one engine that never ends"])
def test_owner_who_keeps_all_engines_busy_does_not_starve_another(streams: int) -> None:
    """Ann's next job is always there before one of hers ends; Bob asks once."""
    plans = Plans(slots=2, max_engines=2)
    running = [f"s{n}" for n in range(streams)]
    for job in running:
        plans.run(job, ANN)
    batch: list[str] = []
    for number in range(4 - streams):
        plans.run(job := f"a{number}", ANN)
        batch.append(job)
    plans.now = 1.0
    plans.ask("b", BOB, arrival=1.0)
    count = 100
    while "b" not in plans.at:
        assert plans.now < 4 * PATIENCE, "bob waits for ever"
        count += 1
        plans.now += 1.0
        plans.ask(job := f"a{count}", ANN, arrival=plans.now)
        batch.append(job)
        oldest = next(j for j in batch if j in plans.at)
        batch.remove(oldest)
        plans.leave(oldest)
        plans.settle()
    engines = {e.key: e.spec.owner for e in plans.state.engines.values()}
    assert sorted(filter(None, engines.values())) == ["ann", "bob"], "and ann keeps the other"


def test_request_of_another_owner_that_waits_longest_is_served_before_later_ones() -> None:
    plans = Plans(slots=1, max_engines=1)
    plans.run("a1", ANN)
    plans.ask("b1", BOB, arrival=1.0)
    plans.ask("a2", ANN, arrival=2.0)
    plans.settle()
    plans.leave("a1")
    plans.settle()
    assert plans.granted("b1", "a2") == [True, False]


def test_warm_engine_is_given_to_nobody_but_its_owner() -> None:
    """What it may open was decided when it started (S42)."""
    plans = Plans(warm=1, warm_spec=ANN, max_engines=3)
    plans.settle()
    [warm] = plans.state.engines.values()
    assert plans.run("b", BOB, exclusive=True) != warm.key
    assert plans.run("a", ANN, exclusive=True) == warm.key


def test_engine_that_served_everybody_is_given_to_no_owner_after_the_option_changed() -> None:
    plans = Plans(recovered=False)
    plans.state.adopt("old", X, slots=2, now=0.0)
    plans.state.ready("old", "old", 0.0)
    plans.state.reclaim(SlotRequest(JobID("a"), ANN), "old")
    plans.state.recovered = True
    assert plans.run("a2", ANN) != "old"
    assert plans.state.engines["old"].spec.owner is None


def test_attached_engine_is_shared_by_all_owners(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slots = [await desk.run(owner, dataclasses.replace(ATTACHED, owner=owner)) for owner in ("ann", "bob")]
        assert {s.engine.engine_id for s in slots if s.engine} == {"attached-h-1"}

    play(scene, tmp_path)


def test_owner_of_an_engine_survives_a_failover(tmp_path: Path) -> None:
    directory = EngineDirectory(tmp_path)
    directory.save(dataclasses.replace(record("e-old"), spec=ANN))
    read = directory.load("e-old")
    assert read is not None
    assert read.spec == ANN

    def prepare(provider: Any) -> None:
        provider.left = [read]

    async def scene(desk: Desk) -> None:
        await desk.until(lambda: [e.state for e in desk.manager.overview().engines] == ["READY"])
        slot = await desk.run("b", BOB)
        assert slot.engine is not None
        assert slot.engine.engine_id != "e-old"
        again = await desk.run("a", ANN)
        assert again.engine is not None
        assert again.engine.engine_id == "e-old"
        assert {e.engine_id: e.owner for e in desk.manager.overview().engines}["e-old"] == "ann"

    play(scene, tmp_path, prepare=prepare)


def test_record_of_an_engine_without_an_owner_can_be_read() -> None:
    data = record("e").as_json()
    spec = data["spec"]
    assert isinstance(spec, dict)
    del spec["owner"]
    assert EngineRecord.from_json(data).spec == EngineSpec("local[1]")


def test_engine_of_a_user_is_for_the_jobs_of_that_user_only(tmp_path: Path) -> None:
    users = EngineDirectory(tmp_path / "users")
    users.save(dataclasses.replace(record("e", shared=True), process=ProcessIdentity.of(os.getpid())))

    async def owners(owner: str | None) -> list[str | None]:
        options = LaunchOptions(tmp_path)
        provider = LocalEngineProvider(EngineDirectory(tmp_path), options, shared=users, shared_owner=owner)
        try:
            return [r.spec.owner for r in await provider.shared()]
        finally:
            await provider.close()

    assert asyncio.run(owners("ann")) == ["ann"]
    assert asyncio.run(owners(None)) == [None]


def test_job_that_lost_its_engine_is_told_where_the_log_of_it_is(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slots = [await desk.run(owner or "all", dataclasses.replace(X, owner=owner)) for owner in ("ann", None)]
        for slot in slots:
            assert slot.engine is not None
            desk.provider.health_of[slot.engine.engine_id] = EngineHealth.GONE
        reasons = [await asyncio.wait_for(slot.lost, 5) for slot in slots]
        assert "`firesteel logs --engine ann`" in reasons[0]
        assert "--engine" not in reasons[1], "the log of an engine that all use is nobody's"

    play(scene, tmp_path)
