"""The story of a job across leaders, as its details tell it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.dispatcher.sim_cluster import Cluster, once

from firesteel.status import JobStatus
from firesteel.types import JobID


async def chapters(cluster: Cluster, job_id: JobID) -> list[dict[str, Any]]:
    details = await cluster.ask(lambda d: d.request_job(job_id))
    told: list[dict[str, Any]] = details["story"]["chapters"]
    return told


def test_life_of_a_job_is_told_in_order_across_leaders(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 500.0)
        await cluster.running(job)
        await cluster.fail_over()
        await cluster.status(job.job_id, JobStatus.RUNNING)
        await cluster.ask(lambda d: d.cancel_job(job.job_id))
        await cluster.result(job.job_id)
        before = await chapters(cluster, job.job_id)
        await cluster.clean(job.job_id)
        told = await chapters(cluster, job.job_id)
        assert told == before, "what is kept of an ended job has it too"
        first, second = told[1]["epoch"], told[3]["epoch"]
        assert 0 < first < second
        assert [(c["status"], c["epoch"], c["cause"].split(" on engine")[0]) for c in told] == [
            ("INITIALIZING", 0, "submitted"),
            ("CREATED", first, "accepted"),
            ("RUNNING", first, "slot"),
            ("RECONCILING", second, f"taken over by the leader of epoch {second}"),
            ("RUNNING", second, "its attempt was found running"),
            ("CANCELLING", second, "a cancel was requested"),
            ("CANCELED", second, "attempt 1 was fenced"),
        ]
        assert [c["at"] for c in told] == sorted(c["at"] for c in told)

    once(tmp_path, main)


def test_end_that_is_not_durable_is_not_in_the_story(tmp_path: Path) -> None:
    """I5."""

    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 5.0)
        cluster.faults.closed = {"results/"}
        await cluster.running(job)
        await asyncio.sleep(60)
        runner = (await cluster.dispatcher())._table.live_runner(job.job_id)
        assert runner is not None
        assert runner.state.status is JobStatus.FINISHED
        assert [c["status"] for c in await chapters(cluster, job.job_id)][-1] == "RUNNING"
        cluster.faults.closed = set()
        await cluster.result(job.job_id)
        last = (await chapters(cluster, job.job_id))[-1]
        assert (last["status"], last["cause"]) == ("FINISHED", "attempt 1 finished")

    once(tmp_path, main)


def test_each_state_event_has_the_cause_of_its_state(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 5.0)
        with (await cluster.dispatcher()).events(job.job_id) as subscription:
            await cluster.submit(job)
            events = [await subscription.next()]
            while not events[-1].final:
                events.append(await subscription.next())
        assert [(e.data["status"], e.data["cause"].split(" on engine")[0]) for e in events] == [
            ("CREATED", "accepted"),
            ("RUNNING", "slot"),
            ("FINISHED", "attempt 1 finished"),
        ]

    once(tmp_path, main)
