"""Real streams that end without a savepoint, and are gone on with: nothing is missing and nothing is doubled (I30)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conftest import Cluster
from tests.savepoint.spark_desk import desk

from firesteel.errors import JobStateError
from firesteel.failure import FailureKind
from firesteel.hosts import this_user
from firesteel.sandbox.owners import job_directory
from firesteel.status import JobStatus

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_cancelled_stream_is_resumed_with_exact_totals_and_by_one_job_at_a_time(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(cluster, tmp_path) as d:
            d.input.feed(3)
            first = await d.submit(d.graph("job", totals=True))
            await d.until(lambda: len(d.ids("job")) >= 20, first)
            d.input.feed(3)  # so that a batch is under way, or just over
            await d.gateway.cancel_job(first)
            ended = await d.gateway.request_job_result(first)
            assert (ended.status, ended.checkpoint) == (
                JobStatus.CANCELED,
                job_directory(f"{tmp_path}/checkpoints", this_user(), first),
            )

            goes_on = d.graph("job", totals=True, restore=ended.checkpoint)
            second = await d.submit(goes_on, resumes=first)
            with pytest.raises(JobStateError, match=f"job {second} already continues from"):
                await d.submit(goes_on, resumes=first)
            d.input.feed(3)
            await d.until(lambda: d.totals("job") == d.input.totals, second)
            await d.until(lambda: d.ids("job") == d.input.ids, second)
            assert d.visible_ids("job") == d.input.ids

            # It ends too, and is what there is to go on with now.
            await d.gateway.cancel_job(second)
            after = await d.gateway.request_job_result(second)
            with pytest.raises(JobStateError, match=f"firesteel resume {second[:8]}"):
                await d.submit(goes_on, resumes=first)
            third = await d.submit(d.graph("job", totals=True, restore=after.checkpoint), resumes=second)
            d.input.feed(3)
            await d.until(lambda: d.totals("job") == d.input.totals, third)
            await d.until(lambda: d.ids("job") == d.input.ids, third)
            assert d.visible_ids("job") == d.input.ids
            assert (await d.gateway.request_job(third))["exceptions"] == []

    asyncio.run(main())


def test_a_failed_stream_is_corrected_and_resumed(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(cluster, tmp_path) as d:
            d.input.feed(4)
            refuses = "SELECT IF(id = 25, CAST(raise_error('not this one') AS BIGINT), id) AS id FROM s"
            first = await d.submit(d.graph("job", ids=refuses))
            failed = await d.gateway.request_job_result(first)
            assert failed.failure is not None
            assert "not this one" in failed.failure.message
            assert d.ids("job") == list(range(20))

            # A job that cannot start takes nothing away from it.
            goes_on = d.graph("job", restore=failed.checkpoint)
            renamed = d.graph("other", restore=failed.checkpoint, totals=True, ids="SELECT nothing FROM s")
            refused = await d.gateway.request_job_result(await d.submit(renamed))
            assert refused.failure is not None
            assert refused.failure.kind is FailureKind.INVALID_PIPELINE

            second = await d.submit(goes_on, resumes=first)
            d.input.feed(2)
            await d.until(lambda: d.ids("job") == d.input.ids, second)
            assert d.visible_ids("job") == d.input.ids

    asyncio.run(main())
