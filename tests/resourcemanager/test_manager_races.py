"""Two things in one moment: requests that are given up while they are decided, engines that are suspected while they are
adopted, leaderships that end while an engine is started or stopped."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.resourcemanager.test_resource_manager import Desk, FakeProvider, X, leave, play, record
from tests.support.sleeper import sleeper

from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.errors import EngineStartError, FencingError
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.gateway import Slot, SlotRequest
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.resourcemanager.state import EngineState
from firesteel.types import JobID
from firesteel.worker.engines import STOPPING, LocalEngineProvider


def states(desk: Desk) -> list[EngineState]:
    return [e.state for e in desk.manager.overview().engines]


async def gave_up(asked: asyncio.Task[Slot]) -> None:
    await asyncio.wait({asked})
    assert asked.cancelled()


# -- requests that are given up -----------------------------------------------------------------------------------


def test_slot_granted_to_a_request_that_was_just_cancelled_goes_to_the_next(tmp_path: Path) -> None:
    """The cancelled one has not had the time to leave the queue."""

    async def scene(desk: Desk) -> None:
        held = await desk.run("a")
        given_up, next_one = desk.ask("b"), desk.ask("c")
        await asyncio.sleep(0)
        given_up.cancel()
        desk.manager.release_slot(held)
        await gave_up(given_up)
        slot = await asyncio.wait_for(next_one, 5)
        assert slot.engine == held.engine
        desk.manager.release_slot(slot)
        assert [e.free for e in desk.manager.overview().engines] == [1]

    play(scene, tmp_path, engine__slots="1", engine__max="1")


def test_engine_that_is_ready_when_its_only_request_was_just_cancelled_is_free(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.gate.clear()
        given_up = desk.ask("a")
        await desk.until(lambda: desk.provider.log)
        desk.provider.gate.set()
        given_up.cancel()
        await gave_up(given_up)
        await desk.until(lambda: states(desk) == [EngineState.READY])
        slot = await desk.run("b")
        assert slot.engine is not None
        assert slot.engine.engine_id == "e1"

    play(scene, tmp_path, engine__slots="1", engine__max="1")


def test_engine_start_that_fails_when_its_request_was_just_cancelled(tmp_path: Path) -> None:
    """Nobody is left to tell it to, and the others who waited for the engine are told all the same."""

    async def scene(desk: Desk) -> None:
        desk.provider.gate.clear()
        desk.provider.errors = [EngineStartError("no")]
        desk.manager._state.recovered = False  # so that one start is for both
        given_up, told = desk.ask("a"), desk.ask("b")
        await asyncio.sleep(0)
        desk.manager.recovered()
        await desk.until(lambda: desk.provider.log)
        desk.provider.gate.set()
        given_up.cancel()
        await gave_up(given_up)
        with pytest.raises(EngineStartError):
            await asyncio.wait_for(told, 5)
        assert (await desk.run("c")).engine is not None

    play(scene, tmp_path)


def test_request_that_is_refused_when_it_was_just_cancelled(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        given_up = desk.ask("a")
        await asyncio.sleep(0)
        given_up.cancel()
        # What is refused is refused at once; limits that fall while it waits are the only way to be refused later.
        desk.manager.offer([replace(o, max_cores=0) for o in desk.manager._offers])
        desk.manager.recovered()
        await gave_up(given_up)
        assert desk.manager.overview().waiting == 0

    play(scene, tmp_path, recovered=False)


def test_leadership_that_ends_when_a_request_was_just_cancelled(tmp_path: Path) -> None:
    """The others hear of it."""

    async def scene(desk: Desk) -> None:
        given_up, told = desk.ask("a"), desk.ask("b")
        await asyncio.sleep(0)
        desk.manager.halt()
        await desk.until(lambda: len(desk.manager._tasks) == 0)  # so that `close` has nothing to wait for
        given_up.cancel()
        await desk.manager.close()
        await gave_up(given_up)
        with pytest.raises(FencingError):
            await asyncio.wait_for(told, 5)

    play(scene, tmp_path, recovered=False)


# -- engines that are suspected while they are adopted ------------------------------------------------------------


ALONE = {"engine__max": "1", "heartbeat__interval": "1 h"}
"""Without heartbeats: for this provider an engine that was ended is one that is found, and adopted, again."""


def silent(provider: FakeProvider) -> None:
    provider.left = [record("old")]
    provider.health_of["old"] = EngineHealth.SILENT


def silent_and_slow(provider: FakeProvider) -> None:
    """It is given its time to answer."""
    silent(provider)
    provider.adopt_gate.clear()


async def is_served(desk: Desk) -> None:
    """The only engine that there may be is a well one, and a job gets it."""
    desk.provider.health_of.clear()
    desk.provider.adopt_gate.set()
    desk.provider.stop_gate.set()
    desk.manager.recovered()
    assert (await desk.run("next")).engine is not None
    assert states(desk) == [EngineState.READY]


def test_suspicion_does_not_stop_the_end_of_an_engine_that_was_not_adopted(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.stop_gate.clear()
        await desk.until(lambda: states(desk) == [EngineState.STOPPING])
        suspected = asyncio.create_task(desk.manager.suspect("old"))
        await asyncio.wait({suspected}, timeout=0.05)  # it may wait for the end, or not
        desk.provider.stop_gate.set()
        await asyncio.wait_for(suspected, 5)
        await desk.until(lambda: desk.provider.log == ["kill old"])
        assert not await desk.manager.suspect("old")
        await is_served(desk)

    play(scene, tmp_path, recovered=False, prepare=silent, **ALONE)


def test_jobs_do_not_wait_for_the_end_of_an_engine_that_was_not_adopted(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.stop_gate.clear()
        reclaimed = desk.manager.reclaim_slot(SlotRequest(JobID("a"), X), "old")
        assert await asyncio.wait_for(reclaimed, 5) is None
        assert states(desk) == [EngineState.STOPPING]
        await is_served(desk)

    play(scene, tmp_path, recovered=False, prepare=silent, **ALONE)


def test_suspected_engine_that_is_being_adopted_is_ended(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        assert not await asyncio.wait_for(desk.manager.suspect("old"), 5)
        assert desk.provider.log == ["kill old"]
        await is_served(desk)

    play(scene, tmp_path, recovered=False, prepare=silent_and_slow, **ALONE)


def test_suspected_engine_is_ended_though_nobody_waits_for_the_answer(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.provider.stop_gate.clear()
        suspected = asyncio.create_task(desk.manager.suspect("old"))
        await desk.until(lambda: states(desk) == [EngineState.STOPPING])
        suspected.cancel()
        await asyncio.wait({suspected})
        desk.provider.stop_gate.set()
        await desk.until(lambda: desk.provider.log == ["kill old"])
        await is_served(desk)

    play(scene, tmp_path, recovered=False, prepare=silent_and_slow, **ALONE)


def test_suspected_engine_whose_adoption_is_given_up_in_the_moment_in_which_nobody_waits_any_more(
    tmp_path: Path,
) -> None:
    async def scene(desk: Desk) -> None:
        adopting = desk.manager._adopting["old"]
        suspected = asyncio.create_task(desk.manager.suspect("old"))
        while not adopting.cancelling():  # noqa: ASYNC110 - one step of the loop at a time
            await asyncio.sleep(0)
        suspected.cancel()
        await asyncio.wait({suspected})
        desk.provider.health_of.clear()
        desk.provider.adopt_gate.set()
        desk.manager.recovered()
        assert (await asyncio.wait_for(desk.ask("next"), 1)).engine is not None

    play(scene, tmp_path, recovered=False, prepare=silent_and_slow, **ALONE)


def test_engine_that_answers_the_adoption_while_it_is_suspected_is_ready(tmp_path: Path) -> None:
    """The look takes seconds and says that it is silent; by then it has answered."""

    async def scene(desk: Desk) -> None:
        looks, looked = asyncio.Event(), asyncio.Event()

        async def slow_look(_record: EngineRecord) -> EngineHealth:
            looks.set()
            await looked.wait()
            return EngineHealth.SILENT

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(desk.provider, "health", slow_look)
            suspected = asyncio.create_task(desk.manager.suspect("old"))
            await asyncio.wait_for(looks.wait(), 5)
            desk.provider.health_of.clear()
            desk.provider.adopt_gate.set()
            await desk.until(lambda: states(desk) == [EngineState.READY])
            looked.set()
            assert await asyncio.wait_for(suspected, 5)
        assert states(desk) == [EngineState.READY]
        assert desk.provider.log == []
        await is_served(desk)

    play(scene, tmp_path, recovered=False, prepare=silent_and_slow, **ALONE)


def test_suspected_by_several_at_once(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        answers = await asyncio.wait_for(asyncio.gather(*[desk.manager.suspect("old") for _ in range(4)]), 5)
        assert not all(answers)
        await desk.until(lambda: desk.provider.log == ["kill old"])
        await is_served(desk)

    play(scene, tmp_path, recovered=False, prepare=silent_and_slow, **ALONE)


# -- words that cannot be read ------------------------------------------------------------------------------------


def test_last_words_that_cannot_be_read_do_not_keep_the_engine_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")

        async def no_descriptor(_record: EngineRecord) -> str:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(desk.provider, "last_words", no_descriptor)
            desk.provider.health_of["e1"] = EngineHealth.GONE
            assert "its process is gone" in await asyncio.wait_for(slot.lost, 5)
        assert desk.provider.log[-1] == "kill e1"
        assert (await desk.run("a")).engine is not None

    play(scene, tmp_path, engine__max="1")


# -- leaderships that end -----------------------------------------------------------------------------------------


async def is_told(desk: Desk) -> None:
    """Once; and from then on nothing is granted."""
    await desk.until(lambda: desk.unexpected)
    assert [type(e) for e in desk.unexpected] == [FencingError]
    desk.unexpected.clear()
    with pytest.raises(FencingError):
        await desk.run("late")


def test_fencing_of_a_start_is_told(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        desk.leads = False
        asked = desk.ask("a")
        await is_told(desk)
        assert not asked.done()
        assert desk.provider.log == []

    play(scene, tmp_path)


@pytest.mark.parametrize("why", ["idle", "lost", "not adopted", "suspected"])
def test_fencing_of_a_stop_is_told(tmp_path: Path, why: str) -> None:
    prepare: dict[str, Callable[[FakeProvider], None]] = {
        "idle": leave(record("old")),
        "lost": leave(record("old")),
        "not adopted": silent_and_slow,
        "suspected": silent_and_slow,
    }

    async def scene(desk: Desk) -> None:
        slot: Slot | None = None
        if why in ("idle", "lost"):
            slot = await desk.run("a")
        desk.leads = False
        if why == "idle":
            assert slot is not None
            desk.manager.release_slot(slot)
            desk.now = 1000
        elif why == "lost":
            desk.provider.health_of["old"] = EngineHealth.GONE
        elif why == "not adopted":
            desk.provider.adopt_gate.set()
        else:
            suspected = asyncio.create_task(desk.manager.suspect("old"))
            await asyncio.wait({suspected}, timeout=5)
            assert suspected.done()
        await is_told(desk)
        assert desk.provider.log == []
        if why == "lost":
            assert slot is not None
            assert not slot.lost.done()  # it is not certain that its work has ended

    play(scene, tmp_path, prepare=prepare[why])


# -- engines of this machine --------------------------------------------------------------------------------------


def refused() -> None:
    raise FencingError("another leads")


@pytest.mark.parametrize("marked", [True, False])
def test_old_leader_takes_back_its_own_mark_only(tmp_path: Path, marked: bool) -> None:
    """The new leader is ending the engine: nobody may come to think that it is well."""
    directory = EngineDirectory(tmp_path)
    directory.save(record("e1"))
    mark = directory.home("e1") / STOPPING
    if marked:
        mark.touch()

    async def main() -> None:
        provider = LocalEngineProvider(directory, LaunchOptions(cache_dir=tmp_path))
        try:
            with pytest.raises(FencingError):
                await provider.stop(record("e1"), guard=refused)
        finally:
            await provider.close()

    asyncio.run(main())
    assert mark.exists() is marked


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where everybody gets this answer, and then the line goes dead."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    line, _ = server.accept()
                except OSError:
                    return
                with line:
                    line.settimeout(5)
                    if line.recv(4096):
                        line.sendall(request.param)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    "answering",
    [b'HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{"spark"', b"HT", b""],
    ids=["in the body", "in the status line", "before it"],
    indirect=True,
)
def test_engine_that_dies_in_the_middle_of_its_answer_is_silent(tmp_path: Path, answering: int) -> None:
    it = replace(
        record("e1"),
        host="127.0.0.1",
        port=answering,
        ui_port=answering,
        ui_secret=base64.urlsafe_b64encode(b"x" * 32).decode(),
    )

    async def main(process: ProcessIdentity) -> None:
        provider = LocalEngineProvider(EngineDirectory(tmp_path), LaunchOptions(cache_dir=tmp_path))
        try:
            assert await provider.health(replace(it, process=process)) is EngineHealth.SILENT
        finally:
            await provider.close()

    with sleeper() as process:  # this one works, and would be found busy
        asyncio.run(main(process))
