"""Faults in the wrong moment: the job that they hit ends or goes on, the others do not notice, and the node lives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, FaultyExecutor, FaultyStore, once, play

from firesteel.attempts.attempt import AttemptResult
from firesteel.dispatcher.runner import RECONSIDER_SECONDS
from firesteel.errors import DuplicateJobError, EngineLostError, JobStateError, NotLeadingError
from firesteel.failure import FailureKind
from firesteel.ha.protocols import Stored
from firesteel.jobmaster.executor import Presence
from firesteel.records import to_json
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import OperationStatus
from firesteel.types import AttemptId, JobID

_RESOURCES = {"cpu": 1, "memory": "2g"}
LARGE = [
    {"kind": "source", "name": "i", "format": "csv", "path": "/x", "resources": _RESOURCES},
    {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": "/y", "resources": _RESOURCES},
]
"""Of a job that needs another kind of engine than the others."""
GARBAGE = b'{"v": 1, "half of a rec'


def silent(times: int) -> list[Exception]:
    return [EngineLostError("it does not answer") for _ in range(times)]


def engine_of(cluster: Cluster, job_id: JobID) -> str | None:
    [run] = cluster.world.live_runs(job_id)
    return run.engine_id


def stopped_engines(cluster: Cluster) -> list[str]:
    return [e.subject for e in cluster.world.effects if e.what == "stop-engine"]


# -- jobs that are being parked -----------------------------------------------------------------------------------


async def parking(cluster: Cluster, fences: list[Exception]) -> Submission:
    """A job whose record cannot be read, under a new leader that cannot end its attempt yet."""
    bad = cluster.job(1, 3000.0, name="bad")
    await cluster.running(bad)
    cluster.put(f"jobs/{bad.job_id}", GARBAGE)
    cluster.faults.fences = fences
    await cluster.fail_over()
    return bad


async def is_parked(cluster: Cluster, job_id: JobID) -> None:
    result = await cluster.result(job_id)
    assert (result.status, result.note) == (JobStatus.FAILED, "parked")
    await cluster.clean(job_id)
    assert not cluster.world.live_runs(job_id)
    assert cluster.numbers(job_id) == [1]
    assert await cluster.ask(lambda d: d.request_job_status(job_id)) is JobStatus.FAILED


def test_resubmission_of_a_job_that_is_being_parked_waits_for_its_end(tmp_path: Path) -> None:
    """The client's retry (I3) must not run a job anew of which nobody knows how far it came."""

    async def main(cluster: Cluster) -> None:
        bad = await parking(cluster, [OSError("not now") for _ in range(6)])
        again = await cluster.begin(lambda d: d.submit_job(bad))
        await asyncio.sleep(1)
        assert not again.done()
        assert cluster.faults.fences, "it is being parked still"
        with pytest.raises(DuplicateJobError, match="has ended"):
            await asyncio.wait_for(again, LONG)
        await is_parked(cluster, bad.job_id)

    once(tmp_path, main)


