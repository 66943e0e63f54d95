from __future__ import annotations

import asyncio
import json

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore, job

from firesteel.errors import FencingError
from firesteel.records import from_json, to_json
from firesteel.stores.parked import ParkedJob, ParkedStore
from firesteel.types import JobID

GRAPH = ParkedJob(job(1), f"graphs/{job(1)}", bytes(range(256)), "it is not JSON", 12.5)


def test_a_parked_record_comes_back_from_json_byte_for_byte() -> None:
    assert from_json(json.loads(json.dumps(to_json(GRAPH))), ParkedJob) == GRAPH


def test_records_are_parked_listed_and_forgotten_by_job() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = ParkedStore(faulty)
        record = ParkedJob(job(1), f"jobs/{job(1)}", b"", "it is empty", 13.0)
        odd = ParkedJob(JobID("leftover"), "graphs/leftover", b"x", "not a job id", 14.0)
        for one in (GRAPH, record, odd, GRAPH):
            await store.put(one, epoch=EPOCH)
        assert list(await store.list()) == [GRAPH, record, odd]
        assert await store.delete(job(1), epoch=EPOCH)
        assert not await store.delete(job(1), epoch=EPOCH)
        assert list(await store.list()) == [odd]

    asyncio.run(run())


def test_a_bad_parked_record_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = ParkedStore(faulty)
        await store.put(GRAPH, epoch=EPOCH)
        await faulty.damage(f"parked/{job(2)}/graphs", b"?")
        await faulty.damage(f"parked/{job(3)}/graphs", json.dumps({"v": 1, **to_json(GRAPH), "raw": "%"}).encode())
        assert list(await store.list()) == [GRAPH]
        assert job(2) in caplog.text
        assert job(3) in caplog.text

    asyncio.run(run())


def test_a_stale_leader_parks_nothing() -> None:
    async def run() -> None:
        store = ParkedStore(FaultyStore())
        with pytest.raises(FencingError):
            await store.put(GRAPH, epoch=OLD)
        assert not await store.list()

    asyncio.run(run())
