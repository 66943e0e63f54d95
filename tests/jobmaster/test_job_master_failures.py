"""Attempts that fail, engines that are lost, and a store that is away."""

from __future__ import annotations

import asyncio

import pytest
from tests.jobmaster.job_desk import (
    FAILED,
    LONG,
    USER,
    Desk,
    play,
    restarting,
    running,
    waiting_for_a_slot,
)

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.errors import (
    EngineLostError,
    EngineStartError,
    FencingError,
    FiresteelError,
    InvalidPipelineError,
    Problem,
    ResourcesUnavailableError,
    StoreBrokenError,
    StoreUnavailableError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.ha.protocols import Epoch
from firesteel.jobmaster.machine import Finish
from firesteel.status import JobStatus


def test_lost_engine_is_fenced_before_the_next_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_gate.clear()
        desk.resources.slots[0].lost.set_result("engine e1 was lost: its process is gone")
        await desk.until("fence 1")
        await asyncio.sleep(LONG)
        assert desk.log.count("request") == 1
        desk.executor.fence_gate.set()
        await desk.until("watch 2")
        assert desk.log[desk.at("fence 1") :] == [
            "fence 1",
            "persist",
            "release e1",
            "request",
            "persist",
            "start 2",
            "watch 2",
        ]
        assert desk.executor.engines == ["e1", "e2"]
        (entry,) = desk.master.state.exceptions
        assert entry.failure == Failure(FailureKind.ENGINE_LOST, "engine e1 was lost: its process is gone")

    play(main)


def test_restart_waits_for_its_delay() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        loop = asyncio.get_running_loop()
        desk.executor.end(1, FAILED)
        await desk.until("fence 1")
        failed = loop.time()
        await desk.until("request", times=2)
        assert 4.8 <= loop.time() - failed <= 5.2

    play(main)


def test_engine_that_does_not_answer_is_suspected_until_the_fence_holds() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_errors = [EngineLostError("it does not answer"), EngineLostError("still not")]
        desk.executor.end(1, FAILED)
        await desk.until("watch 2")
        acts = [w for w in desk.log if w.startswith(("fence", "suspect", "start"))]
        assert acts == ["start 1", "fence 1", "suspect e1", "fence 1", "suspect e1", "fence 1", "start 2"]

    play(main)


def test_engine_that_a_driver_found_lost_is_looked_at_before_the_next_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        lost = Failure(FailureKind.ENGINE_LOST, "the connection was refused")
        desk.executor.end(1, AttemptResult(AttemptState.FAILED, lost))
        await desk.until("watch 2")
        assert desk.log.count("suspect e1") == 1
        assert desk.at("suspect e1") < desk.at("fence 1") < desk.at("start 2")

    play(main)


@pytest.mark.parametrize("error", [FiresteelError("held by a process"), OSError(5, "Input/output error")])
def test_fence_that_fails_otherwise_is_repeated_and_suspects_nobody(error: Exception) -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_errors = [error]
        await desk.master.cancel()
        assert await desk.finish() == Finish(JobStatus.CANCELED)
        assert desk.log.count("fence 1") == 2
        assert not [w for w in desk.log if w.startswith("suspect")]

    play(main)


def test_failed_start_is_fenced_and_tried_again() -> None:
    """It may have started all the same (F16)."""

    async def main() -> None:
        desk = Desk()
        desk.executor.start_errors = [FiresteelError("the zygote is gone"), OSError(28, "No space left on device")]
        desk.begin()
        await desk.until("watch 3")
        acts = [w for w in desk.log if w.startswith(("start", "fence", "watch"))]
        assert acts == ["start 1", "fence 1", "start 2", "fence 2", "start 3", "watch 3"]
        assert [e.failure.message for e in desk.master.state.exceptions] == [
            "the attempt could not be started: the zygote is gone",
            "the attempt could not be started: [Errno 28] No space left on device",
        ]

    play(main)


def test_labels_stand_in_the_history_which_is_bounded() -> None:
    async def main() -> None:
        desk = Desk(history_size=2)
        desk.begin()
        for number in range(1, 5):
            await desk.until(f"watch {number}")
            failure = Failure(FailureKind.DATA, f"row {number}", vertex=f"v{number}")
            desk.executor.end(number, AttemptResult(AttemptState.FAILED, failure))
        await desk.until("watch 5")
        kept = desk.master.state.exceptions
        assert [e.failure.message for e in kept] == ["row 3", "row 4"]
        assert [dict(e.labels) for e in kept] == [
            {"type": "DATA_ERROR", "where": "v3"},
            {"type": "DATA_ERROR", "where": "v4"},
        ]
        record = await desk.record()
        assert record is not None
        assert len(record["exceptions"]) == 2
        assert len(record["failures"]["times"]) == 4, "what the strategy counts is not what people look at"

    play(main)


def test_strategy_gives_up() -> None:
    async def main() -> None:
        desk = Desk(restarts=1)
        desk.begin()
        for number in (1, 2):
            await desk.until(f"watch {number}")
            desk.executor.end(number, FAILED)
        assert await desk.finish() == Finish(JobStatus.FAILED, USER)
        assert desk.log[-2:] == ["fence 2", "release e2"]

    play(main)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ResourcesUnavailableError("no engine has 99 cores"), FailureKind.INVALID_PIPELINE),
        (InvalidPipelineError([Problem("the script is no valid Python")]), FailureKind.INVALID_PIPELINE),
        (EngineStartError("it died at start"), FailureKind.ENGINE_START),
    ],
)
def test_slot_that_is_refused(error: Exception, kind: FailureKind) -> None:
    """What no engine could ever run is given up at once; an engine that did not come up is tried again."""

    async def main() -> None:
        desk = Desk()
        desk.resources.errors = [error]
        desk.begin()
        if kind is FailureKind.ENGINE_START:
            await desk.until("watch 1")
            (entry,) = desk.master.state.exceptions
            assert entry.failure == Failure(kind, "it died at start")
            assert entry.labels["type"] == "ENGINE_LOST"
        else:
            assert await desk.finish() == Finish(JobStatus.FAILED, Failure(kind, str(error)))
            assert not [w for w in desk.log if w.startswith(("start", "fence"))]

    play(main)


