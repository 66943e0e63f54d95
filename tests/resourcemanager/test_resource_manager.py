"""The ResourceManager on a provider that is scripted, and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.guards import certain

from firesteel.config import Configuration, load_configuration
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import EngineLostError, EngineStartError, FencingError, ResourcesUnavailableError
from firesteel.resourcemanager.gateway import ResourceManagerGateway, Slot, SlotRequest
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.resourcemanager.state import EngineState
from firesteel.types import Guard, JobID
from firesteel.worker.offer import local_offer

X = EngineSpec("local[1]")
Y = EngineSpec("local[2]")


class FakeProvider:
    """Engines that are names. Starts wait for `gate`; what is said of health stands in `health_of`."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.stop_gate = asyncio.Event()
        self.stop_gate.set()
        self.adopt_gate = asyncio.Event()
        self.adopt_gate.set()
        self.left: list[EngineRecord] = []
        self.of_user: list[EngineRecord] = []
        self.health_of: dict[str, EngineHealth] = {}
        self.not_there: set[str] = set()
        """Engines whose process cannot be seen."""
        self.searches: list[str] = []
        self.errors: list[Exception] = []
        self.stop_errors: list[Exception] = []
        self.log: list[str] = []
        self.looks = 0
        self._count = 0

    async def start(self, spec: EngineSpec, worker: str) -> EngineRecord:
        self.log.append(f"start {spec.master}" if worker == "w" else f"start {spec.master} on {worker}")
        self._count += 1
        name = f"e{self._count}"
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        if spec.attached:
            return record("attached-h-1", spec)
        return record(name, spec)

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        await self.adopt_gate.wait()
        if self.health_of.get(record.engine_id, EngineHealth.WELL) is not EngineHealth.WELL:
            raise EngineLostError(f"engine {record.engine_id} is gone")
        return record

    async def there(self, record: EngineRecord) -> bool:
        self.searches.append(record.engine_id)
        return record.engine_id not in self.not_there

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None:
        guard()
        await self.stop_gate.wait()
        if self.stop_errors:
            raise self.stop_errors.pop(0)
        self.log.append(f"{'kill' if force else 'stop'} {record.engine_id}")

    async def health(self, record: EngineRecord) -> EngineHealth:
        self.looks += 1
        return self.health_of.get(record.engine_id, EngineHealth.WELL)

    async def last_words(self, record: EngineRecord) -> str:
        return f"last words of {record.engine_id}"

    async def existing(self) -> Sequence[EngineRecord]:
        return self.left

    async def shared(self) -> Sequence[EngineRecord]:
        return self.of_user


def record(engine_id: str, spec: EngineSpec = X, *, shared: bool = False, worker: str = "") -> EngineRecord:
    return EngineRecord(engine_id, spec, "localhost", 1, started_at=1000.0, shared=shared, worker=worker)


def configuration(tmp_path: Path, **options: str) -> Configuration:
    values = {
        "data.dir": str(tmp_path),
        "engine.slots": "2",
        "heartbeat.interval": "2 ms",
        "heartbeat.timeout": "30 s",
        "engine.idle-timeout": "100 s",
    }
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    return load_configuration(overrides=values | given, environ=environ, cwd=tmp_path)


