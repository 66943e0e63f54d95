"""One job that cannot be read, or breaks its JobMaster, ends with its reason and hurts nobody else."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, once

from firesteel.errors import DuplicateJobError, EngineLostError, JobStateError
from firesteel.failure import FailureKind
from firesteel.jobmaster.machine import Finish
from firesteel.jobmaster.master import JobMaster, JobMasterServices
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

GARBAGE = b'{"v": 1, "half of a rec'


async def two_running(cluster: Cluster) -> tuple[Submission, Submission]:
    bad, good = cluster.job(1, 300.0, name="bad"), cluster.job(2, 300.0, name="good")
    await cluster.running(bad)
    await cluster.running(good)
    return bad, good


def parked(cluster: Cluster, job_id: JobID) -> dict[str, bytes]:
    """The bytes that were kept aside, by where they stood."""
    found = [cluster.stored(p) for p in cluster.world.data if p.startswith(f"parked/{job_id}/")]
    return {f["path"]: base64.b64decode(f["raw"]) for f in found}


async def check(cluster: Cluster, bad: Submission, good: Submission, damaged: dict[str, bytes]) -> JobResult:
    """The bad job is FAILED and nothing of it runs; the good one is the same attempt as before."""
    await cluster.clean(bad.job_id)
    result = await cluster.result(bad.job_id)
    assert result.status is JobStatus.FAILED
    assert result.failure is not None
    assert result.failure.kind is FailureKind.INTERNAL
    assert not cluster.world.live_runs(bad.job_id)
    assert damaged.items() <= parked(cluster, bad.job_id).items()
    left = [p for p in cluster.world.data if bad.job_id in p and not p.startswith(("parked/", "results/"))]
    assert not left
    assert (await cluster.result(good.job_id)).status is JobStatus.FINISHED
    assert cluster.numbers(good.job_id) == [1]
    assert cluster.numbers(bad.job_id) == [1]
    return result


@pytest.mark.parametrize("what", ["graphs", "jobs", "results"])
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (GARBAGE, "it is not JSON"),
        (b'{"v": 99}', "version 99"),
        (b'{"v": 1}', "missing"),
    ],
)
def test_record_that_cannot_be_read(tmp_path: Path, what: str, raw: bytes, reason: str) -> None:
    async def main(cluster: Cluster) -> None:
        bad, good = await two_running(cluster)
        cluster.put(f"{what}/{bad.job_id}", raw)
        await cluster.fail_over()
        result = await check(cluster, bad, good, {f"{what}/{bad.job_id}": raw})
        assert result.failure is not None
        assert reason in result.failure.message
        described = await cluster.ask(lambda d: d.request_job(bad.job_id))
        assert described["status"] == "FAILED"
        assert reason in described["failure"]["message"]
        with pytest.raises(DuplicateJobError):
            await cluster.submit(bad)
        # And it stays so: the next leader finds nothing that it would have to park.
        await cluster.fail_over()
        assert (await cluster.result(bad.job_id)).failure == result.failure

    once(tmp_path, main)


def test_result_that_is_damaged_after_recovery_is_noticed_before_the_job_runs(tmp_path: Path) -> None:
    """The store is asked, not our memory of it."""

    async def main(cluster: Cluster) -> None:
        bad, good = cluster.job(1), cluster.job(2)
        cluster.put(f"results/{bad.job_id}", GARBAGE)
        await cluster.submit(bad)
        await cluster.submit(good)
        result = await cluster.result(bad.job_id)
        assert (result.status, result.note) == (JobStatus.FAILED, "parked")
        assert parked(cluster, bad.job_id)[f"results/{bad.job_id}"] == GARBAGE
        assert not cluster.numbers(bad.job_id)
        assert (await cluster.result(good.job_id)).status is JobStatus.FINISHED

    once(tmp_path, main)


def test_two_bad_records_of_one_job_are_both_kept(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        bad, good = await two_running(cluster)
        damaged = {f"graphs/{bad.job_id}": b"one", f"jobs/{bad.job_id}": b"two"}
        for path, raw in damaged.items():
            cluster.put(path, raw)
        await cluster.fail_over()
        await check(cluster, bad, good, damaged)

    once(tmp_path, main)


@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("side", ["before", "after"])
def test_crash_while_a_job_is_parked(tmp_path: Path, step: int, side: str) -> None:
    async def main(cluster: Cluster) -> None:
        bad, good = await two_running(cluster)
        raw = b"\xff\xfe damaged"
        cluster.put(f"graphs/{bad.job_id}", raw)
        (await cluster.leader()).crash()
        second = cluster.start_node()
        second.crash_at = (step, side)
        await cluster.until(lambda: not second.alive, seconds=60)
        cluster.start_node()
        await check(cluster, bad, good, {f"graphs/{bad.job_id}": raw})

    once(tmp_path, main)


@pytest.mark.parametrize("what", ["graphs", "jobs", "results"])
def test_fence_that_takes_long_holds_nobody_up(tmp_path: Path, what: str) -> None:
    """Its engine does not answer for a minute; the others are served meanwhile, and it does not run anew."""

    async def main(cluster: Cluster) -> None:
        bad, good = await two_running(cluster)
        cluster.put(f"{what}/{bad.job_id}", GARBAGE)
        cluster.faults.fences = [EngineLostError("it does not answer") for _ in range(15)]
        await cluster.fail_over()
        assert len(cluster.faults.fences) > 5
        written = len(cluster.writes_of(f"jobs/{bad.job_id}"))
        await cluster.submit(cluster.job(3))
        assert (await cluster.result(JobID(f"{3:032x}"))).status is JobStatus.FINISHED
        assert len(cluster.faults.fences) > 3
        await check(cluster, bad, good, {f"{what}/{bad.job_id}": GARBAGE})
        assert len(cluster.writes_of(f"jobs/{bad.job_id}")) == written, "nobody went on with it"

    once(tmp_path, main)


def test_job_that_is_being_parked_is_known(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        bad, _ = await two_running(cluster)
        cluster.put(f"graphs/{bad.job_id}", GARBAGE)
        cluster.faults.fences = [EngineLostError("it does not answer") for _ in range(15)]
        await cluster.fail_over()
        asked = await cluster.begin(lambda d: d.request_job_result(bad.job_id))
        assert (await asyncio.wait_for(asked, LONG)).status is JobStatus.FAILED

    once(tmp_path, main)


def test_job_whose_result_turns_out_to_be_unreadable_stands_in_the_list_once(tmp_path: Path) -> None:
    """It was accepted by this leader, and is parked by it: one job, one row, and one in the counts."""

    async def main(cluster: Cluster) -> None:
        bad = cluster.job(1, 300.0)
        cluster.put(f"results/{bad.job_id}", GARBAGE)
        cluster.faults.closed = {"parked/"}
        await cluster.submit(bad)
        await asyncio.sleep(5)
        rows = await cluster.ask(lambda d: d.list_jobs())
        assert [(r.job_id, r.name, r.status) for r in rows] == [(bad.job_id, bad.graph.name, JobStatus.RECONCILING)]
        overview = await cluster.ask(lambda d: d.request_cluster_overview())
        assert overview.jobs == {JobStatus.RECONCILING: 1}
        cluster.faults.closed = set()
        result = await cluster.result(bad.job_id)
        assert (result.status, result.note) == (JobStatus.FAILED, "parked")
        await cluster.clean(bad.job_id)
        assert not cluster.numbers(bad.job_id), "it never ran"

    once(tmp_path, main)


def test_name_that_is_no_job_id(tmp_path: Path) -> None:
    """Somebody's notes in the middle of our graphs."""

    async def main(cluster: Cluster) -> None:
        good = cluster.job(2, 300.0)
        await cluster.running(good)
        cluster.put("graphs/README", b"do not touch")
        await cluster.fail_over()
        assert (await cluster.result(good.job_id)).status is JobStatus.FINISHED
        await cluster.until(lambda: parked(cluster, JobID("README")) == {"graphs/README": b"do not touch"})

    once(tmp_path, main)


