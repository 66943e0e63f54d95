"""Jobs of an earlier leader are taken over in bulk: what a failover with very many of them asks of store and engines."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.dispatcher.sim_cluster import Cluster, FaultyExecutor, FaultyStore, play
from tests.jobmaster.job_desk import Desk, record_of
from tests.simulation.world import Run, SimEngines

from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.ha.protocols import Stored
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.machine import JobState
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.processes import ProcessIdentity
from firesteel.status import JobStatus
from firesteel.stores.codec import encode
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResultStore
from firesteel.types import AttemptId, JobID

ENGINES = 4


class Calls:
    """What a new leader asks for, and how much of it at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: Counter[str] = Counter()
        self.engines: Counter[str] = Counter()
        self.finds = 0
        get, list_, paths = FaultyStore.get, FaultyStore.list, FaultyStore.paths
        put = FaultyStore.put
        there, adopt, health = SimEngines.there, SimEngines.adopt, SimEngines.health
        find = FaultyExecutor.find

        async def counted_get(store: FaultyStore, path: str) -> Stored | None:
            self.store[f"get {path.partition('/')[0]}"] += 1
            return await get(store, path)

        async def counted_list(store: FaultyStore, prefix: str) -> Mapping[str, Stored]:
            self.store[f"list {prefix}"] += 1
            return await list_(store, prefix)

        async def counted_put(store: FaultyStore, path: str, value: bytes, **more: Any) -> int:
            self.store[f"put {path.partition('/')[0]}"] += 1
            return await put(store, path, value, **more)

        async def counted_paths(store: FaultyStore, prefix: str) -> Any:
            self.store[f"paths {prefix}"] += 1
            return await paths(store, prefix)

        async def counted_there(engines: SimEngines, record: EngineRecord) -> bool:
            self.engines[f"there {record.engine_id}"] += 1
            return await there(engines, record)

        async def counted_adopt(engines: SimEngines, record: EngineRecord) -> EngineRecord:
            self.engines[f"adopt {record.engine_id}"] += 1
            return await adopt(engines, record)

        async def counted_health(engines: SimEngines, record: EngineRecord) -> Any:
            self.engines[f"health {record.engine_id}"] += 1
            return await health(engines, record)

        async def counted_find(executor: FaultyExecutor, attempt: AttemptId) -> Presence:
            self.finds += 1
            return await find(executor, attempt)

        for owner, name, function in (
            (FaultyStore, "get", counted_get),
            (FaultyStore, "list", counted_list),
            (FaultyStore, "put", counted_put),
            (FaultyStore, "paths", counted_paths),
            (SimEngines, "there", counted_there),
            (SimEngines, "adopt", counted_adopt),
            (SimEngines, "health", counted_health),
            (FaultyExecutor, "find", counted_find),
        ):
            monkeypatch.setattr(owner, name, function)


def leave_behind(cluster: Cluster, count: int) -> list[Submission]:
    """Jobs that an earlier leader runs: in the store, on engines, with their drivers."""
    for n in range(ENGINES):
        spec = EngineSpec("local[2]")
        record = EngineRecord(f"engine-x{n}", spec, "localhost", 1, process=ProcessIdentity(n, "1"))
        cluster.world.engines[record.engine_id] = record
    first = cluster.job(1, streaming=True)
    jobs = [dataclasses.replace(first, job_id=JobID(f"{number:032x}")) for number in range(1, count + 1)]
    loop, graph = asyncio.get_running_loop(), json.loads(first.to_bytes())
    for number, job in enumerate(jobs):
        engine = f"engine-x{number % ENGINES}"
        state = JobState(job.graph.settings.restart, attempt=1, deployed=True, engine_id=engine)
        cluster.put(f"graphs/{job.job_id}", encode({**graph, "job_id": job.job_id}))
        cluster.put(f"jobs/{job.job_id}", encode({"job_id": job.job_id, "data": state.record()}))
        attempt = AttemptId(job.job_id, 1)
        cluster.world.runs[attempt] = Run(attempt, engine, 0.0, "ok", True, loop.create_future())
    return jobs


async def states(cluster: Cluster) -> Counter[JobStatus]:
    return Counter(job.status for job in await cluster.ask(lambda d: d.list_jobs()))