def test_engine_that_is_lost_after_it_was_given_back_does_not_concern_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        await restarting(desk)
        if not (lost := desk.resources.slots[0].lost).done():
            lost.set_result("engine e1 was lost")
        await desk.until("watch 2")
        await asyncio.sleep(LONG)
        assert desk.master.state.status is JobStatus.RUNNING
        assert "fence 2" not in desk.log

    play(main)


def test_restarts_leave_nothing_behind() -> None:
    async def main() -> None:
        desk = Desk(restarts=50)
        await running(desk)
        before = len(desk.master._tasks)
        for number in range(1, 21):
            await desk.until(f"watch {number}")
            desk.executor.end(number, FAILED)
        await desk.until("watch 21")
        assert len(desk.master._tasks) <= before + 1

    play(main)


def test_store_that_is_away_or_full_delays_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        desk.store.errors = [StoreUnavailableError("busy"), StoreBrokenError("the disk is full")] * 5
        desk.begin()
        await desk.until("watch 1")
        assert desk.log == ["request", "persist", "start 1", "watch 1"]

    play(main)


def test_store_that_is_full_does_not_touch_the_attempt_and_delays_only_decisions() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.errors = [StoreBrokenError("the disk is full") for _ in range(20)]
        desk.executor.end(1, FAILED)
        await desk.until("fence 1")
        await asyncio.sleep(20)
        assert desk.log[-1] == "fence 1"
        await desk.until("watch 2")
        assert desk.log[desk.at("fence 1") + 1] == "persist"

    play(main)


def test_cancel_is_acknowledged_when_the_store_is_back() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.errors = [StoreUnavailableError("busy") for _ in range(10)]
        await asyncio.wait_for(desk.master.cancel(), LONG)
        assert not desk.store.errors
        assert await desk.finish() == Finish(JobStatus.CANCELED)

    play(main)


def test_write_of_an_old_leader_ends_its_work_on_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        desk.store.newest_epoch = Epoch(2)
        desk.begin()
        with pytest.raises(FencingError):
            await desk.finish()
        assert not [w for w in desk.log if w.startswith("start")]

    play(main)


@pytest.mark.parametrize("act", ["start", "fence", "cancel", "stop"])
def test_nothing_is_done_by_a_node_that_may_not_lead(act: str) -> None:
    async def main() -> None:
        desk = Desk()
        if act == "start":
            await waiting_for_a_slot(desk)
            desk.leads = False
            desk.resources.gate.set()
        else:
            await running(desk)
            desk.leads = False
            if act == "fence":
                desk.executor.end(1, FAILED)
            else:
                with pytest.raises(FencingError):
                    await (desk.master.cancel() if act == "cancel" else desk.master.stop())
        with pytest.raises(FencingError):
            await desk.finish()
        assert f"{act} 1" not in desk.log

    play(main)
