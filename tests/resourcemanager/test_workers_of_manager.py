"""The ResourceManager when workers come, stop accepting, and are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.resourcemanager.test_resource_manager import Desk, FakeProvider, X, Y, leave, play, record

from firesteel.concurrency import Backoff
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import EngineError, EngineStartError, FencingError
from firesteel.resourcemanager.core import Decision, plan
from firesteel.resourcemanager.gateway import Slot, SlotRequest
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


# -- after a failover ---------------------------------------------------------------------------------------------


def reclaim(desk: Desk, job: str, engine: str | None, **more: Any) -> asyncio.Task[Slot | None]:
    request = SlotRequest(JobID(job), X, classic=engine is None, **more)
    return asyncio.create_task(desk.manager.reclaim_slot(request, engine, "there"))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("engine", ["e-there", None])
def test_job_waits_for_the_worker_that_has_it(tmp_path: Path, engine: str | None, known: bool) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.expect([(engine, "there")])
        if known:
            desk.manager.offer([HERE, WorkerOffer.of_absent("there", "there")])
        taking = reclaim(desk, "a", engine)
        assert (await desk.run("b", Y)).worker == "w"  # others need not wait
        await desk.looks()
        assert not taking.done()
        desk.provider.left = [record("e-there", worker="there")]
        desk.manager.offer([HERE, THERE])
        slot = await asyncio.wait_for(taking, 5)
        assert slot is not None
        assert (slot.worker, slot.engine.engine_id if slot.engine else None) == ("there", engine)

    play(scene, tmp_path, recovered=False)


def test_slots_of_jobs_that_have_yet_to_come_back_are_kept_for_them(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.expect([("e-there", "there"), ("e-there", "there"), (None, "there")])
        new = desk.ask("new", placement=ON_THERE)
        desk.provider.left = [record("e-there", worker="there")]
        desk.manager.offer([HERE, replace(THERE, max_engines=2)])
        first = await asyncio.wait_for(reclaim(desk, "a", "e-there"), 5)
        await desk.looks()
        assert not new.done()  # neither a slot of that engine, nor the room of the classic driver
        assert await asyncio.wait_for(reclaim(desk, "c", None), 5) is not None
        second = await asyncio.wait_for(reclaim(desk, "b", "e-there"), 5)
        assert first is not None
        assert second is not None
        await desk.looks()
        assert not new.done()
        desk.manager.release_slot(second)
        assert (await asyncio.wait_for(new, 5)).engine == first.engine

    play(scene, tmp_path, recovered=False)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("engine", ["e-there", None])
def test_job_of_a_lost_worker_has_no_slot(tmp_path: Path, engine: str | None, when: str) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.expect([(engine, "there")])
        if when == "before":
            desk.manager.lose_worker("there", "its host is gone")
        taking = reclaim(desk, "a", engine)
        if when == "meanwhile":
            await desk.run("b", Y)
            assert not taking.done()
            desk.manager.lose_worker("there", "its host is gone")
        assert await asyncio.wait_for(taking, 5) is None

    play(scene, tmp_path, recovered=False)


def test_worker_that_comes_back_without_the_engine(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.expect([("e-there", "there")])
        taking = reclaim(desk, "a", "e-there")
        desk.manager.offer([HERE, THERE])
        assert await asyncio.wait_for(taking, 5) is None

    play(scene, tmp_path, recovered=False)


def test_leadership_that_ends_while_a_job_waits_for_its_worker(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        taking = reclaim(desk, "a", "e-there")
        await desk.run("b")
        await desk.manager.close()
        with pytest.raises(FencingError):
            await asyncio.wait_for(taking, 5)

    play(scene, tmp_path)


def test_engines_that_cannot_be_listed_are_listed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.resourcemanager.manager.RETRIES", Backoff(0.001, 0.001))

    async def scene(desk: Desk) -> None:
        existing, errors = desk.provider.existing, [OSError("full"), EngineError("no answer")]

        async def sometimes() -> Sequence[EngineRecord]:
            if errors:
                raise errors.pop(0)
            return await existing()

        desk.provider.existing = sometimes  # type: ignore[method-assign]
        desk.provider.left = [record("e-there", worker="there")]
        desk.manager.offer([HERE, THERE])
        assert (await desk.run("a", placement=ON_THERE)).engine == desk.provider.left[0]

    play(scene, tmp_path)


def test_engine_of_a_worker_that_is_away_is_not_lost(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, THERE])
        slot = await desk.run("a", placement=ON_THERE)
        assert slot.engine is not None
        key = slot.engine.engine_id
        desk.provider.health_of[key] = EngineHealth.UNKNOWN
        for _ in range(20):
            desk.now += 100
            await desk.looks(1)
        assert await desk.manager.suspect(key) is True
        assert not slot.lost.done()
        desk.provider.health_of[key] = EngineHealth.GONE
        assert "its process is gone" in await asyncio.wait_for(slot.lost, 5)

    play(scene, tmp_path)


def test_hundreds_of_jobs_that_come_back_are_planned_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = 0

    def counting(*args: Any) -> list[Decision]:
        nonlocal plans
        plans += 1
        return plan(*args)

    monkeypatch.setattr("firesteel.resourcemanager.manager.plan", counting)

    async def scene(desk: Desk) -> None:
        nonlocal plans
        desk.manager.expect([(None, "there")] * 300)
        taking = [reclaim(desk, f"j{n}", None) for n in range(300)]
        desk.manager.offer([HERE, THERE])
        plans = 0
        slots = await asyncio.gather(*taking)
        assert None not in slots
        assert plans < 20

    play(scene, tmp_path, recovered=False, heartbeat__interval="10 s")


# -- what is shown ------------------------------------------------------------------------------------------------


def test_overview_tells_where_engines_are_and_which_workers_jobs_wait_for(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.manager.offer([HERE, THERE])
        await desk.run("a", placement=ON_THERE)
        [engine] = desk.manager.overview().engines
        assert (engine.worker, engine.worker_name) == ("there", "there")
        desk.ask("b", Y, placement=ON_THERE)
        desk.ask("c", Y)
        desk.ask("d", classic=True)
        await desk.looks()
        assert desk.manager.overview().waits_for == {}
        for there, why in (
            (replace(THERE, accepting=False), "does not answer"),
            (replace(THERE, accepting=False, draining=True), "is being emptied"),
            (WorkerOffer.of_absent("there", "there"), "has not come yet"),
        ):
            desk.manager.offer([HERE, there])
            assert desk.manager.overview().waits_for == {"b": f"worker there, which {why}"}
        desk.manager.offer([])
        assert set(desk.manager.overview().waits_for.values()) == {"a worker: the cluster has none"}

    play(scene, tmp_path)


def test_worker_that_is_lost_while_its_engines_are_listed_has_none_of_them(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        existing, gate = desk.provider.existing, asyncio.Event()
        listings = 0

        async def slowly() -> Sequence[EngineRecord]:
            nonlocal listings
            listings += 1
            found = list(await existing())
            await gate.wait()
            return found

        desk.provider.existing = slowly  # type: ignore[method-assign]
        desk.provider.left = [record("e-there", worker="there")]
        desk.manager.offer([HERE, THERE])
        desk.manager.offer([HERE, THERE])
        await desk.until(lambda: listings)
        desk.manager.lose_worker("there", "gone")
        desk.provider.left = []
        desk.manager.offer([HERE, THERE])
        await desk.until(lambda: listings >= 2)
        gate.set()
        slot = await desk.run("a", placement=ON_THERE)
        assert slot.engine is not None
        assert slot.engine.engine_id != "e-there"
        assert "e-there" not in [e.engine_id for e in desk.manager.overview().engines]

    play(scene, tmp_path, heartbeat__interval="10 s")