def test_a_thousand_jobs_cost_the_store_five_lists_and_each_engine_two_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F23: no stampede, whatever the number of jobs."""
    caplog.set_level(logging.INFO, "firesteel.dispatcher.dispatcher")

    async def main(cluster: Cluster) -> None:
        jobs = leave_behind(cluster, 1000)
        calls = Calls(monkeypatch)
        cluster.start_node()
        await cluster.leader()
        before = cluster.world.now

        async def all_run() -> bool:
            return (await states(cluster))[JobStatus.RUNNING] == len(jobs)

        await cluster.until(all_run)
        assert cluster.world.now - before < 5
        lists = {k: n for k, n in calls.store.items() if k.startswith("list ")}
        assert lists == {f"list {what}": 1 for what in ("graphs", "jobs", "results", "operations", "workers")}
        assert not [k for k in calls.store if k.startswith(("get ", "put ")) and "secrets" not in k]
        engines = [f"engine-x{n}" for n in range(ENGINES)]
        asked = {k: n for k, n in calls.engines.items() if not k.startswith("health")}
        assert asked == {f"{what} {e}": 1 for what in ("there", "adopt") for e in engines}
        assert calls.finds == len(jobs)
        assert all(cluster.numbers(job.job_id) == [1] for job in jobs)

    play(tmp_path, main, heartbeat__interval="1 h", high_availability__poll_interval="1 h")
    assert "all 1000 jobs of earlier leaders are taken over" in caplog.text


def test_jobs_come_back_one_by_one_and_none_waits_for_the_slowest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "firesteel.dispatcher.dispatcher")
    slow = JobID(f"{1:032x}")
    find = FaultyExecutor.find

    async def main(cluster: Cluster) -> None:
        jobs = leave_behind(cluster, 20)
        found = asyncio.Event()

        async def slowly(executor: FaultyExecutor, attempt: AttemptId) -> Presence:
            if attempt.job_id == slow:
                await found.wait()
            return await find(executor, attempt)

        monkeypatch.setattr(FaultyExecutor, "find", slowly)
        cluster.start_node()
        await cluster.leader()
        heard = cluster.runners[await cluster.leader()].dispatcher.events()
        # It serves, and every job is listed from the first moment on.
        assert sum((await states(cluster)).values()) == len(jobs)

        async def others_run() -> bool:
            return (await states(cluster))[JobStatus.RUNNING] == len(jobs) - 1

        await cluster.until(others_run)
        assert await cluster.ask(lambda d: d.request_job_status(slow)) is JobStatus.RECONCILING
        new = await cluster.running(cluster.job(99))  # and it takes new ones
        await asyncio.sleep(5)
        assert "19 of 20 jobs of earlier leaders are taken over" in caplog.text
        assert "all 20 jobs" not in caplog.text
        found.set()
        await cluster.status(slow, JobStatus.RUNNING)
        assert cluster.numbers(slow) == [1]
        await asyncio.sleep(2)
        assert "all 20 jobs of earlier leaders are taken over" in caplog.text
        told: set[str] = set()
        while not {slow, new} <= told:
            told.add((await asyncio.wait_for(heard.next(), 1)).job_id)
        heard.close()

    play(tmp_path, main, engine__slots="8", engine__max="8")


def test_jobs_whose_attempts_are_being_looked_for_are_reconciling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand, the last is known and shown as what it is while the first are begun with."""
    monkeypatch.setattr("firesteel.dispatcher.dispatcher.TAKEN_OVER_TOGETHER", 1)
    find = FaultyExecutor.find

    async def main(cluster: Cluster) -> None:
        jobs = leave_behind(cluster, 200)
        found = asyncio.Event()

        async def slowly(executor: FaultyExecutor, attempt: AttemptId) -> Presence:
            await found.wait()
            return await find(executor, attempt)

        monkeypatch.setattr(FaultyExecutor, "find", slowly)
        cluster.start_node()
        rows = await cluster.ask(lambda d: d.list_jobs())
        assert {(row.status, row.attempt) for row in rows} == {(JobStatus.RECONCILING, 1)}
        assert len(rows) == len(jobs)
        details = await cluster.ask(lambda d: d.request_job(jobs[-1].job_id))
        assert details["status"] == "RECONCILING"
        found.set()
        await cluster.status(jobs[-1].job_id, JobStatus.RUNNING)

    play(tmp_path, main)


def test_job_is_reconciling_before_it_is_begun_with() -> None:
    async def main() -> None:
        desk = Desk()
        results = JobResultStore(desk.store, 10)
        runner = JobManagerRunner(desk.submission, record_of(attempt=3), desk.services, results, desk.configuration)
        assert (runner.state.status, runner.state.attempt) == (JobStatus.RECONCILING, 3)
        assert not runner.taken_over

    asyncio.run(main())


@pytest.mark.slow
def test_the_cost_of_a_job_does_not_grow_with_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F23, 10,000 jobs. Counted in steps of the event loop, which the noise of a machine does not change."""
    steps: dict[int, float] = {}

    def take_over(count: int) -> None:
        async def main(cluster: Cluster) -> None:
            leave_behind(cluster, count)
            loop = asyncio.get_running_loop()
            ran = [0]
            call_soon = loop.call_soon

            def counted(*args: Any, **more: Any) -> Any:
                ran[0] += 1
                return call_soon(*args, **more)

            cluster.start_node()
            monkeypatch.setattr(loop, "call_soon", counted)
            process = await cluster.leader()
            dispatcher = cluster.runners[process].dispatcher

            def all_run() -> bool:
                return all(runner.taken_over for runner in dispatcher._table.live())

            await cluster.until(all_run)
            monkeypatch.undo()
            steps[count] = ran[0] / count

        play(tmp_path / str(count), main, heartbeat__interval="1 h", high_availability__poll_interval="1 h")

    take_over(500)
    take_over(10_000)
    assert steps[10_000] <= 1.2 * steps[500], steps
