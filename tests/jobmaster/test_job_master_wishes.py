"""What is wished of a JobMaster: cancel and stop."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.jobmaster.job_desk import (
    FINISHED,
    JOB,
    LONG,
    STAGES,
    Desk,
    Stage,
    asked,
    deploying,
    fencing,
    play,
    restarting,
    running,
    waiting_for_a_slot,
)

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.errors import (
    FiresteelError,
    JobStateError,
)
from firesteel.jobmaster.machine import Finish
from firesteel.status import JobStatus


@pytest.mark.parametrize(("stage", "acts"), STAGES, ids=[s[0].__name__ for s in STAGES])
def test_cancel_is_durable_before_it_is_acknowledged(stage: Stage, acts: list[str]) -> None:
    """At any moment; and from then on nothing of the job begins any more (I10)."""

    async def main() -> None:
        desk = Desk()
        await stage(desk)
        before = len(desk.log)
        answer = await asked(desk)
        assert not answer.done()
        assert not [w for w in desk.log[before:] if w.startswith(("cancel", "fence"))]
        desk.store.gate.set()
        await asyncio.wait_for(answer, LONG)
        record = await desk.record()
        assert record is not None
        assert record["cancel_requested"] is True
        desk.executor.fence_gate.set()
        assert await desk.finish() == Finish(JobStatus.CANCELED)
        after = desk.log[before:]
        assert [w for w in after if w.startswith(("cancel", "fence"))] == acts
        assert not [w for w in after if w.startswith(("start", "watch", "request "))] or stage is waiting_for_a_slot
        assert desk.log.count("start 2") == 0
        for number in range(1, len(desk.resources.slots) + 1):
            assert desk.log.count(f"release e{number}") >= 1

    play(main)


def test_cancel_gives_the_place_in_the_queue_up() -> None:
    async def main() -> None:
        desk = Desk()
        await waiting_for_a_slot(desk)
        await desk.master.cancel()
        await desk.finish()
        assert desk.log == ["request", "persist", "request given up"]

    play(main)


def test_cancel_of_a_job_whose_outputs_were_being_committed() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fenced = AttemptResult(AttemptState.FINISHED, stopped=True)
        await desk.master.cancel()
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.master.state.stopped

    play(main)


def test_cancel_twice_is_one_cancel() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.fence_gate.clear()
        await asyncio.gather(desk.master.cancel(), desk.master.cancel())
        await asyncio.wait_for(desk.master.cancel(), LONG)
        desk.executor.fence_gate.set()
        await desk.finish()
        assert desk.log.count("cancel 1") == 1
        assert desk.log.count("persist") == 2

    play(main)


def test_cancel_of_an_ended_job() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.end(1, FINISHED)
        await desk.finish()
        with pytest.raises(JobStateError, match=f"job {JOB} is FINISHED; it has ended for good"):
            await desk.master.cancel()

    play(main)


def test_cancel_that_the_executor_cannot_begin_still_ends_in_a_fence() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.cancel_errors = [OSError(28, "No space left on device")]
        await desk.master.cancel()
        assert await desk.finish() == Finish(JobStatus.CANCELED)

    play(main)


def test_stop_is_durable_before_the_attempt_is_told() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.store.gate.clear()
        answer = asyncio.get_running_loop().create_task(desk.master.stop())
        await asyncio.sleep(LONG)
        assert not answer.done()
        assert "stop 1" not in desk.log
        desk.store.gate.set()
        await asyncio.wait_for(answer, LONG)
        await desk.until("stop 1")
        desk.executor.end(1, AttemptResult(AttemptState.FINISHED, stopped=True))
        assert await desk.finish() == Finish(JobStatus.FINISHED)
        assert desk.master.state.stopped

    play(main)


def test_stop_while_deploying_reaches_the_attempt_once_it_is_there() -> None:
    async def main() -> None:
        desk = Desk()
        await deploying(desk)
        await desk.master.stop()
        desk.executor.start_gate.set()
        await desk.until("watch 1")
        await desk.until("stop 1", times=2)

    play(main)


@pytest.mark.parametrize("stage", [waiting_for_a_slot, fencing, restarting], ids=lambda s: s.__name__)
def test_stop_of_a_job_that_does_not_run(stage: Stage) -> None:
    async def main() -> None:
        desk = Desk()
        await stage(desk)
        with pytest.raises(JobStateError, match="only running jobs can be stopped"):
            await desk.master.stop()

    play(main)


def test_stop_that_cannot_be_told_does_not_break_the_job() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.stop_errors = [OSError(28, "No space left on device")]
        with contextlib.suppress(OSError, FiresteelError):
            await desk.master.stop()
        desk.executor.end(1, FINISHED)
        assert await desk.finish() == Finish(JobStatus.FINISHED)

    play(main)
