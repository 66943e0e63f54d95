"""Accepting jobs: durable before it is acknowledged, once however often it is asked, and never two under one id."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, once, play

from firesteel.config import load_configuration
from firesteel.dispatcher.overrides import OF_JOBS, parse_overrides, with_overrides
from firesteel.errors import (
    DuplicateJobError,
    FencingError,
    InvalidConfigError,
    NotLeadingError,
    StoreBrokenError,
    StoreUnavailableError,
)
from firesteel.jobgraph import parse_graph
from firesteel.jobgraph.admission import digest_of
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.types import JobID, vertex_id


def other(submission: Submission) -> Submission:
    """Another job under the same id."""
    graph = submission.graph.model_copy(update={"name": "another"})
    return dataclasses.replace(submission, graph=graph, digest=digest_of(graph))


def test_job_is_durable_before_it_is_accepted(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        cluster.faults.closed.add("graphs/")
        answer = await cluster.begin(lambda d: d.submit_job(job))
        await asyncio.sleep(LONG)
        assert not answer.done()
        assert not cluster.world.runs
        cluster.faults.closed.clear()
        await asyncio.wait_for(answer, LONG)
        assert cluster.stored(f"graphs/{job.job_id}")["digest"] == job.digest
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


@pytest.mark.parametrize("error", [StoreBrokenError("the disk is full"), StoreUnavailableError("busy")])
def test_job_that_could_not_be_stored(tmp_path: Path, error: Exception) -> None:
    """A store that is away is waited for; one that is full is told, and the same submission works later."""

    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        cluster.faults.writes.append(("graphs/", error))
        if isinstance(error, StoreBrokenError):
            with pytest.raises(StoreBrokenError, match="the disk is full"):
                await cluster.submit(job)
            assert not cluster.world.data
        await cluster.submit(job)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_submission_to_a_leader_that_is_none_any_more(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        first = await cluster.leader()
        cluster.faults.writes.append(("graphs/", FencingError("epoch 1 is not 2")))
        with pytest.raises(NotLeadingError, match="was not accepted"):
            await cluster.submit(job)
        with pytest.raises(NotLeadingError):
            _ = cluster.runners[first].dispatcher
        assert not cluster.world.data

    once(tmp_path, main)


# -- the same again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("life", ["running", "finished", "finished in an earlier life", "running in an earlier life"])
def test_other_job_under_a_used_id(tmp_path: Path, life: str) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 5.0 if "finished" in life else 10_000.0)
        await cluster.running(job)
        if "finished" in life:
            await cluster.result(job.job_id)
            await cluster.clean(job.job_id)
        if "earlier" in life:
            await cluster.fail_over()
        state = r"has ended \(FINISHED\)" if "finished" in life else r"is (RUNNING|INITIALIZING|RECONCILING);"
        with pytest.raises(DuplicateJobError, match=f"job id {job.job_id} belongs to another job, which {state}"):
            await cluster.submit(other(job))
        await asyncio.sleep(LONG)
        assert cluster.numbers(job.job_id) == [1]

    once(tmp_path, main)


@pytest.mark.parametrize("life", ["running", "finished", "finished in an earlier life", "running in an earlier life"])
def test_same_submission_again_is_answered_alike_and_runs_once(tmp_path: Path, life: str) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 5.0 if "finished" in life else 500.0)
        await cluster.running(job)
        if "finished" in life:
            await cluster.result(job.job_id)
            await cluster.clean(job.job_id)
        if "earlier" in life:
            await cluster.fail_over()
        # The client's clock has gone on; it is the same job all the same.
        await cluster.submit(dataclasses.replace(job, submitted_at=cluster.world.now))
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(job.job_id) == [1]

    once(tmp_path, main)


def test_concurrent_twins_are_one_job(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        twins = [await cluster.begin(lambda d: d.submit_job(job)) for _ in range(5)]
        stranger = await cluster.begin(lambda d: d.submit_job(other(job)))
        await asyncio.wait_for(asyncio.gather(*twins), LONG)
        with pytest.raises(DuplicateJobError):
            await stranger
        await cluster.result(job.job_id)
        await cluster.clean(job.job_id)
        assert cluster.writes_of("graphs/") == [f"graphs/{job.job_id}"]
        assert cluster.numbers(job.job_id) == [1]

    once(tmp_path, main)


def test_twin_of_a_submission_that_failed_is_tried_by_itself(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        cluster.faults.writes.append(("graphs/", StoreBrokenError("the disk is full")))
        first, second = [await cluster.begin(lambda d: d.submit_job(job)) for _ in range(2)]
        with pytest.raises(StoreBrokenError):
            await asyncio.wait_for(first, LONG)
        await asyncio.wait_for(second, LONG)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_client_that_goes_away_does_not_stop_the_others(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        cluster.faults.closed.add("graphs/")
        first, second = [await cluster.begin(lambda d: d.submit_job(job)) for _ in range(2)]
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        cluster.faults.closed.clear()
        await asyncio.wait_for(second, LONG)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_submission_while_the_namesake_is_cleaned_up(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        cluster.faults.clears_wait = True
        await cluster.submit(job)
        await cluster.result(job.job_id)
        await asyncio.sleep(1)
        assert cluster.stored(f"results/{job.job_id}")["dirty"] is True
        await cluster.submit(job)
        with pytest.raises(DuplicateJobError):
            await cluster.submit(other(job))
        await cluster.fail_over()  # and while the next leader cleans up
        await cluster.submit(job)
        with pytest.raises(DuplicateJobError):
            await cluster.submit(other(job))
        cluster.faults.clears_wait = False
        await cluster.clean(job.job_id)
        assert cluster.numbers(job.job_id) == [1]

    once(tmp_path, main)


def test_refusal_says_that_the_namesake_has_ended(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        cluster.faults.clears_wait = True
        await cluster.submit(job)
        await cluster.result(job.job_id)
        with pytest.raises(DuplicateJobError, match=r"which has ended \(FINISHED\)"):
            await cluster.submit(other(job))

    once(tmp_path, main)


# -- what is not accepted as it is ----------------------------------------------------------------------------------


def test_parallelism_that_the_cluster_prescribes(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 100.0, name="orders", parallelism=2)
        plain = cluster.job(2, 100.0, name="others", parallelism=2)
        await cluster.running(job)
        await cluster.running(plain)
        assert (await cluster.ask(lambda d: d.request_job(job.job_id)))["parallelism"] == 7
        assert (await cluster.ask(lambda d: d.request_job(plain.job_id)))["parallelism"] == 2
        stored = cluster.stored(f"graphs/{job.job_id}")
        assert stored["graph"]["parallelism"] == 7
        assert stored["digest"] == job.digest
        # The digest is the client's own: its retry is known, and another job is not, here and in the next life.
        await cluster.submit(job)
        await cluster.fail_over()
        await cluster.submit(job)
        assert (await cluster.ask(lambda d: d.request_job(job.job_id)))["parallelism"] == 7
        assert (await cluster.result(job.job_id)).digest == job.digest
        with pytest.raises(DuplicateJobError):
            await cluster.submit(other(job))

    once(tmp_path, main, jobmanager__parallelism_overrides="orders:7 reports:3")


@pytest.mark.parametrize("word", ["orders", "orders:", "orders:0", "orders:-1", "orders:x", ":3"])
def test_override_that_is_none(word: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"jobmanager\.parallelism-overrides.*is not of the form name:N"):
        parse_overrides(["a:1", word], OF_JOBS)


def overridden(tmp_path: Path, own: dict[str, int], **settings: str) -> dict[str, int | None]:
    """The parallelism of each vertex of a job that is accepted with these settings."""
    vertices = [
        {"kind": "source", "name": "lines", "format": "text", "path": "/in"},
        {"kind": "sql", "name": "counted", "query": "SELECT count(*) AS n FROM lines", "parallelism": 2},
        {"kind": "sink", "name": "out", "input": "counted", "format": "json", "path": "/out"},
    ]
    graph = parse_graph({"name": "orders", "settings": {"parallelism_overrides": own}, "vertices": vertices})
    submission = Submission(JobID("0" * 32), graph, 1.0, "digest")
    options = {"data.dir": str(tmp_path), **{k.replace("__", "."): v for k, v in settings.items()}}
    options = {k.replace("_", "-"): v for k, v in options.items()}
    configuration = load_configuration(overrides=options, environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    accepted = with_overrides(submission, configuration)
    assert accepted.digest == submission.digest
    return {v.name: v.parallelism for v in accepted.graph.vertices}


def test_parallelism_of_vertices_is_what_the_cluster_says(tmp_path: Path) -> None:
    said = f"counted:7 {vertex_id('out')}:3 other:9"
    found = overridden(tmp_path, {}, pipeline__jobvertex_parallelism_overrides=said)
    assert found == {"lines": None, "counted": 7, "out": 3}


def test_parallelism_that_the_job_says_of_its_vertices_goes_before(tmp_path: Path) -> None:
    found = overridden(tmp_path, {"counted": 5}, pipeline__jobvertex_parallelism_overrides="counted:7 lines:4")
    assert found == {"lines": 4, "counted": 5, "out": None}


def test_acceptance_of_a_job_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        with caplog.at_level("INFO"):
            await cluster.submit(job)
        assert f"job {job.job_id} ({job.graph.name}) accepted" in caplog.text

    once(tmp_path, main)


def test_override_of_a_name_with_colons() -> None:
    assert parse_overrides(["ns:orders:4"], OF_JOBS) == {"ns:orders": 4}


# -- graphs that somebody else puts into the store ------------------------------------------------------------------


def test_graph_that_somebody_added_is_run(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        maker = cluster.job(1, 100.0)
        await cluster.running(maker)
        raw = cluster.world.data[f"graphs/{maker.job_id}"].value
        added = cluster.job(2)
        cluster.put(f"graphs/{added.job_id}", raw.replace(maker.job_id.encode(), added.job_id.encode()))
        await cluster.until(lambda: cluster.numbers(added.job_id) == [1], seconds=60)
        await cluster.clean(added.job_id)
        assert cluster.stored(f"results/{added.job_id}")["status"] == "FINISHED"
        await asyncio.sleep(LONG)
        assert cluster.numbers(added.job_id) == [1]

    once(tmp_path, main)


def test_graph_that_somebody_removed_is_cancelled(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job, bystander = cluster.job(1, 10_000.0), cluster.job(2, 100.0)
        await cluster.running(job)
        await cluster.running(bystander)
        del cluster.world.data[f"graphs/{job.job_id}"]
        assert (await cluster.result(job.job_id)).status is JobStatus.CANCELED
        await cluster.clean(job.job_id)
        assert (await cluster.result(bystander.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_unreadable_graph_that_somebody_added_is_left_alone(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        bystander = cluster.job(1, 100.0)
        await cluster.running(bystander)
        job = cluster.job(2)
        cluster.put(f"graphs/{job.job_id}", b"{not json")
        await asyncio.sleep(30)
        assert cluster.world.data[f"graphs/{job.job_id}"].value == b"{not json"
        assert not cluster.numbers(job.job_id)
        assert (await cluster.result(bystander.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_no_leader_accepts_anything(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        process = cluster.start_node()
        await cluster.leader()
        dispatcher = cluster.runners[process].dispatcher
        cluster.runners[process].on_revoke()
        await asyncio.sleep(1)
        job = cluster.job(1)
        with pytest.raises(NotLeadingError):
            _ = cluster.runners[process].dispatcher
        for call in (
            dispatcher.submit_job(job),
            dispatcher.cancel_job(job.job_id),
            dispatcher.list_jobs(),
            dispatcher.request_job(job.job_id),
            dispatcher.request_job_status(job.job_id),
            dispatcher.request_job_result(job.job_id),
            dispatcher.request_operation(job.job_id, "t"),
            dispatcher.request_cluster_overview(),
            dispatcher.shut_down(),
        ):
            with pytest.raises(NotLeadingError):
                await call

    play(tmp_path, main)
