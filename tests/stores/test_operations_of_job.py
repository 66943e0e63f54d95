"""Listing what was triggered for a job."""

from __future__ import annotations

import asyncio

from tests.stores.store_doubles import EPOCH, FaultyStore, job

from firesteel.stores.operations import Operation, OperationKind, OperationStore


def test_operations_of_a_job_are_listed_oldest_first() -> None:
    async def run() -> None:
        store = OperationStore(FaultyStore())
        for number, trigger, at in ((1, "late", 3.0), (1, "early", 2.0), (2, "other", 1.0)):
            await store.begin(Operation(job(number), trigger, OperationKind.CHECKPOINT, at), epoch=EPOCH)
        assert [o.trigger_id for o in store.of_job(job(1))] == ["early", "late"]
        assert store.of_job(job(3)) == []

    asyncio.run(run())
