from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore, job, threads_used

from firesteel.errors import FencingError, JobNotFoundError, JobStateError, StoreUnavailableError
from firesteel.failure import Failure, FailureKind
from firesteel.records import from_json, to_json
from firesteel.status import JobStatus
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import new_job_id

FAILURE = Failure(FailureKind.DATA, "boom" * 1000, vertex="out", error_class="X", traceback="line\n" * 400)


def result(number: int, **changes: Any) -> JobResult:
    base = JobResult(
        job_id=job(number),
        name="orders",
        status=JobStatus.FINISHED,
        failure=None,
        submitted_at=1.0,
        started_at=2.0,
        ended_at=100.0 + number,
        attempts=1,
        restarts=0,
        digest="d" * 64,
    )
    return replace(base, **changes)


FAILED = result(2, status=JobStatus.FAILED, failure=FAILURE, started_at=None, note="no slot", stopped=True)


@pytest.mark.parametrize("one", [result(1), FAILED])
def test_a_result_comes_back_from_json_as_it_was(one: JobResult) -> None:
    assert from_json(json.loads(json.dumps(to_json(one))), JobResult) == one


def test_only_an_end_is_a_result() -> None:
    with pytest.raises(ValueError, match="cannot end as RUNNING"):
        result(1, status=JobStatus.RUNNING)


def test_a_result_is_dirty_until_it_is_marked_clean() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=10)
        await store.put_dirty(result(1), epoch=EPOCH)
        await store.put_dirty(FAILED, epoch=EPOCH)
        assert store.get(job(1)) == result(1)
        assert store.is_dirty(job(1))
        assert store.dirty() == [result(1), FAILED]
        assert json.loads(await faulty.value(f"results/{job(1)}"))["dirty"] is True
        await store.mark_clean(job(1), epoch=EPOCH)
        await store.mark_clean(job(1), epoch=EPOCH)
        assert not store.is_dirty(job(1))
        assert store.dirty() == [FAILED]
        assert store.all() == [result(1), FAILED]
        assert json.loads(await faulty.value(f"results/{job(1)}"))["dirty"] is False
        assert store.get(job(9)) is None
        assert not store.is_dirty(job(9))

    asyncio.run(run())


def test_the_next_leader_finds_what_was_written() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=10)
        await store.put_dirty(result(1), epoch=EPOCH)
        await store.put_dirty(FAILED, epoch=EPOCH)
        await store.mark_clean(job(1), epoch=EPOCH)
        after = JobResultStore(faulty, retention=10)
        assert after.get(job(1)) is None
        assert await after.read(job(1)) == result(1)
        assert await after.load() == {}
        assert after.get(job(1)) == result(1)
        assert after.dirty() == [FAILED]
        assert not after.is_dirty(job(1))

    asyncio.run(run())


def test_a_result_is_final() -> None:
    async def run() -> None:
        store = JobResultStore(FaultyStore(), retention=10)
        await store.put_dirty(FAILED, epoch=EPOCH)
        await store.put_dirty(FAILED, epoch=EPOCH)
        for other in (replace(FAILED, status=JobStatus.FINISHED), replace(FAILED, ended_at=7.0)):
            with pytest.raises(JobStateError, match="has ended as FAILED and its result is final"):
                await store.put_dirty(other, epoch=EPOCH)
        assert store.get(job(2)) == FAILED
        assert await store.read(job(2)) == FAILED

    asyncio.run(run())


def test_the_same_result_again_does_not_make_a_clean_one_dirty() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=10)
        await store.put_dirty(FAILED, epoch=EPOCH)
        await store.mark_clean(job(2), epoch=EPOCH)
        await store.put_dirty(FAILED, epoch=EPOCH)
        assert not store.is_dirty(job(2))
        assert json.loads(await faulty.value(f"results/{job(2)}"))["dirty"] is False

    asyncio.run(run())


def test_writes_whose_answer_was_lost_can_be_repeated() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=1)
        faulty.lose_answer()
        with pytest.raises(StoreUnavailableError):
            await store.put_dirty(result(1), epoch=EPOCH)
        assert store.get(job(1)) is None
        await store.put_dirty(result(1), epoch=EPOCH)
        assert store.is_dirty(job(1))
        faulty.lose_answer()
        with pytest.raises(StoreUnavailableError):
            await store.mark_clean(job(1), epoch=EPOCH)
        await store.mark_clean(job(1), epoch=EPOCH)
        assert store.dirty() == []
        await store.put_dirty(result(3), epoch=EPOCH)
        await store.mark_clean(job(3), epoch=EPOCH)
        assert store.all() == [result(3)]

    asyncio.run(run())


def test_a_leader_of_old_ends_no_job() -> None:
    async def run() -> None:
        store = JobResultStore(FaultyStore(), retention=10)
        with pytest.raises(FencingError):
            await store.put_dirty(result(1), epoch=OLD)
        assert store.all() == []
        await store.put_dirty(result(1), epoch=EPOCH)
        with pytest.raises(FencingError):
            await store.mark_clean(job(1), epoch=OLD)
        assert store.is_dirty(job(1))

    asyncio.run(run())


