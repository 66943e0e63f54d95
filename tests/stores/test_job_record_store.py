from __future__ import annotations

import asyncio

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore, job

from firesteel.errors import FencingError
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_records import JobRecordStore


def test_a_record_is_replaced_recovered_and_deleted() -> None:
    async def run() -> None:
        store = JobRecordStore(FaultyStore())
        await store.put(job(1), {"attempt": 1, "v": 99}, epoch=EPOCH)
        await store.put(job(1), {"attempt": 2, "v": 99}, epoch=EPOCH)
        await store.put(job(2), {}, epoch=EPOCH)
        assert await store.get(job(1)) == {"attempt": 2, "v": 99}
        assert await store.recover() == ({job(1): {"attempt": 2, "v": 99}, job(2): {}}, {})
        assert await store.delete(job(1), epoch=EPOCH)
        assert not await store.delete(job(1), epoch=EPOCH)
        assert await store.get(job(1)) is None

    asyncio.run(run())


def test_a_stale_write_changes_nothing() -> None:
    async def run() -> None:
        store = JobRecordStore(FaultyStore())
        await store.put(job(1), {"attempt": 1}, epoch=EPOCH)
        with pytest.raises(FencingError):
            await store.put(job(1), {"attempt": 2}, epoch=OLD)
        assert await store.get(job(1)) == {"attempt": 1}

    asyncio.run(run())


def test_unreadable_records_are_told_apart() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobRecordStore(faulty)
        await store.put(job(1), {"attempt": 1}, epoch=EPOCH)
        await faulty.damage(f"jobs/{job(2)}", b"{}")
        await faulty.damage(f"jobs/{job(3)}", f'{{"v": 1, "job_id": "{job(3)}", "data": 5}}'.encode())
        good, bad = await store.recover()
        assert good == {job(1): {"attempt": 1}}
        assert set(bad) == {job(2), job(3)}
        with pytest.raises(UnreadableRecordError, match="no valid version"):
            await store.get(job(2))
        assert await store.raw(job(2)) == b"{}"

    asyncio.run(run())
