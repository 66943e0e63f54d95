"""Checkpoints, savepoints, stops, disposals: asked for under an id, carried out once, the outcome known to every leader."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, once

from firesteel.errors import (
    InvalidInputError,
    InvalidRequestError,
    JobStateError,
    OperationNotFoundError,
    SavepointError,
)
from firesteel.records import to_json
from firesteel.savepoint.naming import savepoint_location
from firesteel.status import JobStatus
from firesteel.stores.codec import encode
from firesteel.stores.operations import NO_JOB, Operation, OperationKind, OperationStatus
from firesteel.types import JobID


async def outcome(cluster: Cluster, job_id: JobID, trigger: str) -> Operation:
    """How an operation went, once it has ended."""
    found: list[Operation] = []

    async def ended() -> bool:
        found.append(await cluster.ask(lambda d: d.request_operation(job_id, trigger)))
        return found[-1].status is not OperationStatus.IN_PROGRESS

    await cluster.until(ended)
    return found[-1]


def test_checkpoint_completes(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "t1"))
        done = await outcome(cluster, job_id, "t1")
        assert (done.kind, done.status) == (OperationKind.CHECKPOINT, OperationStatus.COMPLETED)
        assert done.result == {"batches": {"o": 1}}
        assert cluster.world.live_runs(job_id)

    once(tmp_path, main)


def test_stop_completes(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        done = await outcome(cluster, job_id, "t1")
        assert done.status is OperationStatus.COMPLETED
        assert done.result["status"] == "FINISHED"
        assert str(done.result["checkpoint"]).endswith(f"/{job_id}")
        assert cluster.world.savepoints == {done.result["location"]: True}
        assert done.result["batches"] == {"o": 1}
        result = await cluster.result(job_id)
        assert (result.status, result.stopped) == (JobStatus.FINISHED, True)

    once(tmp_path, main)


def test_wish_is_durable_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.closed.add("operations/")
        answer = await cluster.begin(lambda d: d.stop_job(job_id, "t1"))
        await asyncio.sleep(60)
        assert not answer.done()
        assert cluster.world.live_runs(job_id)
        cluster.faults.closed.clear()
        await asyncio.wait_for(answer, LONG)
        assert cluster.stored(f"operations/{job_id}/t1")["status"] == "IN_PROGRESS"

    once(tmp_path, main)


def test_same_trigger_id_is_the_same_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.checkpoints_hang = True
        asked = [await cluster.begin(lambda d: d.trigger_checkpoint(job_id, "t1")) for _ in range(3)]
        await asyncio.gather(*asked)
        cluster.faults.checkpoints_hang = False
        first = await outcome(cluster, job_id, "t1")
        await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "t1"))
        assert await outcome(cluster, job_id, "t1") == first
        assert len(cluster.writes_of(f"operations/{job_id}/t1")) == 2, "begun once and ended once"
        with pytest.raises(JobStateError, match="was used for a CHECKPOINT"):
            await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        assert cluster.world.live_runs(job_id)

    once(tmp_path, main)


def test_bad_trigger_id(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        with pytest.raises(InvalidInputError, match="is not a valid trigger id"):
            await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "../t"))

    once(tmp_path, main)


def test_unknown_operation(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        with pytest.raises(OperationNotFoundError, match=f"nothing was triggered for job {job_id} under the id t9"):
            await cluster.ask(lambda d: d.request_operation(job_id, "t9"))

    once(tmp_path, main)


def test_savepoint_of_a_running_job(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp/"))
        done = await outcome(cluster, job_id, "t1")
        assert (done.kind, done.status, done.error) == (OperationKind.SAVEPOINT, OperationStatus.COMPLETED, "")
        location = savepoint_location("/sp", job_id, "t1")
        assert done.result == {"location": location, "batches": {"o": 1}, "sizes": {"o": 64}}
        assert cluster.world.savepoints == {location: True}
        assert cluster.world.live_runs(job_id)
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t2"))
        other = await outcome(cluster, job_id, "t2")
        default = cluster.configuration.state.savepoints_dir
        assert other.result["location"] == savepoint_location(default, job_id, "t2")

    once(tmp_path, main)


def test_savepoint_with_cancel(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp", cancel=True))
        assert (await outcome(cluster, job_id, "t1")).status is OperationStatus.COMPLETED
        assert (await cluster.result(job_id)).status is JobStatus.CANCELED
        assert list(cluster.world.savepoints.values()) == [True]

    once(tmp_path, main)


def test_job_that_is_to_be_cancelled_with_a_savepoint_runs_on_without_one(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.savepoints.append(SavepointError("the disk is full"))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp", cancel=True))
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.FAILED, "the disk is full")
        assert cluster.world.live_runs(job_id)
        assert cluster.world.savepoints == {}, "what was prepared is removed"

    once(tmp_path, main)


def test_savepoint_of_a_job_that_ends_meanwhile(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.savepoints_hang = True
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp"))
        await cluster.ask(lambda d: d.cancel_job(job_id))
        await cluster.result(job_id)
        cluster.faults.savepoints_hang = False
        done = await outcome(cluster, job_id, "t1")
        assert done.status is OperationStatus.FAILED
        assert "the job ended before its savepoint was complete" in done.error

    once(tmp_path, main)


def test_trigger_id_of_one_savepoint_is_not_that_of_another(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp"))
        first = await outcome(cluster, job_id, "t1")
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp"))
        assert await outcome(cluster, job_id, "t1") == first
        with pytest.raises(JobStateError, match=r"was used for a SAVEPOINT with target=/sp, .* use a new trigger id"):
            await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/elsewhere"))
        with pytest.raises(JobStateError, match="use a new trigger id"):
            await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp", cancel=True))
        assert cluster.world.live_runs(job_id)

    once(tmp_path, main)


@pytest.mark.parametrize("target", ["relative", "ftp://host/x", "/a\0b"])
def test_target_where_no_savepoint_can_be(tmp_path: Path, target: str) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        with pytest.raises(InvalidRequestError, match="target-directory"):
            await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", target))
        with pytest.raises(InvalidRequestError, match="target-directory"):
            await cluster.ask(lambda d: d.stop_job(job_id, "t1", target))
        with pytest.raises(InvalidRequestError, match="savepoint-path"):
            await cluster.ask(lambda d: d.dispose_savepoint(target, "t1"))
        with pytest.raises(OperationNotFoundError):
            await cluster.ask(lambda d: d.request_operation(job_id, "t1"))

    once(tmp_path, main)


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("step", range(1, 6))
@pytest.mark.parametrize("side", ["before", "after"])
def test_savepoint_survives_a_crash_at_any_step(tmp_path: Path, step: int, side: str, cancel: bool) -> None:
    """I19: once it was acknowledged it is taken, whoever leads, and at the same place."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        leader = await cluster.leader()
        leader.crash_at = (leader.steps + step, side)
        cluster.start_node()
        asked = await cluster.begin(lambda d: d.trigger_savepoint(job_id, "t1", "/sp", cancel=cancel))
        await asyncio.wait([asked, leader.died], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        durable = bool(cluster.stored(f"operations/{job_id}/t1"))
        if not durable:
            assert not cluster.world.savepoints
            await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp", cancel=cancel))
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.COMPLETED, "")
        assert cluster.world.savepoints == {done.result["location"]: True}
        if cancel:
            assert (await cluster.result(job_id)).status is JobStatus.CANCELED
        else:
            assert cluster.world.live_runs(job_id)
        assert cluster.numbers(job_id) == [1]

    once(tmp_path, main)