class Desk:
    def __init__(self, tmp_path: Path, provider: FakeProvider | None = None, **options: str) -> None:
        self.provider = provider or FakeProvider()
        self.now = 0.0
        self.unexpected: list[BaseException] = []
        self.leads = True
        self.manager = ResourceManager(
            configuration(tmp_path, **options),
            self.provider,
            default_spec=X,
            now=lambda: self.now,
            guard=self._guard,
            on_error=self.unexpected.append,
        )
        self.manager.offer([local_offer(configuration(tmp_path, **options), X, "w")])
        self.asked: list[asyncio.Task[Slot]] = []

    def _guard(self) -> None:
        if not self.leads:
            raise FencingError("does not lead")

    def ask(self, job: str, spec: EngineSpec = X, **more: Any) -> asyncio.Task[Slot]:
        request = SlotRequest(JobID(job), spec, **more)
        task = asyncio.get_running_loop().create_task(self.manager.request_slot(request))
        self.asked.append(task)
        return task

    async def run(self, job: str, spec: EngineSpec = X, **more: Any) -> Slot:
        return await asyncio.wait_for(self.ask(job, spec, **more), 5)

    async def until(self, condition: Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(5):
                while not condition():  # noqa: ASYNC110 - whatever the condition is about
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError(f"{self.provider.log} {self.manager.overview()}") from None

    async def looks(self, count: int = 3) -> None:
        """Wait until engines were looked at so many times more."""
        before = self.provider.looks
        await self.until(lambda: self.provider.looks >= before + count)


Scene = Callable[[Desk], Coroutine[Any, Any, None]]


def play(scene: Scene, tmp_path: Path, *, recovered: bool = True, prepare: Any = None, **options: str) -> Desk:
    async def whole() -> Desk:
        provider = FakeProvider()
        if prepare is not None:
            prepare(provider)
        desk = Desk(tmp_path, provider, **options)
        await desk.manager.start()
        if recovered:
            desk.manager.recovered()
        try:
            await scene(desk)
        finally:
            await desk.manager.close()
            await asyncio.wait_for(asyncio.gather(*desk.asked, return_exceptions=True), 5)
        assert desk.unexpected == []
        return desk

    return asyncio.run(whole(), debug=True)


def test_manager_is_the_gateway(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        gateway: ResourceManagerGateway = desk.manager
        slot = await gateway.request_slot(SlotRequest(JobID("a"), X))
        assert slot.engine is not None
        assert (slot.job_id, slot.engine.engine_id, slot.lost.done()) == ("a", "e1", False)

    play(scene, tmp_path)


def test_slots_are_shared_released_and_engine_stops_when_idle(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        a, b = await desk.run("a"), await desk.run("b")
        assert a.engine == b.engine
        c = await desk.run("c")
        assert c.engine != a.engine
        for slot in (a, b, c):
            desk.manager.release_slot(slot)
            desk.manager.release_slot(slot)
        await desk.looks()
        assert [e.state for e in desk.manager.overview().engines] == [EngineState.READY] * 2
        desk.now = 100
        await desk.until(lambda: desk.manager.overview().engines == ())

    desk = play(scene, tmp_path)
    assert sorted(desk.provider.log) == ["start local[1]", "start local[1]", "stop e1", "stop e2"]


def test_overview_tells_engines_and_queue(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        await desk.run("a")
        desk.provider.gate.clear()
        desk.ask("b", Y)
        desk.ask("c", EngineSpec("local[2]", "2g"))
        await desk.until(lambda: len(desk.provider.log) == 2)
        shown = desk.manager.overview()
        assert [(e.master, e.slots, e.free, e.state) for e in shown.engines] == [
            ("local[1]", 2, 1, EngineState.READY),
            ("local[2]", 2, 0, EngineState.STARTING),
        ]
        assert shown.engines[0].since == 1000.0
        assert shown.waiting == 2

    play(scene, tmp_path, engine__max_cores="2", engine__max_memory="2g")


def test_too_large_is_refused_at_once(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        with pytest.raises(ResourcesUnavailableError, match=r"engine\.max-cores"):
            await desk.run("a", EngineSpec("local[3]"))
        with pytest.raises(ResourcesUnavailableError, match=r"engine\.max-memory"):
            await desk.run("a", EngineSpec("local[1]", "2g"))

    play(scene, tmp_path, recovered=False, engine__max_cores="2", engine__max_memory="1g")


def test_default_engine_is_never_too_large(tmp_path: Path) -> None:
    """Who configures `engine.master: local[64]` on a small machine means it."""

    async def scene() -> None:
        big = EngineSpec("local[4096]", "9000g")
        manager = ResourceManager(configuration(tmp_path), FakeProvider(), default_spec=big, guard=certain)
        manager.offer([local_offer(configuration(tmp_path), big, "w")])
        await manager.start()
        manager.recovered()
        assert (await manager.request_slot(SlotRequest(JobID("a"), big))).engine is not None
        await manager.close()

    asyncio.run(scene())


def test_failed_start_goes_once_to_those_it_was_for(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.gate.clear()
        desk.provider.errors = [EngineStartError("no", "the log")]
        first = desk.ask("a")
        await desk.until(lambda: desk.provider.log)
        second = desk.ask("b")
        await asyncio.sleep(0)
        desk.provider.gate.set()
        with pytest.raises(EngineStartError, match="the log"):
            await first
        assert (await asyncio.wait_for(second, 5)).engine is not None
        assert (await desk.run("a")).engine is not None

    desk = play(scene, tmp_path)
    assert desk.provider.log == ["start local[1]"] * 2


@pytest.mark.parametrize("error", [OSError("disk full"), FencingError("x")])
def test_other_errors_of_a_start(tmp_path: Path, error: Exception) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.errors = [error]
        asked = desk.ask("a")
        if isinstance(error, OSError):
            with pytest.raises(EngineStartError, match="disk full"):
                await asked
        else:
            await desk.until(lambda: not desk.provider.errors)
            await asyncio.sleep(0)
            with pytest.raises(FencingError):
                await desk.run("b")
            assert not asked.done()  # not refused: the next leader serves it
            assert desk.unexpected == [error]  # whoever leads this leadership must hear that it has ended
            desk.unexpected.clear()

    play(scene, tmp_path)


def test_silent_engine_of_an_earlier_life_keeps_only_its_own_jobs_waiting(tmp_path: Path) -> None:
    """I9: what jobs of an earlier life may take back is kept for them; all else is free at once."""

    async def scene(desk: Desk) -> None:
        [mine] = await desk.provider.existing()
        desk.manager.expect([(mine.engine_id, "")] * 2)
        waiting = desk.ask("new")
        await desk.looks(3)
        assert not waiting.done()
        first = await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), mine.engine_id)
        assert first is not None
        await desk.looks(3)
        assert not waiting.done()
        await desk.manager.reclaim_slot(SlotRequest(JobID("b"), X), mine.engine_id)
        assert (await waiting).engine == mine

    play(
        scene,
        tmp_path,
        recovered=False,
        prepare=lambda p: p.left.append(record("old", X)),
        engine__max="1",
        engine__slots="3",
    )


def test_cancelled_request_leaves_the_queue(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        held = await desk.run("a")
        gone, stays = desk.ask("b"), desk.ask("c")
        await asyncio.sleep(0)
        assert desk.manager.overview().waiting == 2
        gone.cancel()
        await asyncio.wait({gone})
        assert desk.manager.overview().waiting == 1
        desk.manager.release_slot(held)
        assert (await asyncio.wait_for(stays, 5)).engine == held.engine

    play(scene, tmp_path, engine__slots="1", engine__max="1")


def test_request_cancelled_in_the_moment_of_its_grant_gives_the_slot_back(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        held = await desk.run("a")
        waiting = desk.ask("b")
        await asyncio.sleep(0)
        desk.manager.release_slot(held)  # granted to b, which has not run yet
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert (await desk.run("c")).engine == held.engine

    play(scene, tmp_path, engine__slots="1", engine__max="1")


def test_request_cancelled_in_any_moment_of_its_failure_is_silent(tmp_path: Path) -> None:
    """One turn of the loop more each time: before the engine fails, between that and the request's answer, and after it."""
    outcomes: list[str] = []
    unheard: list[dict[str, Any]] = []

    async def scene(turns: int, desk: Desk) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        desk.provider.errors = [EngineStartError("no")]
        waiting = desk.ask("a")
        for _ in range(turns):
            await asyncio.sleep(0)
        in_time = waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled() is in_time
        outcomes.append("cancelled" if waiting.cancelled() else type(waiting.exception()).__name__)
        del waiting
        desk.asked.clear()
        assert desk.manager.overview().waiting == 0
        desk.provider.errors.clear()
        await desk.run("b")

    for turns in range(12):
        play(partial(scene, turns), tmp_path)
    gc.collect()  # an error that nobody took up is reported when it is forgotten
    assert outcomes[0] == "cancelled"
    assert outcomes[-1] == "EngineStartError"
    assert sorted(outcomes, reverse=True) == outcomes
    assert unheard == []


# -- losing engines -----------------------------------------------------------------------------------------------


def test_engine_whose_process_is_gone_is_lost_at_once_and_replaced(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        a, b = await desk.run("a"), await desk.run("b")
        desk.provider.health_of["e1"] = EngineHealth.GONE
        for slot in (a, b):
            reason = await asyncio.wait_for(slot.lost, 5)
            assert "engine e1 (local[1]) was lost: its process is gone" in reason
            assert "last words of e1" in reason
        assert desk.provider.log[-1] == "kill e1"
        desk.manager.release_slot(a)  # harmless
        again = await desk.run("a")
        assert again.engine is not None
        assert again.engine.engine_id == "e2"

    play(scene, tmp_path)


def test_jobs_are_told_only_when_the_engine_has_ended_for_sure(tmp_path: Path) -> None:
    """Who is told starts a new attempt; by then the old one must not be able to write any more."""

    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        desk.provider.stop_gate.clear()
        desk.provider.stop_errors = [OSError("busy")]
        desk.provider.health_of["e1"] = EngineHealth.GONE
        await desk.until(lambda: desk.manager.overview().engines[0].state is EngineState.STOPPING)
        assert not slot.lost.done()
        desk.provider.stop_gate.set()
        await asyncio.wait_for(slot.lost, 5)
        assert desk.provider.log[-1] == "kill e1"

    play(scene, tmp_path)


def test_engine_that_does_not_answer_is_lost_after_the_timeout(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        desk.provider.health_of["e1"] = EngineHealth.SILENT
        for _ in range(2):
            desk.now += 10
            await desk.looks()
        assert not slot.lost.done()
        desk.provider.health_of["e1"] = EngineHealth.WELL
        desk.now += 10
        await desk.looks()
        desk.provider.health_of["e1"] = EngineHealth.SILENT
        for _ in range(2):  # it counts from the start again
            desk.now += 10
            await desk.looks()
        assert not slot.lost.done()
        desk.now += 10
        assert "heartbeat.timeout" in await asyncio.wait_for(slot.lost, 5)
        assert desk.provider.log[-1] == "kill e1"

    play(scene, tmp_path)


def test_our_own_standing_still_is_no_silence_of_the_engine(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        desk.provider.health_of["e1"] = EngineHealth.SILENT
        await desk.looks()
        desk.now += 3600
        await desk.looks()
        assert not slot.lost.done()
        desk.provider.health_of["e1"] = EngineHealth.WELL
        await desk.looks()
        assert not slot.lost.done()

    play(scene, tmp_path)


def test_suspected_engine_is_looked_at_once_for_all_and_ended(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        await desk.manager.suspect("e1")
        assert not slot.lost.done()
        desk.provider.health_of["e1"] = EngineHealth.SILENT
        before = desk.provider.looks
        await asyncio.gather(*[desk.manager.suspect("e1") for _ in range(8)])
        assert desk.provider.looks == before + 1
        assert slot.lost.done()
        assert desk.provider.log[-1] == "kill e1"
        await desk.manager.suspect("e1")
        await desk.manager.suspect("no such engine")

    play(scene, tmp_path, heartbeat__interval="1 h")


# -- lives --------------------------------------------------------------------------------------------------------


def leave(*records: EngineRecord) -> Callable[[FakeProvider], None]:
    def prepare(provider: FakeProvider) -> None:
        provider.left = list(records)

    return prepare


def test_engines_of_an_earlier_life_are_reclaimed_before_anything_is_granted(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        new = desk.ask("new")
        old = await desk.manager.reclaim_slot(SlotRequest(JobID("old"), X), "e-old")
        assert old is not None
        assert old.engine is not None
        assert old.engine.engine_id == "e-old"
        desk.now = 10_000
        await desk.looks()
        assert not new.done()
        assert desk.provider.log == []
        desk.manager.recovered()
        slot = await asyncio.wait_for(new, 5)
        assert slot.engine is not None
        assert slot.engine.engine_id == "e-old"

    play(scene, tmp_path, recovered=False, prepare=leave(record("e-old"), record("e-other", Y)))


def test_adopted_engine_that_nobody_reclaims_stays_until_idle(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        await desk.looks()
        desk.now = 1000
        await desk.looks()
        assert desk.provider.log == []
        desk.manager.recovered()
        await desk.until(lambda: desk.provider.log == ["stop e-old"])

    play(scene, tmp_path, recovered=False, prepare=leave(record("e-old")))


def test_engine_that_does_not_survive_adoption_is_ended_and_its_slot_is_none(tmp_path: Path) -> None:
    def prepare(provider: FakeProvider) -> None:
        provider.left = [record("e-dead"), record("e-well")]
        provider.health_of["e-dead"] = EngineHealth.SILENT

    async def scene(desk: Desk) -> None:
        assert await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-dead") is None
        assert await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-unknown") is None
        assert await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), None) is None
        assert await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-well") is not None
        await desk.until(lambda: desk.provider.log == ["kill e-dead"])

    play(scene, tmp_path, recovered=False, prepare=prepare)


def silent_old(provider: FakeProvider) -> None:
    provider.left = [record("e-old")]
    provider.adopt_gate.clear()


def test_slots_are_taken_back_before_their_engine_answers_and_nobody_new_is_put_there(tmp_path: Path) -> None:
    """What runs on a busy engine runs on; whether it is well enough for others is another question."""

    async def scene(desk: Desk) -> None:
        desk.manager.expect([("e-old", "")])
        slot = await asyncio.wait_for(desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-old"), 5)
        assert slot is not None
        desk.manager.recovered()
        new = desk.ask("b")
        await asyncio.wait({new}, timeout=0.01)
        assert not new.done()
        assert desk.provider.log == []
        desk.provider.adopt_gate.set()
        granted = await asyncio.wait_for(new, 5)
        assert granted.engine == slot.engine
        assert not slot.lost.done()

    play(scene, tmp_path, recovered=False, prepare=silent_old, engine__max="1")


def test_engine_that_never_answers_is_ended_before_those_who_took_their_slots_back_are_told(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.stop_gate.clear()
        slot = await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-old")
        assert slot is not None
        desk.provider.health_of["e-old"] = EngineHealth.SILENT
        desk.provider.adopt_gate.set()
        await desk.until(lambda: desk.manager.overview().engines[0].state is EngineState.STOPPING)
        assert not slot.lost.done()
        assert await desk.manager.reclaim_slot(SlotRequest(JobID("b"), X), "e-old") is None
        desk.provider.stop_gate.set()
        why = await asyncio.wait_for(slot.lost, 5)
        assert "e-old is gone" in why
        assert "last words of e-old" in why
        assert desk.provider.log == ["kill e-old"]

    play(scene, tmp_path, recovered=False, prepare=silent_old)


def test_suspected_engine_that_was_taken_back_before_it_answered_is_lost_for_its_jobs(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-old")
        assert slot is not None
        desk.provider.health_of["e-old"] = EngineHealth.SILENT
        assert not await desk.manager.suspect("e-old")
        assert "does not answer" in await asyncio.wait_for(slot.lost, 5)

    play(scene, tmp_path, recovered=False, prepare=silent_old)


def test_a_thousand_jobs_have_their_engines_looked_for_once_each(tmp_path: Path) -> None:
    engines = [f"e{n}" for n in range(4)]

    def prepare(provider: FakeProvider) -> None:
        provider.left = [record(name) for name in engines]
        provider.adopt_gate.clear()

    async def scene(desk: Desk) -> None:
        homes = [engines[n % 4] for n in range(1000)]
        desk.manager.expect([(home, "") for home in homes])
        claims = [desk.manager.reclaim_slot(SlotRequest(JobID(f"j{n}"), X), home) for n, home in enumerate(homes)]
        slots = await asyncio.wait_for(asyncio.gather(*claims), 30)
        assert all(slot is not None for slot in slots)
        assert sorted(desk.provider.searches) == engines
        assert desk.provider.looks == 0

    play(scene, tmp_path, recovered=False, prepare=prepare, engine__slots="250", heartbeat__interval="1 h")


def test_a_thousand_jobs_attach_their_engine_once(tmp_path: Path) -> None:
    attached = EngineSpec("sc://h:1")

    async def scene(desk: Desk) -> None:
        desk.provider.gate.clear()
        claims = [
            asyncio.create_task(desk.manager.reclaim_slot(SlotRequest(JobID(f"j{n}"), attached), "attached-h-1"))
            for n in range(1000)
        ]
        await desk.until(lambda: desk.provider.log)
        desk.provider.gate.set()
        assert all(slot is not None for slot in await asyncio.gather(*claims))
        assert desk.provider.log == ["start sc://h:1"]

    play(scene, tmp_path, recovered=False)


def test_reclaim_waits_for_the_adoption_of_an_engine_whose_process_is_not_seen(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        reclaiming = asyncio.create_task(desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-old"))
        await asyncio.wait({reclaiming}, timeout=0.01)
        assert not reclaiming.done()
        desk.provider.adopt_gate.set()
        assert await reclaiming is not None

    def prepare(provider: FakeProvider) -> None:
        silent_old(provider)
        provider.not_there.add("e-old")

    play(scene, tmp_path, recovered=False, prepare=prepare)


def test_reclaim_that_is_overtaken_by_the_end_of_leadership_does_not_say_that_the_engine_is_gone(
    tmp_path: Path,
) -> None:
    async def scene(desk: Desk) -> None:
        reclaiming = asyncio.create_task(desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "e-old"))
        await asyncio.sleep(0)
        await desk.manager.close()
        with pytest.raises(FencingError):
            await reclaiming

    def prepare(provider: FakeProvider) -> None:
        provider.left = [record("e-old")]
        provider.adopt_gate.clear()

    play(scene, tmp_path, recovered=False, prepare=prepare)


def test_classic_slot_is_reclaimed_without_an_engine_and_takes_room(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.manager.reclaim_slot(SlotRequest(JobID("a"), X, classic=True), None)
        assert slot is not None
        assert slot.engine is None
        desk.manager.recovered()
        waiting = desk.ask("b")
        await desk.looks(0)
        assert desk.provider.log == []
        desk.manager.release_slot(slot)
        await asyncio.wait_for(waiting, 5)

    play(scene, tmp_path, recovered=False, engine__max="1")


def test_attached_engine_is_reclaimed_by_all_its_jobs(tmp_path: Path) -> None:
    spec = EngineSpec("sc://h:1", spark=(("spark.x", "1"),))

    async def scene(desk: Desk) -> None:
        desk.provider.gate.clear()
        both = asyncio.gather(*[desk.manager.reclaim_slot(SlotRequest(JobID(j), spec), "attached-h-1") for j in "ab"])
        await desk.until(lambda: desk.provider.log)
        desk.provider.gate.set()
        slots = await both
        assert all(s is not None for s in slots)
        [engine] = desk.manager.overview().engines
        assert (engine.free, engine.foreign) == (0, True)
        desk.manager.recovered()
        desk.now = 1e6
        for slot in slots:
            assert slot is not None
            desk.manager.release_slot(slot)
        # Another job, with other wishes, uses the same one.
        other = await desk.run("c", EngineSpec("sc://h:1"))
        assert other.engine is not None
        assert other.engine.engine_id == "attached-h-1"
        await desk.looks()

    desk = play(scene, tmp_path, recovered=False)
    assert not [line for line in desk.provider.log if not line.startswith("start")]


def test_users_engine_is_found_while_running_used_and_never_stopped(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.of_user = [record("users", shared=True)]
        await desk.until(lambda: desk.manager.overview().engines)
        slot = await desk.run("a")
        assert slot.engine is not None
        assert slot.engine.engine_id == "users"
        desk.provider.of_user = []
        desk.provider.health_of["users"] = EngineHealth.GONE
        assert "users" in await asyncio.wait_for(slot.lost, 5)
        assert desk.manager.overview().engines == ()

    assert play(scene, tmp_path).provider.log == []


def test_after_halt_nothing_is_started_or_stopped_whatever_is_released(tmp_path: Path) -> None:
    """JobMasters that end with the leadership release slots on which their jobs run on (I8)."""

    async def scene(desk: Desk) -> None:
        exclusive = await desk.run("a", exclusive=True)
        waiting = desk.ask("b", Y, exclusive=True)
        more = desk.ask("c", exclusive=True)
        await asyncio.wait_for(waiting, 5)
        log = list(desk.provider.log)
        desk.manager.halt()
        desk.manager.release_slot(exclusive)
        desk.now = 1e6
        await asyncio.sleep(0.02)
        assert not more.done()
        await desk.manager.close()
        with pytest.raises(FencingError):
            await more
        with pytest.raises(FencingError):
            await desk.run("d")
        assert desk.provider.log == log

    play(scene, tmp_path)


def test_manager_that_does_not_lead_for_certain_does_not_act(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        desk.manager.release_slot(slot)
        desk.leads = False
        desk.now = 1000
        await desk.until(lambda: desk.manager.overview().engines[0].state is EngineState.STOPPING)
        await asyncio.sleep(0.01)
        assert desk.provider.log == ["start local[1]"]
        with pytest.raises(FencingError):
            await desk.run("b")
        assert [type(e) for e in desk.unexpected] == [FencingError]
        desk.unexpected.clear()

    play(scene, tmp_path)


def test_warm_engines_are_kept_and_a_failing_one_is_not_tried_in_a_circle(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        await desk.until(lambda: len(desk.manager.overview().engines) == 1)
        await desk.looks()
        desk.provider.errors = [EngineStartError("no")]
        slot = await desk.run("a", exclusive=True)
        assert slot.engine is not None
        await desk.until(lambda: not desk.provider.errors)
        await desk.looks(10)
        assert len(desk.provider.log) == 2
        desk.now = 61
        await desk.until(lambda: len(desk.manager.overview().engines) == 2)

    play(scene, tmp_path, engine__isolation="job", engine__warm="1")


def test_warm_engines_are_for_isolated_jobs_only(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        await desk.run("a")
        await desk.looks()

    assert play(scene, tmp_path, engine__warm="1").provider.log == ["start local[1]"]