def test_job_that_is_being_parked_is_shown_and_cannot_be_told_anything(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        bad = await parking(cluster, [OSError("not now") for _ in range(6)])
        assert await cluster.ask(lambda d: d.request_job_status(bad.job_id)) is JobStatus.RECONCILING
        listed = await cluster.ask(lambda d: d.list_jobs())
        assert [(j.job_id, j.status) for j in listed] == [(bad.job_id, JobStatus.RECONCILING)]
        with pytest.raises(JobStateError, match="cannot be read; the job is being ended"):
            await cluster.ask(lambda d: d.cancel_job(bad.job_id))
        assert cluster.faults.fences, "it is being parked still"
        await is_parked(cluster, bad.job_id)

    once(tmp_path, main)


def test_parked_job_on_an_engine_that_never_answers_ends_all_the_same(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        bad = await parking(cluster, silent(100_000))
        await is_parked(cluster, bad.job_id)

    once(tmp_path, main)


@pytest.mark.parametrize("how", ["closed", "revoked"])
def test_whoever_waits_for_a_job_that_is_being_parked_hears_that_leadership_ended(tmp_path: Path, how: str) -> None:
    async def main(cluster: Cluster) -> None:
        bad = await parking(cluster, [OSError("not now") for _ in range(1000)])
        leader = await cluster.leader()
        waiting = await cluster.begin(lambda d: d.request_job_result(bad.job_id))
        await asyncio.sleep(1)
        assert not waiting.done()
        if how == "closed":
            await asyncio.wait_for(cluster._inside(leader, cluster.runners[leader].close()), LONG)
        else:
            cluster.runners[leader].on_revoke()
        done, _ = await asyncio.wait({waiting}, timeout=5)
        assert done
        assert not waiting.cancelled()
        with pytest.raises(NotLeadingError):
            await waiting

    once(tmp_path, main)


# -- records, directories, stores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_id", [["x"], {"x": 1}, 7, None])
def test_record_with_an_engine_that_is_no_name(tmp_path: Path, engine_id: Any) -> None:
    async def main(cluster: Cluster) -> None:
        bad, good = cluster.job(1, 300.0, name="bad"), cluster.job(2, 300.0, name="good")
        await cluster.running(bad)
        await cluster.running(good)
        record = cluster.stored(f"jobs/{bad.job_id}")
        assert isinstance(record["data"]["engine_id"], str)
        record["data"]["engine_id"] = engine_id
        cluster.put(f"jobs/{bad.job_id}", json.dumps(record).encode())
        await cluster.fail_over()
        assert (await cluster.result(good.job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(good.job_id) == [1]
        assert (await cluster.result(bad.job_id)).status.terminal
        await cluster.clean(bad.job_id, good.job_id)

    once(tmp_path, main)


def test_attempt_that_cannot_be_looked_for_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, recovered = FaultyExecutor.find, ResourceManager.recovered
    calls: list[float] = []

    async def main(cluster: Cluster) -> None:
        bad = cluster.job(1, 3000.0)
        await cluster.running(bad)

        async def denied(self: FaultyExecutor, attempt: AttemptId) -> Presence:
            if attempt.job_id == bad.job_id:
                raise PermissionError(13, "Permission denied", "driver.lock")
            return await find(self, attempt)

        def noted(self: ResourceManager) -> None:
            calls.append(cluster.world.now)
            recovered(self)

        monkeypatch.setattr(FaultyExecutor, "find", denied)
        monkeypatch.setattr(ResourceManager, "recovered", noted)
        await cluster.fail_over()
        began = cluster.world.now
        await cluster.until(lambda: bool(calls), seconds=60)
        assert calls[0] - began < 10
        # Another kind of engine, for which the leader must be free to act.
        other = cluster.job(2, 5.0, vertices=LARGE)
        await cluster.submit(other)
        assert (await cluster.result(other.job_id)).status is JobStatus.FINISHED
        assert cluster.world.live_runs(bad.job_id)

    once(tmp_path, main)


def test_slot_of_a_recovered_job_is_taken_back_before_anything_is_asked_about_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of another kind waits for the room of its engine, which seems idle until its job has been recovered."""
    get = FaultyStore.get
    asked: list[str] = []

    async def main(cluster: Cluster) -> None:
        cluster.start_node()
        running = cluster.job(1, 300.0)
        await cluster.running(running)
        engine = engine_of(cluster, running.job_id)
        waiting = cluster.job(2, 5.0, vertices=LARGE)
        await cluster.submit(waiting)
        await asyncio.sleep(5)
        assert not cluster.numbers(waiting.job_id)

        async def noted(self: FaultyStore, path: str) -> Stored | None:
            asked.append(path)
            return await get(self, path)

        monkeypatch.setattr(FaultyStore, "get", noted)
        await cluster.fail_over()
        await asyncio.sleep(60)
        assert [path for path in asked if not path.startswith("secrets")] == []
        assert stopped_engines(cluster) == []
        assert engine_of(cluster, running.job_id) == engine
        assert (await cluster.result(running.job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(running.job_id) == [1]
        assert (await cluster.result(waiting.job_id)).status is JobStatus.FINISHED

    play(tmp_path, main, engine__max="1")


# -- operations and results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "commits"), ValueError("no such scheme")], ids=repr
)
def test_checkpoints_that_cannot_be_listed_fail_the_operation_and_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def denied(_self: FaultyExecutor, _attempt: AttemptId) -> dict[str, int]:
        raise error

    monkeypatch.setattr(FaultyExecutor, "checkpoint", denied)

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        leader = await cluster.leader()
        await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "t"))

        async def ended() -> bool:
            found = await cluster.ask(lambda d: d.request_operation(job_id, "t"))
            return found.status is not OperationStatus.IN_PROGRESS

        await cluster.until(ended)
        operation = await cluster.ask(lambda d: d.request_operation(job_id, "t"))
        assert operation.status is OperationStatus.FAILED
        assert str(error) in str(operation.error)
        assert cluster.world.live_runs(job_id)
        assert await cluster.leader() is leader

    once(tmp_path, main)


def test_first_of_two_results_stays_and_the_node_lives(tmp_path: Path) -> None:
    """Somebody else's hand, or a leader that was thought dead: what is final is final (I5)."""

    async def main(cluster: Cluster) -> None:
        twice, other = cluster.job(1, 20.0), cluster.job(2, 60.0)
        await cluster.running(twice)
        await cluster.running(other)
        there = JobResult(
            job_id=twice.job_id,
            name="first",
            status=JobStatus.CANCELED,
            failure=None,
            submitted_at=1.0,
            started_at=None,
            ended_at=2.0,
            attempts=1,
            restarts=0,
            digest=twice.digest,
        )
        cluster.put(f"results/{twice.job_id}", json.dumps({"v": 1, "dirty": True, **to_json(there)}).encode())
        assert await cluster.result(twice.job_id) == there
        await cluster.clean(twice.job_id)
        assert cluster.stored(f"results/{twice.job_id}")["name"] == "first"
        assert await cluster.ask(lambda d: d.request_job_status(twice.job_id)) is JobStatus.CANCELED
        assert (await cluster.result(other.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_file_of_one_attempt_that_nobody_understands_ends_its_job_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, fence = FaultyExecutor.wait, FaultyExecutor.fence
    left = [3]

    async def main(cluster: Cluster) -> None:
        bad, good = cluster.job(1, 300.0, name="bad"), cluster.job(2, 300.0, name="good")
        await cluster.running(bad)
        await cluster.running(good)

        async def torn_wait(self: FaultyExecutor, attempt: AttemptId) -> AttemptResult:
            if attempt.job_id == bad.job_id:
                json.loads('{"state": "FAI')
            return await wait(self, attempt)

        async def torn_fence(self: FaultyExecutor, attempt: AttemptId, **more: Any) -> AttemptResult:
            if attempt.job_id == bad.job_id and left[0]:
                left[0] -= 1
                json.loads('{"state": "FAI')
            return await fence(self, attempt, **more)

        monkeypatch.setattr(FaultyExecutor, "wait", torn_wait)
        monkeypatch.setattr(FaultyExecutor, "fence", torn_fence)
        await cluster.fail_over()
        result = await cluster.result(bad.job_id)
        assert result.status is JobStatus.FAILED
        assert result.failure is not None
        assert result.failure.kind is FailureKind.INTERNAL
        assert not cluster.world.live_runs(bad.job_id)
        assert (await cluster.result(good.job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(good.job_id) == [1]

    once(tmp_path, main)


# -- doubt --------------------------------------------------------------------------------------------------------


def test_moment_of_doubt_costs_a_recovery_and_not_the_cluster(tmp_path: Path) -> None:
    """The lease is renewed all the time, so no other node can take the place of one that serves nobody."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, 300.0))
        leader = await cluster.leader()
        epoch, first = leader.epoch, await cluster.dispatcher()
        cluster.start_node()
        leader.election_.doubt_until = cluster.world.now + 0.3
        with pytest.raises(NotLeadingError):
            await cluster.ask(lambda d: d.cancel_job(job_id))
        with pytest.raises(NotLeadingError):
            assert cluster.runners[leader].dispatcher
        await asyncio.sleep(RECONSIDER_SECONDS + 5)
        second = cluster.runners[leader].dispatcher
        assert second is not first
        assert (cluster.world.leader, leader.epoch) == (leader, epoch)
        assert cluster.numbers(job_id) == [1]
        await cluster.ask(lambda d: d.cancel_job(job_id))
        assert (await cluster.result(job_id)).status is JobStatus.CANCELED

    once(tmp_path, main)


def test_doubt_of_a_housekeeper_is_no_end_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NotLeadingError out of a task is the same news as a FencingError."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, 300.0))
        leader = await cluster.leader()
        dispatcher = await cluster.dispatcher()

        async def nobody() -> None:
            raise NotLeadingError("this node looks after the job no more")

        dispatcher._tasks.start(nobody(), "housekeeping")
        await asyncio.sleep(RECONSIDER_SECONDS + 5)
        assert cluster.runners[leader].dispatcher is not dispatcher
        assert (await cluster.result(job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(job_id) == [1]

    once(tmp_path, main)
