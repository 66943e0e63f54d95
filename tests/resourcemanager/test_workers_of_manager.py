"""The ResourceManager when workers come, stop accepting, and are lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.resourcemanager.test_resource_manager import Desk, FakeProvider, X, Y, leave, play, record

from firesteel.engines.record import EngineSpec
from firesteel.errors import EngineStartError
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.offers import Placement, WorkerOffer
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.types import JobID

HERE = WorkerOffer("w", "here", max_engines=1, max_cores=4, max_memory="4g")
THERE = WorkerOffer("there", "there", max_engines=1, max_cores=4, max_memory="4g", labels=frozenset({("zone", "b")}))
ON_THERE = Placement(labels=frozenset({("zone", "b")}))


def test_engines_and_slots_say_where_they_are(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, THERE])
        slot = await desk.run("a", placement=ON_THERE)
        assert slot.engine is not None
        assert (slot.worker, slot.engine.worker) == ("there", "there")
        classic = await desk.run("b", classic=True)
        assert (classic.worker, classic.engine) == ("w", None)
        assert desk.provider.log == ["start local[1] on there"]

    play(scene, tmp_path)


def test_worker_that_comes_gets_the_jobs_that_waited_for_it(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, WorkerOffer.of_absent("there", "there")])
        asked = desk.ask("a", placement=ON_THERE)
        assert (await desk.run("b")).worker == "w"
        await desk.looks()
        assert not asked.done()
        desk.manager.offer([HERE, THERE])
        assert (await asyncio.wait_for(asked, 5)).worker == "there"

    play(scene, tmp_path)


def test_engines_of_a_worker_are_known_before_it_gets_new_jobs(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.left = [record("e-there", worker="there")]
        desk.manager.offer([HERE, THERE])
        slot = await desk.run("a", placement=ON_THERE)
        assert slot.engine is not None
        assert slot.engine.engine_id == "e-there"
        assert desk.provider.log == []

    play(scene, tmp_path)


def test_lost_worker_takes_its_engines_and_slots_along_and_nothing_is_stopped(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([replace(HERE, max_engines=2), replace(THERE, max_engines=2)])
        there = await desk.run("a", placement=ON_THERE)
        classic = await desk.run("b", classic=True, placement=ON_THERE)
        here = await desk.run("c", Y, exclusive=True)
        assert here.worker == "w"
        desk.manager.lose_worker("there", "its host is gone")
        assert (there.lost.result(), classic.lost.result()) == ("its host is gone", "its host is gone")
        assert not here.lost.done()
        assert [e.engine_id for e in desk.manager.overview().engines] == [here.engine.engine_id if here.engine else ""]
        assert desk.manager.overview().classic == 0
        desk.manager.release_slot(there)
        await desk.looks()
        assert [word for word in desk.provider.log if not word.startswith("start")] == []
        # It comes back, empty.
        desk.manager.offer([HERE, THERE])
        assert (await desk.run("d", placement=ON_THERE)).worker == "there"

    play(scene, tmp_path)


def test_request_for_which_a_lost_worker_was_starting_an_engine_gets_one_elsewhere(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([THERE, replace(HERE, accepting=False)])
        desk.provider.gate.clear()
        asked = desk.ask("a")
        await desk.until(lambda: desk.provider.log)
        desk.manager.offer([THERE, HERE])
        desk.manager.lose_worker("there", "its host is gone")
        desk.provider.gate.set()
        assert (await asyncio.wait_for(asked, 5)).worker == "w"
        assert desk.provider.log == ["start local[1] on there", "start local[1]"]

    play(scene, tmp_path)


def test_start_that_fails_because_its_worker_went_away_is_not_the_jobs_failure(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([THERE, HERE])
        await desk.until(lambda: "there" in desk.manager._met)
        desk.provider.gate.clear()
        desk.provider.errors = [EngineStartError("worker there does not answer")]
        asked = desk.ask("a")
        await desk.until(lambda: desk.provider.log)
        assert desk.provider.log == ["start local[1] on there"]
        desk.manager.offer([replace(THERE, accepting=False), HERE])
        await desk.until(lambda: desk.provider.log[1:] == ["start local[1]"])
        desk.provider.gate.set()  # the first of the two fails
        assert (await asyncio.wait_for(asked, 5)).worker == "w"

    play(scene, tmp_path)


def test_engine_that_could_not_be_stopped_ends_with_its_worker(tmp_path: Path) -> None:
    """It is lost, and the end of its worker is what makes certain that it is gone."""

    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, THERE])
        slot = await desk.run("a", placement=ON_THERE)
        assert slot.engine is not None
        desk.provider.stop_gate.clear()  # the worker does not answer
        desk.provider.health_of[slot.engine.engine_id] = EngineHealth.GONE
        suspecting = asyncio.create_task(desk.manager.suspect(slot.engine.engine_id))
        await desk.until(lambda: desk.manager.overview().engines[0].state == "STOPPING")
        assert not slot.lost.done()
        desk.manager.lose_worker("there", "its host is gone")
        assert await asyncio.wait_for(suspecting, 5) is False
        assert "its process is gone" in await asyncio.wait_for(slot.lost, 5)
        assert desk.manager.overview().engines == ()

    play(scene, tmp_path)


@pytest.mark.parametrize("how", ["withdrawn", "not accepting"])
def test_worker_that_is_away_keeps_its_slots(tmp_path: Path, how: str) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, THERE])
        slot = await desk.run("a", placement=ON_THERE)
        desk.manager.offer([HERE] if how == "withdrawn" else [HERE, replace(THERE, accepting=False)])
        assert (await desk.run("b")).worker == "w"
        assert not slot.lost.done()
        desk.manager.offer([HERE, THERE])
        again = await desk.run("c", placement=ON_THERE)
        assert again.engine == slot.engine

    play(scene, tmp_path)


def test_attached_engine_is_attached_again_from_the_worker_that_had_it(tmp_path: Path) -> None:
    attached = EngineSpec("sc://h:1")

    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, THERE])
        await desk.until(lambda: "there" in desk.manager._met)
        slot = await desk.manager.reclaim_slot(SlotRequest(JobID("a"), attached), "attached-h-1", "there")
        assert slot is not None
        assert (slot.worker, slot.engine.worker if slot.engine else "") == ("there", "there")
        assert desk.provider.log == ["start sc://h:1 on there"]

    play(scene, tmp_path, recovered=False)


def test_engine_of_an_earlier_version_is_at_the_leaders_own_worker(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-old")
        assert slot is not None
        assert slot.worker == "w"
        classic = await desk.manager.reclaim_slot(SlotRequest(JobID("b"), X, classic=True), None)
        assert classic is not None
        assert classic.worker == "w"
        desk.manager.lose_worker("w", "gone")
        assert slot.lost.done()
        assert classic.lost.done()

    def prepare(provider: FakeProvider) -> None:
        leave(record("e-old"))(provider)

    play(scene, tmp_path, recovered=False, prepare=prepare)
