"""A JobMaster whose job meets no trouble."""

from __future__ import annotations

import asyncio

from tests.jobmaster.job_desk import (
    FINISHED,
    LONG,
    Desk,
    play,
)

from firesteel.jobmaster.machine import Finish
from firesteel.status import JobStatus


def test_job_that_finishes() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin()
        await desk.until("watch 1")
        assert desk.master.state.status is JobStatus.RUNNING
        desk.executor.end(1, FINISHED)
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.log == ["request", "persist", "start 1", "watch 1", "release e1"]
        assert desk.executor.engines == ["e1"]

    play(main)


def test_classic_driver_has_no_engine() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.classic = True
        desk.begin()
        await desk.until("watch 1")
        assert desk.executor.engines == [None]
        assert desk.master.state.engine_id is None

    play(main)


def test_intent_is_durable_before_the_start() -> None:
    async def main() -> None:
        desk = Desk()
        desk.store.gate.clear()
        desk.begin()
        await asyncio.sleep(LONG)
        assert "start 1" not in desk.log
        desk.store.gate.set()
        await desk.until("start 1")
        record = await desk.record()
        assert record is not None
        assert (record["attempt"], record["deployed"], record["engine_id"]) == (1, True, "e1")

    play(main)