def test_stop_whose_savepoint_cannot_be_prepared_leaves_the_job_running(tmp_path: Path) -> None:
    """I14."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.prepares.append(SavepointError("the directory cannot be written to"))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1", "/sp"))
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.FAILED, "the directory cannot be written to")
        await asyncio.sleep(60)
        assert cluster.world.live_runs(job_id)

    once(tmp_path, main)


def test_savepoint_of_a_stopped_job_is_tried_again(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.savepoints += [OSError("in passing"), SavepointError("again")]
        await cluster.ask(lambda d: d.stop_job(job_id, "t1", "/sp"))
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.COMPLETED, "")
        assert cluster.world.savepoints == {done.result["location"]: True}

        other = await cluster.running(cluster.job(2, streaming=True))
        cluster.faults.savepoints += [SavepointError("no space left")] * 100
        await cluster.ask(lambda d: d.stop_job(other, "t1", "/sp"))
        failed = await outcome(cluster, other, "t1")
        assert failed.status is OperationStatus.FAILED
        assert "the job has stopped, but its savepoint could not be taken: no space left" in failed.error
        assert f"checkpoints are kept in {cluster.configuration.state.checkpoints_dir}/{other}" in failed.error

    once(tmp_path, main)


def test_stop_without_savepoint_keeps_the_checkpoint_only(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1", savepoint=False))
        done = await outcome(cluster, job_id, "t1")
        assert done.status is OperationStatus.COMPLETED
        assert set(done.result) == {"status", "checkpoint"}
        assert cluster.world.savepoints == {}

    once(tmp_path, main)


def test_disposal(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1", "/sp"))
        location = str((await outcome(cluster, job_id, "t1")).result["location"])
        await cluster.ask(lambda d: d.dispose_savepoint(f"file://{location}/", "d1"))
        done = await outcome(cluster, NO_JOB, "d1")
        assert (done.kind, done.status) == (OperationKind.DISPOSAL, OperationStatus.COMPLETED)
        assert done.result == {"location": location}
        assert cluster.world.savepoints == {}
        await cluster.ask(lambda d: d.dispose_savepoint(location, "d1"))
        assert await outcome(cluster, NO_JOB, "d1") == done, "a repetition of the same wish"
        await cluster.ask(lambda d: d.dispose_savepoint(location, "d2"))
        again = await outcome(cluster, NO_JOB, "d2")
        assert (again.status, again.error) == (OperationStatus.FAILED, f"there is no savepoint at {location}")

    once(tmp_path, main)


@pytest.mark.parametrize("step", range(1, 4))
@pytest.mark.parametrize("side", ["before", "after"])
def test_disposal_survives_a_crash_at_any_step(tmp_path: Path, step: int, side: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.world.savepoints["/sp/s"] = True
        leader = await cluster.leader()
        leader.crash_at = (leader.steps + step, side)
        cluster.start_node()
        asked = await cluster.begin(lambda d: d.dispose_savepoint("/sp/s", "d1"))
        await asyncio.wait([asked, leader.died], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if not cluster.stored(f"operations/{NO_JOB}/d1"):
            await cluster.ask(lambda d: d.dispose_savepoint("/sp/s", "d1"))
        done = await outcome(cluster, NO_JOB, "d1")
        assert (done.status, done.error) == (OperationStatus.COMPLETED, "")
        assert cluster.world.savepoints == {}

    once(tmp_path, main)


def test_batch_job_can_do_none_of_it(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, 1000.0))
        with pytest.raises(JobStateError, match="cannot have a savepoint; only streaming graphs can"):
            await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1"))
        with pytest.raises(JobStateError, match=r"cannot be stopped.*; cancel it instead"):
            await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        with pytest.raises(JobStateError, match="has no checkpoints; only streaming graphs do"):
            await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "t1"))

    once(tmp_path, main)


def test_job_that_does_not_run_can_do_none_of_it(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        restart = {"type": "fixed-delay", "attempts": 3, "delay": "500 s"}
        job_id = await cluster.submit(cluster.job(1, 1.0, streaming=True, fails=2, restart=restart))
        await cluster.status(job_id, JobStatus.RESTARTING)
        with pytest.raises(JobStateError, match="is RESTARTING; only running jobs can be stopped"):
            await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        with pytest.raises(JobStateError, match="is RESTARTING; a savepoint needs a running job"):
            await cluster.ask(lambda d: d.trigger_savepoint(job_id, "t1"))
        with pytest.raises(JobStateError, match="is RESTARTING; a checkpoint needs a running job"):
            await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "t1"))

    once(tmp_path, main)


def test_stop_of_a_job_that_fails_meanwhile(tmp_path: Path) -> None:
    """The wish was for that attempt; the strategy decides about the next."""

    async def main(cluster: Cluster) -> None:
        restart = {"type": "fixed-delay", "attempts": 3, "delay": "5 s"}
        job_id = await cluster.running(cluster.job(1, 1e6, streaming=True, restart=restart))
        (run,) = cluster.world.live_runs(job_id)
        assert run.engine_id is not None
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        cluster.world.kill_engine(run.engine_id)
        done = await outcome(cluster, job_id, "t1")
        assert done.status is OperationStatus.FAILED
        assert "failed while it was stopping, and its restart strategy restarts it" in done.error
        await cluster.until(lambda: cluster.numbers(job_id) == [1, 2])

    once(tmp_path, main)


def test_stop_of_a_job_that_is_cancelled_meanwhile(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        await cluster.until(lambda: cluster.stored(f"jobs/{job_id}")["data"]["stop_requested"] is True)
        await cluster.ask(lambda d: d.cancel_job(job_id))
        assert (await cluster.result(job_id)).status is JobStatus.CANCELED
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.FAILED, "the job ended CANCELED")
        assert cluster.world.savepoints == {}, "what was prepared is removed"

    once(tmp_path, main)


@pytest.mark.parametrize("step", range(1, 11))
@pytest.mark.parametrize("side", ["before", "after"])
def test_stop_survives_a_crash_at_any_step(tmp_path: Path, step: int, side: str) -> None:
    """I19: once it was acknowledged it happens, whoever leads."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        leader = await cluster.leader()
        leader.crash_at = (leader.steps + step, side)
        cluster.start_node()
        asked = await cluster.begin(lambda d: d.stop_job(job_id, "t1"))
        await asyncio.wait([asked, leader.died], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        durable = bool(cluster.stored(f"operations/{job_id}/t1"))
        # The answer to a stop cannot be lost: nothing crashes after that step.
        await cluster.until(lambda: not leader.alive or (step, side) == (4, "after"))
        if not durable:
            assert cluster.world.live_runs(job_id)
            await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.COMPLETED, "")
        result = await cluster.result(job_id)
        assert (result.status, result.stopped) == (JobStatus.FINISHED, True)
        assert cluster.world.savepoints == {done.result["location"]: True}
        assert cluster.numbers(job_id) == [1]

    once(tmp_path, main)


