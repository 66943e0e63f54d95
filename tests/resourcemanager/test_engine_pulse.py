"""How long an engine may be silent: a new one that works is slow, not dead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.resourcemanager.test_resource_manager import Desk, play

from firesteel.engines import launcher
from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.resourcemanager.pulse import Pulse
from firesteel.worker.engines import LocalEngineProvider

WELL, BUSY, SILENT, GONE = EngineHealth.WELL, EngineHealth.BUSY, EngineHealth.SILENT, EngineHealth.GONE
STEP = 10.0


def lost_after(*looks: EngineHealth, age: float = 0.0) -> float | None:
    """Seconds until it is lost, by looks every ten seconds of which the last goes on."""
    pulse = Pulse(timeout=30, start_timeout=90, age=age)
    for number in range(1, 60):
        health = looks[min(number, len(looks)) - 1]
        if pulse.hear(health, STEP) is not None:
            return number * STEP
    return None


@pytest.mark.parametrize(
    ("looks", "age", "expected"),
    [
        ([WELL], 0, None),
        ([GONE], 0, 10),
        ([SILENT], 0, 90),
        ([BUSY], 0, 90),
        ([SILENT], 1000, 90),
        ([WELL, BUSY], 0, 90),
        ([WELL, SILENT], 0, 40),
        ([WELL, BUSY, SILENT], 0, 50),
        ([WELL, BUSY, BUSY, BUSY, BUSY, BUSY, WELL], 0, None),
        ([WELL, SILENT], 1000, 40),
        ([WELL, BUSY], 1000, 40),
        ([*[WELL] * 9, BUSY], 0, 120),
    ],
    ids=[
        "well",
        "its process is gone",
        "new and never answered",
        "new, never answered, works",
        "old and never answered, as after a change of leader",
        "answered once, new, works: at the end of its youth",
        "answered once, then hangs: its process does nothing",
        "worked, then hangs",
        "slow for a while",
        "old and hangs",
        "old and busy",
        "busy at the end of its youth",
    ],
)
def test_silence_means_loss_after(looks: list[EngineHealth], age: float, expected: float | None) -> None:
    assert lost_after(*looks, age=age) == expected


def test_reason_names_the_option_that_decided() -> None:
    young, old = (Pulse(timeout=30, start_timeout=90, age=age) for age in (0, 1000))
    old.hear(WELL, 1)
    assert "engine.start-timeout" in str(young.hear(SILENT, 90))
    assert "heartbeat.timeout" in str(old.hear(SILENT, 30))


def test_start_timeout_that_is_shorter_than_the_heartbeats_takes_nothing_away() -> None:
    assert Pulse(timeout=30, start_timeout=5).hear(SILENT, 29) is None


def test_new_engine_that_has_not_answered_yet_keeps_its_jobs_beyond_the_heartbeat_timeout(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        assert slot.engine is not None
        desk.provider.health_of[slot.engine.engine_id] = BUSY
        for _ in range(6):  # a minute, in pieces of which each is taken for what it is
            desk.now += 10
            await desk.looks()
        assert not slot.lost.done()
        assert await desk.manager.suspect(slot.engine.engine_id), "nor is it ended because a driver complains"
        desk.provider.health_of[slot.engine.engine_id] = WELL
        await desk.looks()
        assert not slot.lost.done()

    play(scene, tmp_path)


def test_new_engine_that_never_answers_is_lost_after_its_start_timeout(tmp_path: Path) -> None:
    async def scene(desk: Desk) -> None:
        slot = await desk.run("a")
        assert slot.engine is not None
        desk.provider.health_of[slot.engine.engine_id] = SILENT
        for _ in range(20):
            desk.now += 10
            enough = desk.provider.looks + 3
            await desk.until(lambda enough=enough: slot.lost.done() or desk.provider.looks >= enough)  # type: ignore[misc]
            if slot.lost.done():
                break
        assert "engine.start-timeout" in await asyncio.wait_for(slot.lost, 5)
        assert desk.now >= 90

    play(scene, tmp_path)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processor time is read from /proc")
@pytest.mark.parametrize(
    ("program", "expected"), [("while True: pass", BUSY), ("import time; time.sleep(600)", SILENT)]
)
def test_process_that_computes_is_told_from_one_that_hangs(
    program: str, expected: EngineHealth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "healthy", lambda _: False)
    child = subprocess.Popen([sys.executable, "-c", program])
    process = ProcessIdentity.of(child.pid)
    assert process is not None
    record = EngineRecord("e", EngineSpec("local[1]"), "localhost", 1, process=process)

    async def looked() -> EngineHealth:
        provider = LocalEngineProvider(EngineDirectory(tmp_path), LaunchOptions(tmp_path))
        try:
            async with asyncio.timeout(60):
                for _ in range(10):
                    # Time of the processor, not of the clock: others may have it.
                    if await provider.health(record) is BUSY:
                        return BUSY
                    await asyncio.sleep(0.1)
                    while expected is BUSY and (process.cpu_seconds() or 0) < 0.2:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            return SILENT
        finally:
            await provider.close()

    try:
        assert asyncio.run(looked()) is expected
    finally:
        child.kill()
        child.wait()
    assert ProcessIdentity(os.getpid(), "0").cpu_seconds() is None


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processor time is read from /proc")
def test_process_that_worked_before_its_last_answer_and_hangs_now_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, healthy = iter([False, True, False]), launcher.healthy
    # A node of other tests in this process may be looking at its engine.
    monkeypatch.setattr(launcher, "healthy", lambda r: next(answers) if r.engine_id == "e" else healthy(r))
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    process = ProcessIdentity.of(child.pid)
    assert process is not None
    record = EngineRecord("e", EngineSpec("local[1]"), "localhost", 1, process=process)

    async def looks() -> list[EngineHealth]:
        provider = LocalEngineProvider(EngineDirectory(tmp_path), LaunchOptions(tmp_path))
        try:
            seen = [await provider.health(record)]
            async with asyncio.timeout(60):
                while (process.cpu_seconds() or 0) < 0.5:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            process.signal(signal.SIGSTOP)
            return [*seen, await provider.health(record), await provider.health(record)]
        finally:
            await provider.close()

    try:
        assert asyncio.run(looks())[1:] == [WELL, SILENT]
    finally:
        child.kill()
        child.wait()