def test_name_that_is_no_job_id_is_done_with(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("graphs/README", b"do not touch")
        await cluster.fail_over()
        await cluster.until(lambda: bool(parked(cluster, JobID("README"))))
        await asyncio.sleep(LONG)
        assert cluster.stored("results/README").get("dirty") is not True
        written = len(cluster.writes_of("parked/README"))
        await cluster.fail_over()
        await asyncio.sleep(LONG)
        assert len(cluster.writes_of("parked/README")) == written

    once(tmp_path, main)


# -- JobMasters that break ------------------------------------------------------------------------------------------


class BreaksLater(JobMaster):
    async def run(self) -> Finish:
        task = asyncio.ensure_future(super().run())
        try:
            await asyncio.sleep(20)
        finally:
            task.cancel()
            await asyncio.wait([task])
        raise ZeroDivisionError("a bug")


def breaks_at_once(submission: Submission, record: Mapping[str, Any] | None, services: JobMasterServices) -> JobMaster:
    raise KeyError("attempt")


def for_bad(make: Any) -> Any:
    """The JobMaster of the bad job only."""

    def choose(submission: Submission, record: Mapping[str, Any] | None, services: JobMasterServices) -> JobMaster:
        chosen = make if submission.graph.name == "bad" else JobMaster
        made: JobMaster = chosen(submission, record, services)
        return made

    return choose


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (breaks_at_once, "the JobMaster failed: KeyError: 'attempt'"),
        (BreaksLater, "the JobMaster failed: ZeroDivisionError"),
    ],
    ids=["when it is made", "while it runs"],
)
def test_job_master_that_breaks(tmp_path: Path, make: Any, reason: str) -> None:
    """With an attempt of an earlier life that runs."""

    async def main(cluster: Cluster) -> None:
        bad, good = await two_running(cluster)
        cluster.make_job_master = for_bad(make)
        cluster.faults.fences = [EngineLostError("it does not answer")]
        await cluster.fail_over()
        result = await check(cluster, bad, good, {})
        assert result.failure is not None
        assert reason in result.failure.message
        assert not parked(cluster, bad.job_id), "its records are well"
        await cluster.submit(bad)  # known, and not run again
        with pytest.raises(JobStateError):
            await cluster.ask(lambda d: d.cancel_job(bad.job_id))

    once(tmp_path, main)


def test_record_that_is_json_but_not_a_state(tmp_path: Path) -> None:
    """Readable for the store, and not for the JobMaster."""

    async def main(cluster: Cluster) -> None:
        bad, good = await two_running(cluster)
        record = cluster.stored(f"jobs/{bad.job_id}")
        del record["data"]["failures"]
        cluster.put(f"jobs/{bad.job_id}", json.dumps(record).encode())
        await cluster.fail_over()
        result = await check(cluster, bad, good, {})
        assert result.failure is not None
        assert "KeyError: 'failures'" in result.failure.message

    once(tmp_path, main)
