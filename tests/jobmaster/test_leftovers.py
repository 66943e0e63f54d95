"""A cancel that comes while Spark is still planning ends the job that Spark would start after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conftest import Cluster, graph_of
from tests.jobmaster.local_attempts import Leader, leading, until
from tests.support.guards import certain

from firesteel.attempts.attempt import AttemptState
from firesteel.engines.api import EngineApi
from firesteel.jobgraph.model import JobGraph
from firesteel.types import SparkIds
from firesteel.worker.pool import DriverPool


def endless() -> JobGraph:
    return graph_of(
        {
            "kind": "sql",
            "name": "a",
            "query": "SELECT max(sha2(CAST(id AS STRING), 512)) AS m FROM range(0, 10000000000, 1, 5000)",
        },
        {"kind": "sink", "name": "o", "input": "a", "format": "noop", "mode": "overwrite"},
    )


def seen(cluster: Cluster, attempt: SparkIds) -> list[str]:
    """All that the engine still has of the attempt."""
    api = EngineApi(cluster.engine())
    jobs = [f"job {j['jobId']}" for j in api.get("jobs") if _is_of(attempt, j["jobTags"]) and j["status"] == "RUNNING"]
    threads = [t["threadName"] for t in api.get("executors/driver/threads")]
    return jobs + [t for t in threads if t.endswith(attempt.operation_id("o"))]


def _is_of(attempt: SparkIds, tags: list[str]) -> bool:
    return any(attempt.session_id in tag for tag in tags)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("killed", [False, True], ids=["cancelled", "its driver killed"])
def test_nothing_runs_on_after_a_cancel_at_any_moment(cluster: Cluster, tmp_path: Path, killed: bool) -> None:
    async def ended_at(leader: Leader, moment: float) -> None:
        attempt = await leader.start(endless(), cluster.engine())
        await leader.runs(attempt)
        names = leader.directory(attempt).read_spec().ids
        await asyncio.sleep(moment)
        if killed:
            driver = leader.directory(attempt).read_driver()
            assert driver is not None
            driver.signal(9)
            assert (await leader.executor.wait(attempt)).state is AttemptState.FAILED
        else:
            await leader.executor.cancel(attempt, guard=certain)
            assert (await leader.executor.wait(attempt)).state is AttemptState.CANCELED
        # At the latest when the attempt is forgotten, nothing of it is left.
        await leader.executor.forget(attempt, guard=certain)

        async def gone() -> bool:
            return not await asyncio.to_thread(seen, cluster, names)

        # Spark's own account of a job that was killed comes a moment later.
        async with asyncio.timeout(15):
            await until(gone)

    async def main() -> None:
        with DriverPool() as pool:
            async with leading(cluster.configuration, tmp_path / "jobs", pool) as leader:
                for moment in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5):
                    await ended_at(leader, moment)

    asyncio.run(main())
