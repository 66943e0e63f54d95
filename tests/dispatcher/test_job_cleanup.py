"""After the end of a job: ordered steps, repeated until they succeed, and nothing left but the result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, once

from firesteel.concurrency import Backoff
from firesteel.config import load_configuration
from firesteel.dispatcher.cleanup import CleanupStep, CleanupStrategy, ResourceCleaner
from firesteel.errors import FencingError, FiresteelError, JobNotFoundError, StoreBrokenError
from firesteel.status import JobStatus
from firesteel.stores.history import HistoryArchivist
from firesteel.testing.virtual_time import run_in_virtual_time as run
from firesteel.types import JobID

JOB = JobID("0" * 31 + "1")


class Steps:
    """Steps that fail as often as they are told to."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.error: type[BaseException] = OSError
        self.done: list[str] = []

    def cleaner(self, *names: str) -> ResourceCleaner:
        return ResourceCleaner([CleanupStep(n, self._step(n)) for n in names], CleanupStrategy(Backoff(1.0, 8.0)))

    def _step(self, name: str) -> Any:
        async def step(job_id: JobID) -> None:
            assert job_id == JOB
            self.done.append(name)
            if self.failures.get(name, 0):
                self.failures[name] -= 1
                raise self.error(f"{name} failed")

        return step


def test_steps_run_in_order_and_from_the_first_again_when_one_fails() -> None:
    async def main() -> None:
        steps = Steps(b=2, c=1)
        await steps.cleaner("a", "b", "c").clean(JOB)
        assert steps.done == ["a", "b", "a", "b", "a", "b", "c", "a", "b", "c"]

    run(main)


@pytest.mark.parametrize(
    ("settings", "tries", "seconds"),
    [
        ({"type": "none"}, 1, 0),
        ({"type": "fixed-delay", "fixed-delay.delay": "2 s", "fixed-delay.attempts": "3"}, 4, 6),
        ({"type": "exponential-delay", "exponential-delay.attempts": "3"}, 4, 7),
    ],
)
def test_clean_up_is_given_up_as_the_strategy_says(
    tmp_path: Path, settings: dict[str, str], tries: int, seconds: float
) -> None:
    options = {"data.dir": str(tmp_path), **{f"cleanup-strategy.{k}": v for k, v in settings.items()}}
    configuration = load_configuration(overrides=options, environ={"HOME": str(tmp_path)}, cwd=tmp_path)

    async def main() -> None:
        steps = Steps(a=100)
        cleaner = ResourceCleaner(
            [CleanupStep("a", steps._step("a"))], CleanupStrategy.of(configuration.cleanup_strategy)
        )
        assert not await cleaner.clean(JOB)
        assert steps.done == ["a"] * tries
        assert seconds * 0.8 <= asyncio.get_running_loop().time() <= seconds

    run(main)


