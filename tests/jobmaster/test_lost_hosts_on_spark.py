"""An attempt whose host was given up wakes up when the next one runs elsewhere (I27): driver and engine are stopped, and go on.

The two hosts share the file system of checkpoints and outputs, and nothing else: each has an executor, drivers and an engine
of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import graph_of
from tests.jobmaster.local_attempts import Leader, ids, leading, slow, until
from tests.savepoint.spark_desk import WINDOW, Input, rows_of_log
from tests.support.engine_shape import SHAPE
from tests.support.guards import certain

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.config import load_configuration
from firesteel.engines.launcher import start_engine, stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.failure import FailureKind
from firesteel.fs import generations
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.processes import ProcessIdentity
from firesteel.sinks.graph import clear
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.launch_options import launch_options

pytestmark = [pytest.mark.spark, pytest.mark.slow]
JOB = new_job_id()


class LostHost:
    """An executor with a root of its own, and an engine."""

    def __init__(self, leader: Leader, engine: EngineRecord) -> None:
        self.leader = leader
        self.engine = engine
        self.stopped: list[ProcessIdentity] = []

    async def start(self, graph: JobGraph, number: int, *, given_up: int = 0) -> AttemptId:
        attempt = AttemptId(JOB, number)
        await self.leader.executor.start(Deployment(attempt, graph, self.engine, given_up=given_up))
        return attempt

    def driver(self, attempt: AttemptId) -> ProcessIdentity:
        driver = self.leader.directory(attempt).read_driver()
        assert driver is not None
        return driver

    def stop(self, *processes: ProcessIdentity | None) -> None:
        for process in processes:
            assert process is not None
            os.kill(process.pid, signal.SIGSTOP)
            self.stopped.append(process)

    def wake_up(self) -> None:
        while self.stopped:
            os.kill(self.stopped.pop().pid, signal.SIGCONT)

    async def end_of(self, attempt: AttemptId) -> AttemptResult:
        async with asyncio.timeout(120):
            return await self.leader.executor.wait(attempt)


@contextlib.asynccontextmanager
async def host(tmp_path: Path, name: str) -> AsyncIterator[LostHost]:
    overrides = {
        **SHAPE,
        "data.dir": str(tmp_path / name),
        "spark.sql.shuffle.partitions": "2",
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
    }
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    configuration = load_configuration(overrides=overrides, environ=environ)
    (tmp_path / name).mkdir()
    engines = EngineDirectory(configuration.data.dir)
    spec, options = shared_engine_spec(configuration), launch_options(configuration)
    engine = await asyncio.to_thread(start_engine, engines, spec, options)
    try:
        async with leading(configuration, tmp_path / name / "jobs") as leader:
            made = LostHost(leader, engine)
            try:
                yield made
            finally:
                made.wake_up()
                for number in await leader.executor.attempts(JOB):
                    await leader.executor.cancel(AttemptId(JOB, number), guard=certain)
    finally:
        await asyncio.to_thread(partial(stop_engine, engines, engine, grace=5.0))


def totals_of(tmp_path: Path, source: Path) -> JobGraph:
    """Counts and sums the rows of three files at a time, which takes state; the same for each host."""
    query = f"SELECT count(*) n, sum(id) total FROM timed GROUP BY window(at, '{WINDOW} minutes')"
    vertices: list[dict[str, Any]] = [
        {
            "kind": "source",
            "name": "s",
            "format": "json",
            "path": str(source),
            "schema": "id BIGINT, at TIMESTAMP",
            "options": {"maxFilesPerTrigger": 1},
        },
        {"kind": "sql", "name": "timed", "query": "SELECT id, at FROM s", "inputs": ["s"]}
        | {"watermark": {"column": "at", "delay": "0 s"}},
        {"kind": "sql", "name": "sums", "query": query, "inputs": ["timed"]},
        {"kind": "sink", "name": "o", "input": "sums", "format": "parquet", "path": str(tmp_path / "o")}
        | {"trigger": "100 ms"},
    ]
    return graph_of(*vertices, mode="streaming")


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "idle"])
def test_stream_that_wakes_up_on_a_lost_host_writes_nothing_and_says_so(tmp_path: Path, ahead: bool) -> None:
    """The next attempt is ahead by some batches, or has found nothing to do so far. In one directory, Spark would refuse the
    later of two queries that write a batch: the one that woke up in the first case, the one that took over in the second."""

    async def main() -> None:
        fed = Input(tmp_path / "in")
        graph = totals_of(tmp_path, fed.directory)

        async def complete() -> bool:
            found = sorted((r["n"], r["total"]) for r in rows_of_log(tmp_path / "o"))
            assert len(found) == len(set(found)), "a window is there twice"
            return bool(fed.totals) and found == fed.totals

        async with host(tmp_path, "first") as first, host(tmp_path, "second") as second:
            fed.feed(5)
            old = await first.start(graph, 1)
            await until(complete)
            first.stop(first.driver(old), first.engine.process)

            if ahead:
                fed.feed(3)
            new = await second.start(graph, 2, given_up=1)

            async def started() -> bool:
                return bool((await second.leader.executor.progress(new)).get("query_runs"))

            await until(started)
            await until(complete)
            queries = (await second.leader.executor.progress(new))["query_runs"]

            first.wake_up()
            fed.feed(3)
            result = await first.end_of(old)
            assert result.state is AttemptState.FAILED
            assert result.failure is not None
            assert result.failure.kind is FailureKind.KILLED
            assert "attempt 1 was given up and attempt 2 has taken over" in result.failure.message
            await until(complete)
            fed.feed(3)
            await until(complete)
            view = await second.leader.executor.progress(new)
            assert view["query_runs"] == queries, "the one that took over has not noticed"

            # What follows goes on where this one is.
            batches = await second.leader.executor.checkpoint(new)
            assert batches["o"] >= 10
            await second.leader.executor.cancel(new, guard=certain)
            third = await second.start(graph, 3, given_up=1)
            fed.feed(3)
            await until(complete)
            place = next((tmp_path / "checkpoints").rglob("o"))
            assert place.is_file()
            assert generations.current(str(place)).endswith(f".taken-1-{JOB[:8]}-2")
            await second.leader.executor.cancel(third, guard=certain)

    asyncio.run(main())


def test_batch_that_wakes_up_on_a_lost_host_commits_nothing_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        graph = slow(40, tmp_path)
        staging = tmp_path / "o" / "_firesteel" / f"{JOB}-o"

        async def begun() -> bool:
            return (staging / "attempt-1").exists()

        async def written() -> bool:
            return (staging / "attempt-1" / "_SUCCESS").exists()

        async with host(tmp_path, "first") as first, host(tmp_path, "second") as second:
            old = await first.start(graph, 1)
            await until(begun)
            # The engine writes on; what its driver does next is the commit.
            first.stop(first.driver(old))
            await until(written)
            first.stop(first.engine.process)

            new = await second.start(graph, 2, given_up=1)
            assert (await second.end_of(new)).state is AttemptState.FINISHED
            assert ids(tmp_path / "o") == list(range(40))
            assert list(clear(graph, JOB, finished=True, given_up=1)) == []

            first.wake_up()
            result = await first.end_of(old)
            assert result.state is AttemptState.FAILED
            assert result.failure is not None
            assert result.failure.kind is FailureKind.KILLED
            assert "nothing was committed" in result.failure.message
            assert ids(tmp_path / "o") == list(range(40))
            assert not staging.exists()

    asyncio.run(main())