def test_marking_a_job_without_result_is_told() -> None:
    async def run() -> None:
        with pytest.raises(JobNotFoundError, match=job(1)):
            await JobResultStore(FaultyStore(), retention=10).mark_clean(job(1), epoch=EPOCH)

    asyncio.run(run())


def test_the_oldest_clean_results_are_forgotten_and_dirty_ones_never() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=3)
        await store.put_dirty(result(1), epoch=EPOCH)  # the oldest of all, and dirty
        for number in (4, 2, 6, 3, 5):
            await store.put_dirty(result(number), epoch=EPOCH)
            await store.mark_clean(job(number), epoch=EPOCH)
        assert {r.job_id for r in store.all()} == {job(n) for n in (1, 4, 5, 6)}
        assert set(await faulty.paths("results")) == {f"results/{job(n)}" for n in (1, 4, 5, 6)}
        again = JobResultStore(faulty, retention=2)
        await again.load()
        await again.mark_clean(job(1), epoch=EPOCH)
        assert {r.job_id for r in again.all()} == {job(5), job(6)}

    asyncio.run(run())


def test_a_retention_that_was_lowered_is_reached_in_steps() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=1000)
        for number in range(100):
            await store.put_dirty(result(number, ended_at=1000.0 - number), epoch=EPOCH)
            await store.mark_clean(job(number), epoch=EPOCH)
        lower = JobResultStore(faulty, retention=5)
        await lower.load()
        faulty.writes.clear()
        await lower.mark_clean(job(0), epoch=EPOCH)
        assert 0 < len(faulty.writes) <= 20
        for _ in range(10):
            await lower.mark_clean(job(0), epoch=EPOCH)
        assert [r.job_id for r in lower.all()] == [job(n) for n in range(5)]

    asyncio.run(run())


def test_a_forgetting_that_fails_is_made_up_for_later() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=1)
        for number in (1, 2):
            await store.put_dirty(result(number), epoch=EPOCH)
        await store.mark_clean(job(1), epoch=EPOCH)
        real = faulty.delete

        async def unavailable(*_: object, **__: object) -> bool:
            raise StoreUnavailableError("busy")

        faulty.delete = unavailable  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError):
            await store.mark_clean(job(2), epoch=EPOCH)
        faulty.delete = real  # type: ignore[method-assign]
        assert len(store.all()) == 2
        await store.mark_clean(job(2), epoch=EPOCH)
        assert store.all() == [result(2)]

    asyncio.run(run())


def test_a_clean_failure_is_short_in_memory_and_whole_in_the_store() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=10)
        await store.put_dirty(FAILED, epoch=EPOCH)
        assert store.dirty() == [FAILED]
        await store.mark_clean(job(2), epoch=EPOCH)
        reloaded = JobResultStore(faulty, retention=10)
        await reloaded.load()
        for one in (store, reloaded):
            known = one.get(job(2))
            assert known is not None
            assert known.failure is not None
            assert known.failure.kind is FailureKind.DATA
            assert known.failure.message.startswith("boomboom")
            assert len(known.failure.message) < 600
            assert known.failure.traceback == ""
            assert await one.read(job(2)) == FAILED

    asyncio.run(run())


def test_an_unreadable_result_still_keeps_its_job_from_running(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobResultStore(faulty, retention=10)
        await store.put_dirty(result(1), epoch=EPOCH)
        await faulty.damage(f"results/{job(2)}", b"\0\0")
        bad = await store.load()
        assert set(bad) == {job(2)}
        assert job(2) in caplog.text
        assert store.all() == [result(1)]
        with pytest.raises(UnreadableRecordError):
            await store.read(job(2))
        with pytest.raises(UnreadableRecordError):
            await store.put_dirty(result(2), epoch=EPOCH)
        assert await store.raw(job(2)) == b"\0\0"

    asyncio.run(run())


async def ten_thousand() -> FaultyStore:
    faulty = FaultyStore()
    store = JobResultStore(faulty, retention=50_000)
    for number in range(10_000):
        job_id = new_job_id()
        one = result(0, job_id=job_id, name=f"pipeline of team {number % 100}", ended_at=float(number))
        one = replace(one, status=JobStatus.FAILED, failure=FAILURE, digest=job_id * 2)
        await store.put_dirty(one, epoch=EPOCH)
        await store.mark_clean(job_id, epoch=EPOCH)
    return faulty


@pytest.mark.slow
def test_ten_thousand_results_load_off_the_loop_into_little_memory() -> None:
    async def run() -> None:
        faulty = await ten_thousand()
        store = JobResultStore(faulty, retention=50_000)
        threads = await threads_used(store.load())
        assert len(store.all()) == 10_000
        assert threads, "the loop did it itself"

        lean = JobResultStore(faulty, retention=50_000)
        gc.collect()
        tracemalloc.start()
        try:
            await lean.load()
            gc.collect()
            used = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert used <= 15e6, f"{used / 1e6:.1f} MB"

    asyncio.run(run())
