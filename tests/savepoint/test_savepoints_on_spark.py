"""Savepoints of real queries: what goes on from them misses nothing and doubles nothing."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster
from tests.savepoint.fake_query import files_below
from tests.savepoint.spark_desk import desk

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.attempts.committed import Committed
from firesteel.errors import JobStateError
from firesteel.failure import FailureKind
from firesteel.hosts import this_user
from firesteel.sandbox.owners import below
from firesteel.savepoint.manifest import MANIFEST
from firesteel.status import JobStatus
from firesteel.stores.operations import NO_JOB
from firesteel.types import JobID

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def kill_driver(cluster: Cluster, job_id: JobID) -> None:
    (file,) = cluster.configuration.data.dir.rglob(f"{job_id}/attempts/1/driver.json")
    driver = AttemptDirectory(file.parent).read_driver()
    assert driver is not None
    driver.signal(signal.SIGKILL)


def test_fork_of_a_running_job_goes_on_with_exact_totals(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(cluster, tmp_path) as d:
            d.input.feed(3)
            first = await d.submit(d.graph("first", totals=True))
            await d.until(lambda: len(d.ids("first")) >= 20, first)
            before = await d.runs(first)
            await d.gateway.trigger_savepoint(first, "t1")
            taken = await d.done(first, "t1")
            location = str(taken.result["location"])
            assert location.startswith(f"{below(f'{tmp_path}/savepoints', this_user())}/savepoint-{first[:6]}-")
            batches: Any = taken.result["batches"]
            assert set(batches) == {"ids", "totals"}
            d.input.feed(5)
            assert len(d.input.totals) == 2, "the first began before the savepoint and ends after it"
            fork = await d.submit(d.graph("fork", restore=location, totals=True))
            for job_id, name in ((first, "first"), (fork, "fork")):
                await d.until(lambda name=name: d.totals(name) == d.input.totals, job_id)  # type: ignore[misc]
            saved = d.ids("first", up_to=batches["ids"])
            await d.until(lambda: d.ids("first") == d.input.ids, first)
            await d.until(lambda: len(d.ids("fork")) >= len(d.input.ids) - len(saved), fork)
            # The state came along: ids of before are known, and seen again in the first new file.
            assert sorted(saved + d.ids("fork")) == d.input.ids
            assert await d.runs(first) == before, "the original has not noticed"
            assert len((await d.gateway.request_job(first))["exceptions"]) == 0
            assert set((await d.runs(fork)).values()).isdisjoint(before.values())

            # Two jobs on one output would lose rows.
            with pytest.raises(JobStateError, match=f"job {fork} already continues from {location}"):
                await d.submit(d.graph("fork", restore=location, totals=True))
            shutil.copytree(location, f"{location}-copy")
            third = await d.submit(d.graph("fork", restore=f"{location}-copy", totals=True))
            refused = await d.gateway.request_job_result(third)
            assert refused.failure is not None
            assert refused.failure.kind is FailureKind.INVALID_PIPELINE
            assert f"is being written to by job {fork}" in refused.failure.message

    asyncio.run(main())


@pytest.mark.sample
def test_rollback_stop_and_disposal(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(cluster, tmp_path) as d:
            d.input.feed(3)
            first = await d.submit(d.graph("job"))
            await d.until(lambda: len(d.ids("job")) >= 20, first)
            await d.gateway.trigger_savepoint(first, "t1", str(tmp_path / "mine"))
            taken = await d.done(first, "t1")
            early = str(taken.result["location"])
            assert taken.result["sizes"] == {"ids": d.size_of(early)}
            d.input.feed(3)
            await d.until(lambda: d.ids("job") == d.input.ids, first)
            await d.gateway.cancel_job(first)
            assert (await d.gateway.request_job_result(first)).status is JobStatus.CANCELED

            # Back to the savepoint, in the same output: what came after it is done again.
            d.input.feed(1)
            second = await d.submit(d.graph("job", restore=early))
            await d.until((tmp_path / "job" / "ids" / "_rolled_back" / second).exists, second)
            await d.until(lambda: d.ids("job") == d.input.ids, second)
            assert d.visible_ids("job") == d.input.ids
            batches: Any = taken.result["batches"]
            went_on = (await d.committed(second)).restored
            assert went_on is not None
            assert (went_on.batch, went_on.savepoint, went_on.trigger) == (batches["ids"], early, "t1")
            job = await d.gateway.request_job(second)
            assert job["progress"]["state_store"]["provider"].endswith(".RocksDBStateStoreProvider")
            assert job["progress"]["state_store"]["changelog"]
            assert [f for f in files_below(tmp_path / "checkpoints") if second in f and f.endswith(".changelog")]
            await d.gateway.stop_job(second, "t1")
            stopped = await d.done(second, "t1")
            result = await d.gateway.request_job_result(second)
            assert (result.status, result.stopped) == (JobStatus.FINISHED, True)
            late = str(stopped.result["location"])
            assert d.files_of(late) > {MANIFEST}

            # The same goes on after a stop; it does not need the savepoints any more once it runs.
            third = await d.submit(d.graph("job", restore=late, restarts=1))
            d.input.feed(1)
            await d.until(lambda: d.ids("job") == d.input.ids, third)
            for n, location in enumerate((early, late)):
                await d.gateway.dispose_savepoint(location, f"d{n}")
                await d.done(NO_JOB, f"d{n}")
                assert d.files_of(location) == set()
            d.input.feed(4)
            await d.until(lambda: d.ids("job") == d.input.ids, third)
            assert Counter(d.visible_ids("job")) == Counter(d.input.ids)
            assert len((await d.gateway.request_job(third))["exceptions"]) == 0

            # A driver that dies is followed by one that goes on, and counts on.
            before = await d.committed(third)
            assert (before.restores, before.before) == (1, stopped.result["batches"]["ids"])
            kill_driver(cluster, third)
            d.input.feed(1)
            await d.until(lambda: d.ids("job") == d.input.ids, third)

            async def told() -> bool:
                log = await d.committed(third)
                return log.restored is not None and log.restores == 2 and log.recent[-1].number > log.restored.batch

            await d.until(told, third)
            after = await d.committed(third)
            assert (after.before, after.restores) == (before.before, 2)
            assert after.restored is not None
            # The one that died may have committed a batch that it could not tell of any more.
            assert before.last <= after.restored.batch < after.last
            assert (after.restored.savepoint, after.count) == ("", after.last - before.before)
            assert {b.number for b in before.recent} < {b.number for b in after.recent}
            (attempt,) = (await d.gateway.request_job(third))["attempts"]
            assert attempt["ended_at"] > attempt["started_at"] > 0
            engines = (await d.gateway.request_cluster_overview()).resources.engines
            assert (attempt["engine_id"], attempt["endpoint"]) in {(e.engine_id, e.address) for e in engines}

            # Nothing can start from what is gone, or was never complete.
            d.begin_savepoint(late)
            for location, words in ((early, f"there is no savepoint at {early}"), (late, "is not complete")):
                refused = await d.gateway.request_job_result(await d.submit(d.graph("other", restore=location)))
                assert refused.failure is not None
                assert (refused.status, refused.failure.kind) == (JobStatus.FAILED, FailureKind.INVALID_PIPELINE)
                assert words in refused.failure.message
                assert await d.committed(refused.job_id) == Committed()

    asyncio.run(main())