def test_stop_that_was_done_while_nobody_led_gives_its_savepoint(tmp_path: Path) -> None:
    """I14: the job has ended by the stop when the next leader looks, and its result takes a while to be durable."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.closed = {"results/"}
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        await cluster.until(lambda: not cluster.world.live_runs(job_id))
        cluster.faults.prepares_hang = True
        await cluster.fail_over()
        runner = (await cluster.dispatcher())._table.live_runner(job_id)
        assert runner is not None
        await cluster.until(lambda: runner.state.status is JobStatus.FINISHED)
        cluster.faults.prepares_hang = False
        await asyncio.sleep(5)
        cluster.faults.closed = set()
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.COMPLETED, "")
        assert cluster.world.savepoints == {done.result["location"]: True}
        assert (await cluster.result(job_id)).stopped

    once(tmp_path, main)


def test_checkpoint_survives_a_crash(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.checkpoints_hang = True
        await cluster.ask(lambda d: d.trigger_checkpoint(job_id, "t1"))
        await cluster.fail_over()
        cluster.faults.checkpoints_hang = False
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, done.error) == (OperationStatus.COMPLETED, "")

    once(tmp_path, main)


def test_outcome_is_known_to_the_next_leader_for_a_while(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1", savepoint=False))
        done = await outcome(cluster, job_id, "t1")
        await cluster.clean(job_id)
        await cluster.fail_over()
        assert await cluster.ask(lambda d: d.request_operation(job_id, "t1")) == done
        await asyncio.sleep(130)
        with pytest.raises(OperationNotFoundError):
            await cluster.ask(lambda d: d.request_operation(job_id, "t1"))
        assert not cluster.stored(f"operations/{job_id}/t1")

    once(tmp_path, main, dispatcher__operation_retention="120 s")


def test_wish_of_an_earlier_version_is_the_same_wish(tmp_path: Path) -> None:
    """It does not say what was asked for in particular, and no savepoint was."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        wish = to_json(Operation(job_id, "t1", OperationKind.STOP, 1.0))
        del wish["asked"], wish["location"]
        (await cluster.leader()).crash()
        cluster.put(f"operations/{job_id}/t1", encode(wish))
        cluster.start_node()
        await cluster.ask(lambda d: d.stop_job(job_id, "t1"))
        done = await outcome(cluster, job_id, "t1")
        assert (done.status, set(done.result)) == (OperationStatus.COMPLETED, {"status", "checkpoint"})

    once(tmp_path, main)
