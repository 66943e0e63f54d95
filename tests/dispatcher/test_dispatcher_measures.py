"""What a leader's registry is told: counted where it happens, found out when a report is due, gone with the leadership."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.dispatcher.sim_cluster import Cluster, once, play

from firesteel.attempts.committed import Committed, CommittedBatch
from firesteel.errors import DuplicateJobError, FencingError
from firesteel.metrics import declarations as m
from firesteel.metrics.metric import OF_JOBS, Metric
from firesteel.status import JobStatus
from firesteel.types import JobID

RESTART = {"type": "fixed-delay", "attempts": 3, "delay": "1 s"}


def labels(job_id: JobID, name: str, *more: str) -> tuple[str, ...]:
    return (job_id, name, "", *more)


def held(cluster: Cluster, metric: Metric) -> dict[tuple[str, ...], float]:
    """Its series."""
    return next((dict(r.values) for r in cluster.metrics.readings() if r.metric is metric), {})


def test_submissions_and_ends_are_counted(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        await cluster.submit(job)
        await cluster.submit(job)  # a repetition is accepted too
        with pytest.raises(DuplicateJobError):
            await cluster.submit(replace(job, digest="another"))
        await cluster.result(job.job_id)
        value = cluster.metrics.value
        assert (value(m.SUBMISSIONS, "accepted"), value(m.SUBMISSIONS, "refused")) == (2, 1)
        assert (value(m.ENDED_JOBS, "FINISHED"), value(m.ENDED_JOBS, "FAILED")) == (1, 0)
        assert cluster.metrics.histogram(m.SUBMISSION_SECONDS).count == 2
        assert (value(m.ATTEMPTS), value(m.ATTEMPTS_FAILED, "data error"), value(m.RESTARTS)) == (1, 0, 0)

    once(tmp_path, main)


def test_failed_attempts_and_restarts_are_counted_once_each(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, fails=2, restart=RESTART)
        await cluster.submit(job)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED
        failed = held(cluster, m.ATTEMPTS_FAILED)
        assert list(failed.values()) == [2]
        assert (cluster.metrics.value(m.ATTEMPTS), cluster.metrics.value(m.RESTARTS)) == (3, 2)

    once(tmp_path, main)


def test_jobs_slots_and_queue_are_found_out_when_asked_for(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        first = await cluster.running(cluster.job(1, streaming=True, name="first"))
        await cluster.submit(cluster.job(2, streaming=True))
        await cluster.status(JobID(f"{2:032x}"), JobStatus.CREATED)
        await cluster.metrics.collect()
        value = cluster.metrics.value
        assert (value(m.JOBS, "RUNNING"), value(m.JOBS, "CREATED"), value(m.UNFINISHED_JOBS)) == (1, 1, 2)
        assert (value(m.SLOTS), value(m.FREE_SLOTS), value(m.WAITING), value(m.ENGINES)) == (1, 0, 1, 1)
        assert value(m.JOB_STATE, *labels(first, "first", "RUNNING")) == 1
        assert value(m.ENGINES_STARTED) == 1
        assert cluster.metrics.histogram(m.SLOT_WAIT).count == 1
        assert list(held(cluster, m.ENGINE_SLOTS).values()) == [1]

    once(tmp_path, main, engine__slots="1", engine__max="1")


def told(now: float) -> dict[str, Any]:
    log = Committed().committing(CommittedBatch(0, now - 20, 500)).committing(CommittedBatch(1, now - 10, 2000))
    sink = {
        "batch": 1,
        "rows": 30,
        "rows_per_second": 12.5,
        "duration_ms": 2000,
        "state_rows": 7,
        "watermark": "1970-01-01T00:00:00.500Z",
        "output_rows": 30,
        "busy_ms": 2500,
    }
    return {
        "updated_at": now,
        "sinks": {"o": sink},
        "vertices": {},
        "checkpoints": {"o": log.to_json()},
        "metrics": {"rejected": 4},
    }


def test_a_stream_is_measured_by_what_its_driver_tells(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = labels(await cluster.running(cluster.job(1, streaming=True, name="clicks")), "clicks")
        await asyncio.sleep(1)
        cluster.faults.told = told(cluster.world.now)
        await cluster.metrics.collect()
        value = cluster.metrics.value
        assert value(m.INPUT_RATE, *job, "o") == 12.5
        assert value(m.BATCH_SECONDS, *job, "o") == 2
        assert value(m.STATE_ROWS, *job, "o") == 7
        assert value(m.BATCHES, *job, "o") == 2
        assert value(m.LAST_BATCH_AGE, *job, "o") == pytest.approx(10)
        assert value(m.WATERMARK_LAG, *job, "o") == pytest.approx(max(0.0, cluster.world.now - 0.5))
        assert value(m.BUSY, *job, "o") == pytest.approx(2.5 / 20.5)
        assert value(m.USER_VALUE, *job, "rejected") == 4
        assert (value(m.RECORDS_IN, *job, "i"), value(m.RECORDS_OUT, *job, "o")) == (30, 30)

    once(tmp_path, main)


@pytest.mark.parametrize(("wanted", "count"), [("false", 0), ("true", 1)])
def test_series_of_jobs_are_as_many_as_there_may_be(tmp_path: Path, wanted: str, count: int) -> None:
    """S24"""

    async def main(cluster: Cluster) -> None:
        for number in (1, 2):
            await cluster.running(cluster.job(number, streaming=True))
        await cluster.metrics.collect()
        assert len(held(cluster, m.JOB_STATE)) == count
        assert cluster.metrics.value(m.SERIES_REFUSED) == count

    once(tmp_path, main, metrics__jobs=wanted, metrics__max_jobs="1")


def test_leadership_is_counted_and_what_a_leader_knows_goes_with_it(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.start_node()
        process = await cluster.leader()
        await cluster.running(cluster.job(1, streaming=True))
        await cluster.metrics.collect()
        value = cluster.metrics.value
        assert (value(m.LEADING), value(m.EPOCH), value(m.GRANTS)) == (1, 1, 1)
        assert cluster.metrics.histogram(m.RECOVERY).count == 1
        assert held(cluster, m.JOB_STATE)
        cluster.runners[process].on_revoke()
        await cluster.until(lambda: not held(cluster, m.JOBS))
        assert (value(m.LEADING), value(m.REVOCATIONS)) == (0, 1)
        left = {r.metric for r in cluster.metrics.readings() if r.metric.group in OF_JOBS}
        assert left == set()
        assert not held(cluster, m.SLOTS)

    play(tmp_path, main)


def test_jobs_that_are_taken_over_are_counted_and_timed(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.start_node()
        await cluster.leader()
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.fail_over()
        await cluster.status(job_id, JobStatus.RUNNING)
        await cluster.until(lambda: cluster.metrics.histogram(m.TAKE_OVER).count == 1)
        assert cluster.metrics.value(m.RECOVERED_JOBS) == 1
        assert cluster.metrics.value(m.ATTEMPTS) == 1, "nothing was started again"

    play(tmp_path, main)


def test_the_store_is_timed_and_what_it_refuses_is_counted(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        assert cluster.metrics.histogram(m.STORE_SECONDS, "list").count > 0
        cluster.faults.writes.append(("graphs/", FencingError("another leads")))
        with pytest.raises(Exception, match="no longer the leader"):
            await cluster.submit(cluster.job(1))
        assert cluster.metrics.value(m.STORE_ERRORS, "put", "fenced") == 1
        assert cluster.metrics.value(m.FENCED) == 1
        assert cluster.metrics.value(m.SUBMISSIONS, "refused") == 1

    once(tmp_path, main)


def test_savepoints_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1"))
        await cluster.until(lambda: cluster.metrics.value(m.SAVEPOINTS, "completed") == 1)
        cluster.faults.prepares.append(OSError(28, "No space left on device"))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t2"))
        await cluster.until(lambda: cluster.metrics.value(m.SAVEPOINTS, "failed") == 1)
        assert cluster.metrics.histogram(m.SAVEPOINT_SECONDS).count == 1

    once(tmp_path, main)


def test_an_engine_that_is_lost_is_counted(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.running(cluster.job(1, streaming=True, restart=RESTART))
        cluster.world.kill_engine(next(iter(cluster.world.engines)))
        await cluster.until(lambda: cluster.metrics.value(m.ENGINES_LOST) == 1)
        await cluster.until(lambda: cluster.metrics.value(m.ATTEMPTS) == 2)

    once(tmp_path, main)
