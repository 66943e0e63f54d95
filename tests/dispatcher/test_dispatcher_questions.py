"""What the Dispatcher says of its jobs, and the wishes that it carries out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, once

from firesteel.errors import FencingError, JobNotFoundError, JobStateError, NotLeadingError
from firesteel.failure import FailureKind
from firesteel.jobmaster.events import RESULT
from firesteel.status import JobStatus
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.types import JobID

UNKNOWN = JobID("f" * 32)


def test_running_job(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 3.0, 100.0, fails=1, restart={"type": "fixed-delay", "attempts": 3, "delay": "5 s"})
        await cluster.submit(job)
        await cluster.until(lambda: cluster.numbers(job.job_id) == [1, 2])
        await cluster.status(job.job_id, JobStatus.RUNNING)
        graph = await cluster.ask(lambda d: d.request_job(job.job_id))
        assert (graph["status"], graph["attempt"], graph["restarts"], graph["ended_at"]) == ("RUNNING", 2, 1, None)
        assert graph["name"] == "job-1"
        assert [v["name"] for v in graph["vertices"]] == ["i", "o"]
        assert [v["status"] for v in graph["vertices"]] == ["RUNNING", "RUNNING"]
        (exception,) = graph["exceptions"]
        assert (exception["kind"], exception["labels"]) == (FailureKind.DATA.value, {"type": "DATA_ERROR"})
        assert set(graph["timestamps"]) >= {"INITIALIZING", "CREATED", "RUNNING", "FAILING", "RESTARTING"}
        assert graph["duration"] > 0

    once(tmp_path, main)


def test_job_needs_engines_until_it_has_ended_and_keeps_the_node_until_it_is_clean(tmp_path: Path) -> None:
    """D10: a node that ends while a cancelled job is being cleaned up has no reason to leave an engine behind."""

    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, LONG)
        cluster.faults.clears_wait = True
        dispatcher = await cluster.dispatcher()
        assert not dispatcher.busy
        assert not dispatcher.needs_engines
        await cluster.submit(job)
        assert dispatcher.needs_engines
        await cluster.ask(lambda d: d.cancel_job(job.job_id))
        await cluster.result(job.job_id)
        assert not dispatcher.needs_engines
        assert dispatcher.busy
        cluster.faults.clears_wait = False
        await cluster.clean(job.job_id)
        assert not dispatcher.busy

    once(tmp_path, main)


def test_ended_job_is_described_alike_before_and_after_its_clean_up_and_by_the_next_leader(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, fails=1)
        cluster.faults.clears_wait = True
        await cluster.submit(job)
        result = await cluster.result(job.job_id)
        assert result.status is JobStatus.FAILED
        await asyncio.sleep(1)
        early = await cluster.ask(lambda d: d.request_job(job.job_id))
        cluster.faults.clears_wait = False
        await cluster.clean(job.job_id)
        late = await cluster.ask(lambda d: d.request_job(job.job_id))
        assert early == late
        assert (late["status"], late["ended_at"]) == ("FAILED", result.ended_at)
        assert late["failure"]["message"] == "scripted"
        assert len(late["exceptions"]) == 1
        # Another node has no details of it, and tells what the result says.
        await cluster.fail_over()
        elsewhere = await cluster.ask(lambda d: d.request_job(job.job_id))
        shared = ("job_id", "name", "status", "submitted_at", "ended_at", "failure")
        assert {k: elsewhere[k] for k in shared} == {k: late[k] for k in shared}

    once(tmp_path, main)


def test_job_that_ended_under_an_earlier_leader_and_is_not_clean(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, fails=1)
        cluster.faults.clears_wait = True
        await cluster.submit(job)
        await cluster.result(job.job_id)
        await cluster.fail_over()
        graph = await cluster.ask(lambda d: d.request_job(job.job_id))
        assert (graph["status"], graph["failure"]["message"]) == ("FAILED", "scripted")
        assert [v["name"] for v in graph["vertices"]] == ["i", "o"]

    once(tmp_path, main)


def test_unknown_job(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        for call in (
            lambda d: d.request_job(UNKNOWN),
            lambda d: d.request_job_status(UNKNOWN),
            lambda d: d.request_job_result(UNKNOWN),
            lambda d: d.cancel_job(UNKNOWN),
            lambda d: d.stop_job(UNKNOWN, "t"),
            lambda d: d.trigger_checkpoint(UNKNOWN, "t"),
            lambda d: d.trigger_savepoint(UNKNOWN, "t"),
            lambda d: d.report_client_heartbeat(UNKNOWN),
        ):
            with pytest.raises(JobNotFoundError, match=f"no job {UNKNOWN} is known here"):
                await cluster.ask(call)

    once(tmp_path, main)


def test_list_and_overview(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        finished, failed, runs = cluster.job(1), cluster.job(2, fails=1), cluster.job(3, 10_000.0)
        for job in (finished, failed):
            await cluster.submit(job)
            await cluster.result(job.job_id)
        await cluster.running(runs)
        expected = {
            finished.job_id: JobStatus.FINISHED,
            failed.job_id: JobStatus.FAILED,
            runs.job_id: JobStatus.RUNNING,
        }
        for _ in range(2):
            listed = await cluster.ask(lambda d: d.list_jobs())
            assert {j.job_id: j.status for j in listed} == expected
            assert len(listed) == 3
            overview = await cluster.ask(lambda d: d.request_cluster_overview())
            assert overview.jobs == {JobStatus.FINISHED: 1, JobStatus.FAILED: 1, JobStatus.RUNNING: 1}
            await cluster.fail_over()
            await cluster.status(runs.job_id, JobStatus.RUNNING)

    once(tmp_path, main)


def test_result_is_waited_for_and_the_wait_ends_with_the_leadership(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 500.0)
        await cluster.running(job)
        process = await cluster.leader()
        waiting = [await cluster.begin(lambda d: d.request_job_result(job.job_id)) for _ in range(2)]
        waiting[0].cancel()  # a client that went away takes nobody with it
        await asyncio.sleep(10)
        assert not waiting[1].done()
        cluster.runners[process].on_revoke()
        with pytest.raises(NotLeadingError, match="ask the new leader"):
            await asyncio.wait_for(waiting[1], LONG)
        assert cluster.world.live_runs(job.job_id), "the job goes on"

    once(tmp_path, main)


@pytest.mark.parametrize("how", ["cancelled while it waits", "failed"])
def test_end_of_a_job_is_told_only_when_it_is_durable(tmp_path: Path, how: str) -> None:
    async def main(cluster: Cluster) -> None:
        if how == "failed":
            job = cluster.job(1, fails=1)
            cluster.faults.closed.add("results/")
            await cluster.running(job)
        else:
            for number in range(10, 18):  # all slots are taken
                await cluster.running(cluster.job(number, 10_000.0))
            job = cluster.job(1)
            await cluster.submit(job)
            await cluster.status(job.job_id, JobStatus.CREATED)
            cluster.faults.closed |= {"jobs/", "results/"}
            await cluster.begin(lambda d: d.cancel_job(job.job_id))
        await asyncio.sleep(60)
        status = await cluster.ask(lambda d: d.request_job_status(job.job_id))
        listed = {j.job_id: j.status for j in await cluster.ask(lambda d: d.list_jobs())}
        shown = (await cluster.ask(lambda d: d.request_job(job.job_id)))["status"]
        assert not [s for s in (status, listed[job.job_id], JobStatus(shown)) if s.terminal]

    once(tmp_path, main)


# -- cancel ---------------------------------------------------------------------------------------------------------


def test_final_event_says_of_a_job_what_its_details_say(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, fails=1)
        await cluster.leader()
        heard = cluster.runners[await cluster.leader()].dispatcher.events(job.job_id)
        await cluster.submit(job)
        while not (event := await asyncio.wait_for(heard.next(), 60)).final:
            pass
        heard.close()
        details = await cluster.ask(lambda d: d.request_job(job.job_id))
        assert (event.data["status"], event.data["failure"]["message"]) == ("FAILED", "scripted")
        assert set(event.data["result"]) == set(RESULT)
        assert event.data["result"] == {name: details[name] for name in RESULT}

    once(tmp_path, main)


def test_cancel(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 10_000.0)
        await cluster.running(job)
        await cluster.ask(lambda d: d.cancel_job(job.job_id))
        assert cluster.stored(f"jobs/{job.job_id}")["data"]["cancel_requested"] is True
        await cluster.fail_over()
        assert (await cluster.result(job.job_id)).status is JobStatus.CANCELED
        assert cluster.numbers(job.job_id) == [1]
        with pytest.raises(JobStateError, match="is CANCELED; it has ended for good"):
            await cluster.ask(lambda d: d.cancel_job(job.job_id))

    once(tmp_path, main)


def test_cancel_by_a_leader_that_is_none_any_more(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 10_000.0)
        await cluster.running(job)
        cluster.faults.writes.append(("jobs/", FencingError("epoch 1 is not 2")))
        with pytest.raises(NotLeadingError, match="ask the new leader"):
            await cluster.ask(lambda d: d.cancel_job(job.job_id))
        assert cluster.world.live_runs(job.job_id)

    once(tmp_path, main)


# -- clients that fall silent ---------------------------------------------------------------------------------------


def test_job_of_a_silent_client_is_cancelled(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job, other = cluster.job(1, 10_000.0, heartbeat=30.0), cluster.job(2, 10_000.0)
        await cluster.running(other)
        began = cluster.world.now
        await cluster.running(job)
        assert (await cluster.result(job.job_id)).status is JobStatus.CANCELED
        assert 30 <= cluster.world.now - began <= 45
        assert cluster.world.live_runs(other.job_id)

    once(tmp_path, main)


def test_heartbeats_keep_a_job_alive(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 200.0, heartbeat=30.0)
        await cluster.running(job)
        while cluster.world.live_runs(job.job_id):
            await cluster.ask(lambda d: d.report_client_heartbeat(job.job_id))
            await asyncio.sleep(20)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_client_of_a_recovered_job_has_its_time_anew(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 10_000.0, heartbeat=30.0)
        await cluster.running(job)
        await asyncio.sleep(25)
        await cluster.fail_over()
        await asyncio.sleep(25)
        assert cluster.world.live_runs(job.job_id)
        assert (await cluster.result(job.job_id)).status is JobStatus.CANCELED

    once(tmp_path, main)


def test_heartbeat_for_a_job_without_one(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 100.0)
        await cluster.running(job)
        with pytest.raises(JobStateError, match="without a client heartbeat"):
            await cluster.ask(lambda d: d.report_client_heartbeat(job.job_id))

    once(tmp_path, main)


def test_shut_down_is_passed_on_and_jobs_run_on(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 100.0)
        await cluster.running(job)
        await cluster.ask(lambda d: d.shut_down())
        assert cluster.shut_downs == 1
        assert cluster.world.live_runs(job.job_id)

    once(tmp_path, main)


def test_details_of_ended_jobs_go_by_their_age_in_a_cluster_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1)
        await cluster.submit(job)
        await cluster.result(job.job_id)
        await cluster.clean(job.job_id)
        services = (await cluster.dispatcher())._services
        assert job.job_id in services.finished
        monkeypatch.setattr(services.finished, "_max_age", 50.0)
        await cluster.until(lambda: job.job_id not in services.finished, seconds=60)
        assert isinstance(services.finished, ExecutionGraphInfoStore)

    once(tmp_path, main)
