"""The JobManagerRunner around a JobMaster, also one that breaks."""

from __future__ import annotations

import asyncio

import pytest
from tests.jobmaster.job_desk import (
    EPOCH,
    FINISHED,
    LONG,
    Desk,
    play,
    record_of,
    running,
)

from firesteel.errors import (
    EngineLostError,
    FiresteelError,
    JobStateError,
    StoreUnavailableError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster.master import JobMaster
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResultStore


class Broken(JobMaster):
    """A bug of ours."""

    async def _request_slot(self) -> None:
        raise ZeroDivisionError("a bug")


def test_broken_job_master_fails_its_job_after_everything_is_fenced() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.left = [1, 2]
        desk.executor.fence_errors = [EngineLostError("it does not answer")]
        runner = JobManagerRunner(
            desk.submission, None, desk.services, JobResultStore(desk.store, 10), desk.configuration, Broken
        )
        result = await runner.run()
        assert result.status is JobStatus.FAILED
        assert result.failure == Failure(FailureKind.INTERNAL, "the JobMaster failed: ZeroDivisionError: a bug")
        assert desk.log == ["fence 1", "fence 1", "fence 2", "persist"]

    play(main)


def test_wishes_before_there_is_a_job_master_wait_for_it() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.gate.clear()
        runner = JobManagerRunner(
            desk.submission, None, desk.services, JobResultStore(desk.store, 10), desk.configuration
        )
        cancel = asyncio.get_running_loop().create_task(runner.cancel())
        await asyncio.sleep(1)
        assert not cancel.done()
        result = await asyncio.wait_for(runner.run(), LONG)
        await asyncio.wait_for(cancel, LONG)
        assert result.status is JobStatus.CANCELED
        assert (result.attempts, result.restarts, result.digest) == (0, 0, desk.submission.digest)

    play(main)


def test_job_that_has_a_result_never_runs() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        desk.executor.end(1, FINISHED)
        results = JobResultStore(desk.store, 10)
        first = JobManagerRunner(desk.submission, None, desk.services, results, desk.configuration)._result(
            await desk.finish()
        )
        await results.put_dirty(first, epoch=EPOCH)
        desk.log.clear()
        runner = JobManagerRunner(desk.submission, record_of(), desk.services, results, desk.configuration)
        assert await runner.run() == first
        assert set(desk.log) <= {"persist"}
        assert await results.read(desk.submission.job_id) == first
        with pytest.raises(JobStateError, match="has ended for good"):
            await runner.cancel()

    play(main)


def test_wish_for_a_job_whose_job_master_broke_is_answered() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.left = [1]
        desk.executor.fence_gate.clear()
        runner = JobManagerRunner(
            desk.submission, None, desk.services, JobResultStore(desk.store, 10), desk.configuration, Broken
        )
        task = asyncio.get_running_loop().create_task(runner.run())
        await asyncio.sleep(1)
        cancel = asyncio.get_running_loop().create_task(runner.cancel())
        await asyncio.sleep(1)
        desk.executor.fence_gate.set()
        assert (await asyncio.wait_for(task, LONG)).status in (JobStatus.FAILED, JobStatus.CANCELED)
        with pytest.raises(FiresteelError):
            await asyncio.wait_for(cancel, LONG)

    play(main)


def test_the_end_is_durable_when_it_is_told_and_only_then() -> None:
    async def main() -> None:
        desk = Desk()
        results = JobResultStore(desk.store, 10)
        runner = JobManagerRunner(desk.submission, None, desk.services, results, desk.configuration)
        task = asyncio.get_running_loop().create_task(runner.run())
        await desk.until("watch 1")
        await desk.meet(lambda: runner.state.status is JobStatus.RUNNING)
        desk.store.gate.clear()
        desk.executor.end(1, FINISHED)
        await asyncio.sleep(60)
        assert (runner.state.status, runner.shown.status) == (JobStatus.FINISHED, JobStatus.RUNNING)
        assert not task.done()
        desk.store.errors.append(StoreUnavailableError("the database is away"))
        desk.store.gate.set()
        result = await asyncio.wait_for(task, LONG)
        assert await results.read(desk.submission.job_id) == result
        assert results.is_dirty(desk.submission.job_id)

    play(main)