def test_strategy_without_a_limit_never_gives_up(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    options = load_configuration(overrides={"data.dir": str(tmp_path)}, environ=environ, cwd=tmp_path).cleanup_strategy

    async def main() -> None:
        steps = Steps(a=50)
        assert await ResourceCleaner([CleanupStep("a", steps._step("a"))], CleanupStrategy.of(options)).clean(JOB)
        assert len(steps.done) == 51

    run(main)


def test_pauses_grow() -> None:
    async def main() -> None:
        steps = Steps(a=6)
        await steps.cleaner("a").clean(JOB)
        # 1, 2, 4, 8, 8, 8, each shortened by a fifth at most.
        assert 31 * 0.8 <= asyncio.get_running_loop().time() <= 31

    run(main)


def test_bug_in_a_step_is_repeated_too_and_names_the_step(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        steps = Steps(b=1)
        steps.error = ZeroDivisionError
        await steps.cleaner("a", "b").clean(JOB)
        assert steps.done == ["a", "b", "a", "b"]

    run(main)
    assert f"the clean-up of job {JOB} failed and will be tried again" in caplog.text
    assert "b failed" in caplog.text


@pytest.mark.parametrize("error", [FencingError, asyncio.CancelledError])
def test_lost_leadership_ends_it(error: type[BaseException]) -> None:
    async def main() -> None:
        steps = Steps(b=1)
        steps.error = error
        with pytest.raises(error):
            await steps.cleaner("a", "b", "c").clean(JOB)
        assert steps.done == ["a", "b"]

    run(main)


# -- in a cluster ---------------------------------------------------------------------------------------------------


async def ended(cluster: Cluster, number: int = 1, **more: Any) -> JobID:
    job_id = await cluster.running(cluster.job(number, **more))
    await cluster.result(job_id)
    return job_id


def left_of(cluster: Cluster, job_id: JobID) -> list[str]:
    return sorted(p for p in cluster.world.data if job_id in p)


def order_of_writes(cluster: Cluster, job_id: JobID) -> list[str]:
    """What happened to the job's records from its end on."""
    told = []
    for _, _, _, path, value in cluster.world.writes:
        if path.endswith(job_id):
            dirty = "" if value is None or b'"dirty"' not in value else f" dirty={json.loads(value)['dirty']}"
            told.append(f"{'delete' if value is None else 'put'} {path.partition('/')[0]}{dirty}")
    return told[told.index("put results dirty=True") :]


def test_result_is_durable_before_anything_is_cleaned_and_clean_after_all(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job_id = await ended(cluster)
        await cluster.clean(job_id)
        assert order_of_writes(cluster, job_id) == [
            "put results dirty=True",
            "delete jobs",
            "delete graphs",
            "put results dirty=False",
        ]
        assert left_of(cluster, job_id) == [f"results/{job_id}"]
        assert cluster.cleared == [job_id]
        assert {a.number for a in cluster.world.forgotten} == {1}

    once(tmp_path, main)


FAULTS: dict[str, Any] = {
    "outputs": lambda f: f.clears.extend([FiresteelError("staging is locked")] * 3),
    "attempts": lambda f: f.forgets.extend([OSError(39, "Directory not empty")] * 3),
    "record": lambda f: f.writes.extend([("jobs/", StoreBrokenError("the disk is full"))] * 3),
    "graph": lambda f: f.writes.extend([("graphs/", StoreBrokenError("the disk is full"))] * 3),
}


@pytest.mark.parametrize("step", FAULTS)
def test_step_that_fails_three_times_is_repeated_and_later_ones_wait(tmp_path: Path, step: str) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 5.0)
        await cluster.running(job)
        FAULTS[step](cluster.faults)
        other = cluster.job(2, 5.0)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED
        await asyncio.sleep(2.5)
        assert cluster.stored(f"results/{job.job_id}")["dirty"] is True
        assert f"graphs/{job.job_id}" in cluster.world.data
        await cluster.clean(job.job_id)
        await cluster.submit(other)
        await cluster.result(other.job_id)
        await cluster.clean(other.job_id)
        assert left_of(cluster, job.job_id) == [f"results/{job.job_id}"]

    once(tmp_path, main)


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("side", ["before", "after"])
def test_crash_in_the_middle(tmp_path: Path, step: int, side: str) -> None:
    """The next leader begins again at the first step (I12), and the result is the one that was written (I5)."""

    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 10.0, fails=1)
        await cluster.running(job)
        leader = await cluster.leader()
        leader.crash_at = (leader.steps + step, side)
        cluster.start_node()
        await cluster.until(lambda: not leader.alive, seconds=60)
        await cluster.clean(job.job_id)
        assert left_of(cluster, job.job_id) == [f"results/{job.job_id}"]
        assert cluster.stored(f"results/{job.job_id}")["status"] == "FAILED"
        assert cluster.cleared.count(job.job_id) >= 1
        assert cluster.numbers(job.job_id) == [1]
        assert {a.number for a in cluster.world.forgotten} == {1}
        assert (await cluster.ask(lambda d: d.request_job(job.job_id)))["status"] == "FAILED"

    once(tmp_path, main)


def test_operations_stay_after_their_job_is_clean(tmp_path: Path) -> None:
    """Their outcome can be asked for until `dispatcher.operation-retention` is over."""

    async def main(cluster: Cluster) -> None:
        job_id = await cluster.running(cluster.job(1, streaming=True))
        await cluster.ask(lambda d: d.stop_job(job_id, "t1", savepoint=False))
        await cluster.clean(job_id)
        assert left_of(cluster, job_id) == [f"operations/{job_id}/t1", f"results/{job_id}"]
        await asyncio.sleep(LONG)
        assert left_of(cluster, job_id) == [f"results/{job_id}"]

    once(tmp_path, main)


def test_only_so_many_results_are_kept(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        jobs = []
        for number in range(1, 6):
            jobs.append(await ended(cluster, number))
            await cluster.clean(jobs[-1])
        results = [p for p in cluster.world.data if p.startswith("results/")]
        assert results == [f"results/{j}" for j in jobs[-3:]]
        listed = await cluster.ask(lambda d: d.list_jobs())
        assert sorted(j.job_id for j in listed) == jobs[-3:]
        # A new leader remembers no more than that either, and a forgotten id may be used again.
        await cluster.fail_over()
        assert sorted(j.job_id for j in await cluster.ask(lambda d: d.list_jobs())) == jobs[-3:]
        await cluster.submit(cluster.job(1))

    once(tmp_path, main, dispatcher__job_result_retention="3")


def test_dirty_results_are_never_forgotten(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.faults.clears_wait = True
        jobs = [await ended(cluster, number) for number in (1, 2, 3)]
        await asyncio.sleep(LONG)
        assert all(cluster.stored(f"results/{j}")["dirty"] for j in jobs)
        cluster.faults.clears_wait = False
        await cluster.until(lambda: len([p for p in cluster.world.data if p.startswith("results/")]) == 1)
        assert sorted(cluster.cleared) == jobs

    once(tmp_path, main, dispatcher__job_result_retention="1")


class Archive(HistoryArchivist):
    """Somewhere that is out of reach for a while."""

    def __init__(self, failures: int) -> None:
        super().__init__("nowhere://")
        self.failures = failures
        self.kept: dict[JobID, Any] = {}

    async def archive(self, job_id: JobID, data: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(5, "the archive is out of reach")
        self.kept[job_id] = data

    async def read_archive(self, job_id: JobID) -> dict[str, Any] | None:
        return self.kept.get(job_id)


def test_archive_that_is_out_of_reach_is_tried_again(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        archive = cluster.archivist = Archive(3)
        await cluster.fail_over()
        job_id = await ended(cluster)
        await cluster.clean(job_id)
        assert archive.kept[job_id]["status"] == "FINISHED"
        shown = await cluster.ask(lambda d: d.request_job(job_id))
        assert archive.kept[job_id] == {**shown, "operations": []}

    once(tmp_path, main)


def test_archive_is_written_by_the_next_leader_if_the_first_could_not(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        archive = cluster.archivist = Archive(10**6)
        await cluster.fail_over()
        job_id = await ended(cluster)
        await asyncio.sleep(10)
        archive.failures = 0
        await cluster.fail_over()
        await cluster.clean(job_id)
        assert archive.kept[job_id]["status"] == "FINISHED"

    once(tmp_path, main)


def test_archive_waits_for_the_savepoint_of_a_stop_and_has_what_was_triggered(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        archive = cluster.archivist = Archive(0)
        await cluster.fail_over()
        job_id = await cluster.running(cluster.job(1, streaming=True))
        cluster.faults.savepoints_hang = True
        await cluster.ask(lambda d: d.stop_job(job_id, "t1", "/savepoints"))
        await cluster.result(job_id)
        await asyncio.sleep(5)
        assert job_id not in archive.kept
        cluster.faults.savepoints_hang = False
        await cluster.clean(job_id)
        (operation,) = archive.kept[job_id]["operations"]
        assert (operation["trigger_id"], operation["status"]) == ("t1", "COMPLETED")
        assert archive.kept[job_id]["savepoint"] == operation["location"]

    once(tmp_path, main)


def test_details_that_are_gone_from_the_node_come_from_the_archive_and_the_result_has_the_last_word(
    tmp_path: Path,
) -> None:
    """After a failover the details may be on the disk of a node that is no more. What an archive says about owner, status and
    checkpoint of a job whose result is known does not count (S17, S36)."""

    async def main(cluster: Cluster) -> None:
        archive = cluster.archivist = Archive(0)
        await cluster.fail_over()
        job_id = await ended(cluster)
        await cluster.clean(job_id)
        before = await cluster.ask(lambda d: d.request_job(job_id))
        archive.kept[job_id] |= {"owner": "mallory", "checkpoint": "/state/of/alice", "status": "CANCELED"}
        await cluster.fail_over()
        cluster.start_node()
        leader = await cluster.leader()
        details = await cluster.ask(lambda d: d.request_job(job_id))
        assert leader is not None
        assert details["graph"] == before["graph"]
        assert (details["owner"], details["checkpoint"], details["status"]) == (
            before["owner"],
            before["checkpoint"],
            "FINISHED",
        )
        archive.kept[job_id] |= {"vertices": "nonsense"}
        await cluster.fail_over()
        assert (await cluster.ask(lambda d: d.request_job(job_id)))["vertices"] == []

    once(tmp_path, main)


def test_job_that_was_forgotten_is_recalled_from_the_archive_for_reading_only(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        archive = cluster.archivist = Archive(0)
        await cluster.fail_over()
        first = await ended(cluster, 1)
        await cluster.clean(first)
        second = await ended(cluster, 2)
        await cluster.clean(second)
        await cluster.fail_over()  # details are kept by the node that led
        with pytest.raises(JobNotFoundError):
            await cluster.ask(lambda d: d.request_job(first))
        assert await cluster.ask(lambda d: d.recall(first)) == archive.kept[first]["owner"]
        assert await cluster.ask(lambda d: d.recall(second)) is None
        assert (await cluster.ask(lambda d: d.request_job(first)))["graph"] == archive.kept[first]["graph"]
        assert await cluster.ask(lambda d: d.request_job_status(first)) is JobStatus.FINISHED
        dispatcher = await cluster.dispatcher()
        with pytest.raises(JobNotFoundError):
            dispatcher.owner_of(first)
        with pytest.raises(JobNotFoundError):
            await cluster.ask(lambda d: d.cancel_job(first))

    once(tmp_path, main, dispatcher__job_result_retention="1")
