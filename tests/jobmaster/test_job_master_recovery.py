"""Letting go of a job, and taking up one of an earlier leader."""

from __future__ import annotations

import asyncio

import pytest
from tests.jobmaster.job_desk import (
    FINISHED,
    LONG,
    STAGES,
    Desk,
    Stage,
    asked,
    play,
    reconciling,
    record_of,
    restarting,
    running,
    waiting_for_a_slot,
)

from firesteel.errors import (
    EngineLostError,
    InvalidPipelineError,
    NotLeadingError,
    Problem,
)
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.machine import Finish
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResultStore


@pytest.mark.parametrize("stage", [s[0] for s in STAGES], ids=lambda s: s.__name__)
def test_letting_go_leaves_the_attempt_alone(stage: Stage) -> None:
    async def main() -> None:
        desk = Desk()
        await stage(desk)
        before = len(desk.log)
        await desk.let_go()
        await asyncio.sleep(LONG)
        assert {w.partition(" e")[0] for w in desk.log[before:]} <= {"release", "request given up"}
        assert desk.master.reclaimed.is_set()

    play(main)


@pytest.mark.parametrize("wish", ["cancel", "stop"])
def test_letting_go_tells_everybody_who_asks(wish: str) -> None:
    """One whose wish is being written, and two who wait behind it."""

    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.gate.clear()
        ask = desk.master.cancel if wish == "cancel" else desk.master.stop
        askers = [asyncio.get_running_loop().create_task(ask()) for _ in range(3)]
        await asyncio.sleep(1)
        await desk.let_go()
        for asker in askers:
            with pytest.raises(NotLeadingError, match="ask the new leader"):
                await asyncio.wait_for(asker, LONG)

    play(main)


@pytest.mark.parametrize("stage", [waiting_for_a_slot, restarting], ids=lambda s: s.__name__)
def test_cancel_that_did_not_become_durable_is_not_told_as_done(stage: Stage) -> None:
    async def main() -> None:
        desk = Desk()
        await stage(desk)
        answer = await asked(desk)
        await desk.let_go()
        record = await desk.record()
        assert not (record or {}).get("cancel_requested")
        with pytest.raises(NotLeadingError):
            await asyncio.wait_for(answer, LONG)

    play(main)


def test_whoever_asks_after_that_is_told_too() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        await desk.let_go()
        with pytest.raises(NotLeadingError):
            await asyncio.wait_for(desk.master.cancel(), LONG)

    play(main)


def test_running_attempt_is_watched_again() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(record_of())
        await desk.until("watch 1")
        assert desk.master.reclaimed.is_set()
        desk.executor.end(1, FINISHED)
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.log == ["reclaim e9", "watch 1", "release e1"]

    play(main)


def test_slot_is_reclaimed_before_the_others_may_have_it() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaim_gate.clear()
        desk.begin(record_of())
        await asyncio.sleep(LONG)
        assert not desk.master.reclaimed.is_set()
        desk.resources.reclaim_gate.set()
        await desk.until("watch 1")
        assert desk.master.reclaimed.is_set()

    play(main)


def test_attempt_that_was_only_intended_is_started_under_the_same_number() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.presence = Presence.ABSENT
        desk.begin(record_of())
        await desk.until("watch 1")
        assert [w for w in desk.log if w.startswith("start")] == ["start 1"]

    play(main)


def test_engine_that_is_gone_costs_an_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaimable = False
        desk.begin(record_of())
        await desk.until("watch 2")
        acts = [w for w in desk.log if w.startswith(("fence", "start"))]
        assert acts == ["fence 1", "start 2"]
        (entry,) = desk.master.state.exceptions
        assert "engine e9 was gone" in entry.failure.message

    play(main)


def test_silent_engine_of_a_job_that_is_to_be_cancelled_is_looked_at() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.fence_errors = [EngineLostError("it does not answer")]
        desk.begin(record_of(cancel_requested=True))
        assert await desk.finish() == Finish(JobStatus.CANCELED)
        assert desk.log.index("suspect e9") < max(i for i, w in enumerate(desk.log) if w.startswith("fence 1"))

    play(main)


def test_ended_attempt_is_believed_though_its_engine_is_gone() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaimable = False
        desk.executor.presence = Presence.ENDED
        desk.executor.end(1, FINISHED)
        desk.begin(record_of())
        assert await desk.finish() == Finish(JobStatus.FINISHED)

    play(main)


def test_wishes_of_an_earlier_life_are_carried_out() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(record_of(stop_requested=True))
        await desk.until("stop 1")
        other = Desk()
        other.begin(record_of(cancel_requested=True))
        assert await other.finish() == Finish(JobStatus.CANCELED)
        assert [w for w in other.log if w.startswith(("cancel", "fence"))] == ["cancel 1", "fence 1"]

    play(main)


def test_rest_of_a_restart_delay_is_waited_for() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(record_of(deployed=False, restart_at=30.0))
        await desk.until("request")
        assert 29 <= asyncio.get_running_loop().time() <= 31
        assert desk.log[0] == "request"

    play(main)


@pytest.mark.parametrize("presence", [Presence.RUNNING, Presence.ABSENT])
def test_engine_that_is_lost_while_the_job_is_recovered(presence: Presence) -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.presence = presence
        await reconciling(desk)
        await desk.meet(lambda: bool(desk.resources.slots))
        desk.resources.slots[0].lost.set_result("engine e9 was lost: its process is gone")
        await asyncio.sleep(1)
        desk.executor.find_gate.set()
        await desk.until("fence 1")

    play(main)


def test_running_attempt_survives_a_failover_after_its_script_was_removed() -> None:
    async def main() -> None:
        desk = Desk()
        desk.requirement_errors = [InvalidPipelineError([Problem("cannot be read", file="job.py")])]
        desk.executor.left = [1]
        results = JobResultStore(desk.store, 10)
        runner = JobManagerRunner(desk.submission, record_of(), desk.services, results, desk.configuration)
        task = asyncio.get_running_loop().create_task(runner.run())
        await asyncio.sleep(1)
        desk.executor.end(1, FINISHED)
        assert (await asyncio.wait_for(task, LONG)).status is JobStatus.FINISHED

    play(main)
