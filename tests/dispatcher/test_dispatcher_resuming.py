"""Jobs that go on where a stream ended: after its end, one at a time, and from where the last one came to (I30)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.dispatcher.sim_cluster import Cluster, once
from tests.support.marks import samples

from firesteel.dispatcher.outputs import OutputCleaner
from firesteel.errors import JobStateError
from firesteel.jobgraph.admission import digest_of
from firesteel.jobmaster.kept_checkpoints import checkpoint_directory
from firesteel.savepoint.retained import NOTE
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.operations import OperationStatus
from firesteel.types import JobID
from firesteel.worker.executor import LocalAttemptExecutor


def going_on(cluster: Cluster, number: int, ended: JobID, *, output: str = "/y", resumes: bool = True) -> Submission:
    """A job that starts from the checkpoint of `ended`."""
    path = checkpoint_directory(cluster.configuration, "", ended)
    job = cluster.job(number, streaming=True)
    plain = job.graph.model_dump(mode="json", by_alias=True, exclude_none=True)
    plain["settings"]["restore"] = {"path": path}
    plain["vertices"][1]["path"] = output
    graph = type(job.graph).model_validate(plain)
    return replace(job, graph=graph, digest=digest_of(graph), resumes=ended if resumes else "")


async def ended(cluster: Cluster, number: int = 1, **cancel: Any) -> JobID:
    job_id = await cluster.running(cluster.job(number, streaming=True))
    await cluster.ask(lambda d: d.cancel_job(job_id, **cancel))
    await cluster.clean(job_id)
    return job_id


def test_the_result_of_a_cancelled_stream_says_where_its_checkpoint_is(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        kept = await ended(cluster)
        where = checkpoint_directory(cluster.configuration, "", kept)
        assert (await cluster.result(kept)).checkpoint == where
        assert (await cluster.ask(lambda d: d.request_job(kept)))["checkpoint"] == where
        discarded = await ended(cluster, 2, keep_checkpoint=False)
        assert (await cluster.result(discarded)).checkpoint == ""

    once(tmp_path, main)


def test_what_a_cancel_said_of_the_checkpoint_survives_the_leader(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.closed.add("results/")
        await cluster.ask(lambda d: d.cancel_job(job_id, keep_checkpoint=False))
        await asyncio.sleep(60)
        await cluster.fail_over()
        cluster.faults.closed.clear()
        result = await cluster.result(job_id)
        assert (result.status, result.checkpoint) == (JobStatus.CANCELED, "")

    once(tmp_path, main)


def test_a_stream_is_resumed_and_remembers_what_it_goes_on_with(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        before = await ended(cluster)
        after = await cluster.running(going_on(cluster, 2, before))
        await cluster.fail_over()
        assert (await cluster.ask(lambda d: d.request_job(after)))["resumes"] == before
        await cluster.ask(lambda d: d.cancel_job(after))
        assert (await cluster.result(after)).resumes == before

    once(tmp_path, main)


def test_a_stream_that_runs_cannot_be_gone_on_with(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        running = await cluster.running(cluster.job(1, streaming=True))
        with pytest.raises(JobStateError, match="has not ended"):
            await cluster.submit(going_on(cluster, 2, running))
        assert cluster.stored(f"graphs/{2:032x}") == {}

    once(tmp_path, main)


def test_a_resumption_waits_for_the_clean_up_of_what_it_goes_on_with(tmp_path: Path) -> None:
    """The note that makes a checkpoint one of an ended job is a part of the clean-up."""

    async def main(cluster: Cluster) -> None:
        before = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.clears_wait = True
        await cluster.ask(lambda d: d.cancel_job(before))
        await cluster.result(before)
        submitting = await cluster.begin(lambda d: d.submit_job(going_on(cluster, 2, before)))
        await asyncio.sleep(5)
        assert not submitting.done()
        cluster.faults.clears_wait = False
        await submitting
        assert before in cluster.cleared

    once(tmp_path, main)


def test_two_jobs_that_write_to_the_same_cannot_go_on_from_the_same(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        before = await ended(cluster)
        first, second = going_on(cluster, 2, before), going_on(cluster, 3, before)
        tasks = [await cluster.begin(lambda d, s=s: d.submit_job(s)) for s in (first, second)]  # type: ignore[misc]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(o) for o in outcomes] == [type(None), JobStateError]
        assert "continues from" in str(outcomes[1])
        # By a path as well as by the job, and a repetition of the first is still the first.
        with pytest.raises(JobStateError, match="also writes to /y"):
            await cluster.submit(going_on(cluster, 4, before, resumes=False))
        await cluster.submit(first)
        # One with outputs of its own harms nobody.
        await cluster.running(going_on(cluster, 5, before, output="/elsewhere", resumes=False))

    once(tmp_path, main)


def test_a_stream_that_was_resumed_is_gone_on_with_from_where_the_last_one_came_to(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        before = await ended(cluster)
        after = await cluster.running(going_on(cluster, 2, before))
        await cluster.ask(lambda d: d.cancel_job(after))
        await cluster.clean(after)
        with pytest.raises(JobStateError, match=f"firesteel resume {after[:8]}"):
            await cluster.submit(going_on(cluster, 3, before))
        # To go back is another thing, and has to be asked for by the path.
        back = await cluster.running(going_on(cluster, 4, before, resumes=False))
        await cluster.ask(lambda d: d.cancel_job(back))
        await cluster.clean(back)
        await cluster.running(going_on(cluster, 5, after))

    once(tmp_path, main)


def test_when_what_came_after_was_discarded_the_stream_can_be_resumed_again(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        before = await ended(cluster)
        after = await cluster.running(going_on(cluster, 2, before))
        await cluster.ask(lambda d: d.cancel_job(after, keep_checkpoint=False))
        await cluster.clean(after)
        await cluster.running(going_on(cluster, 3, before))

    once(tmp_path, main)


def test_the_savepoint_of_a_stopped_job_is_told_for_as_long_as_the_job_is_remembered(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t0"))
        await cluster.until(lambda: cluster.stored(f"operations/{job_id}/t0").get("status") == "COMPLETED")
        await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "c0"))
        running = await cluster.ask(lambda d: d.request_job(job_id))
        assert running["savepoint"] == cluster.stored(f"operations/{job_id}/t0")["result"]["location"]
        await asyncio.sleep(2)
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        await cluster.until(lambda: cluster.stored(f"operations/{job_id}/t1").get("status") == "COMPLETED")
        location = cluster.stored(f"operations/{job_id}/t1")["result"]["location"]
        await asyncio.sleep(1500)  # past dispatcher.operation-retention
        await cluster.fail_over()
        assert (await cluster.ask(lambda d: d.request_job(job_id)))["savepoint"] == location
        remembered = await cluster.ask(lambda d: d.list_operations(job_id))
        assert [(o.trigger_id, o.status) for o in remembered] == [("t1", OperationStatus.COMPLETED)]

    once(tmp_path, main)


def test_a_savepoint_that_was_disposed_of_is_told_no_more(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        await cluster.until(lambda: cluster.stored(f"operations/{job_id}/t1").get("status") == "COMPLETED")
        location = cluster.stored(f"operations/{job_id}/t1")["result"]["location"]
        await cluster.ask(lambda d: d.dispose_savepoint(location, "d1"))
        await cluster.until(lambda: cluster.stored(f"operations/{'0' * 32}/d1").get("status") == "COMPLETED")
        assert (await cluster.ask(lambda d: d.request_job(job_id)))["savepoint"] == ""
        assert (await cluster.ask(lambda d: d.request_operation(job_id, "t1"))).result["location"] == location
        await asyncio.sleep(1500)
        assert await cluster.ask(lambda d: d.list_operations(job_id)) == []

    once(tmp_path, main)


@pytest.mark.parametrize("keep", samples([True, False]))
def test_the_clean_up_notes_or_removes_the_checkpoint_as_the_result_says(keep: bool, tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, streaming=True)
        directory = tmp_path / "checkpoints" / job.job_id
        (directory / "o" / "commits").mkdir(parents=True)
        await cluster.running(job)
        await cluster.ask(lambda d: d.cancel_job(job.job_id))
        result = replace(await cluster.result(job.job_id), checkpoint=str(directory) if keep else "")
        configuration = replace(
            cluster.configuration, state=replace(cluster.configuration.state, checkpoints_dir=f"{directory.parent}")
        )
        executor = LocalAttemptExecutor(configuration, tmp_path / "jobs")
        try:
            cleaner = OutputCleaner(configuration, executor.errands)
            for _ in range(2):  # a leader that dies in between has it done again
                await cleaner.clear(job, result)
        finally:
            await executor.close()
        assert (directory / "o" / "commits").exists() is keep
        assert (directory / NOTE).exists() is keep

    once(tmp_path, main)
