"""Attempts on a real engine: adopted, ended, and gone from Spark when they are."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import textwrap
import time
from pathlib import Path

import pytest
from tests.conftest import Cluster, graph_of
from tests.jobmaster.local_attempts import (
    Leader,
    assert_each_once,
    fenced,
    ids,
    is_gone_from_spark,
    job,
    leading,
    numbers,
    runs_on_spark,
    slow,
    stream,
    streamed_ids,
    until,
)
from tests.support.guards import certain
from tests.support.marks import samples

from firesteel.attempts.attempt import AttemptState
from firesteel.failure import FailureKind
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, new_job_id


def session_of(leader: Leader, attempt: AttemptId) -> str:
    return leader.directory(attempt).read_spec().ids.session_id


@pytest.mark.spark
def test_batch_attempt_runs_once_however_often_it_is_started(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        engine = cluster.engine()
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = AttemptId(new_job_id(), 1)
            deployment = Deployment(attempt, slow(20, tmp_path), engine)
            assert await leader.executor.find(attempt) is Presence.ABSENT
            await asyncio.gather(*(leader.executor.start(deployment) for _ in range(4)))
            await leader.executor.start(deployment)
            results = await asyncio.gather(*(leader.executor.wait(attempt) for _ in range(3)))
            assert [r.state for r in results] == [AttemptState.FINISHED] * 3
            await leader.executor.start(deployment)
            assert await leader.executor.find(attempt) is Presence.ENDED
            assert await leader.executor.attempts(attempt.job_id) == [1]
            view = await leader.executor.progress(attempt)
            assert view["result"] == "FINISHED"
            assert view["sinks"]["o"]["state"] == "committed"
        assert ids(tmp_path / "o") == list(range(20))
        assert (tmp_path / "marker").read_text() == "x"

    asyncio.run(main())


@pytest.mark.spark
def test_next_leader_adopts_a_running_driver(cluster: Cluster, tmp_path: Path) -> None:
    """I8: the driver does not notice."""

    async def main() -> None:
        engine = cluster.engine()
        async with leading(cluster.configuration, tmp_path / "jobs") as first:
            attempt = await first.start(slow(120, tmp_path), engine)
            await first.runs(attempt)
            driver = first.directory(attempt).read_driver()
        async with leading(cluster.configuration, tmp_path / "jobs") as second:
            assert await second.executor.find(attempt) is Presence.RUNNING
            await second.executor.start(Deployment(attempt, slow(120, tmp_path), engine))
            assert second.directory(attempt).read_driver() == driver
            result = await second.executor.wait(attempt)
        assert result.state is AttemptState.FINISHED
        assert ids(tmp_path / "o") == list(range(120))
        assert (tmp_path / "marker").read_text() == "x"

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.spark
def test_driver_that_finished_while_nobody_watched(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        engine = cluster.engine()
        async with leading(cluster.configuration, tmp_path / "jobs") as first:
            attempt = await first.start(numbers(7, tmp_path / "o"), engine)
        directory = first.directory(attempt)

        async def written() -> bool:
            return directory.result.exists()

        await until(written)
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as second:
            assert await second.executor.find(attempt) is Presence.ENDED
            result = await second.executor.wait(attempt)
            assert (result.state, result.failure) == (AttemptState.FINISHED, None)
            assert await second.executor.fence(attempt, guard=certain) == result
        assert ids(tmp_path / "o") == list(range(7))

    asyncio.run(main())


@pytest.mark.spark
@pytest.mark.parametrize("adopted", samples([False, True]))
def test_killed_driver_fails_and_its_work_on_spark_ends_first(cluster: Cluster, tmp_path: Path, adopted: bool) -> None:
    async def main() -> None:
        engine = cluster.engine()
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(leading(cluster.configuration, tmp_path / "jobs"))
            attempt = await first.start(slow(4000, tmp_path), engine)
            await until(lambda: runs_on_spark(cluster, session_of(first, attempt)))
            watcher = first
            if adopted:
                await stack.aclose()
                watcher = await stack.enter_async_context(leading(cluster.configuration, tmp_path / "jobs"))
            driver = first.directory(attempt).read_driver()
            assert driver is not None
            waiting = asyncio.create_task(watcher.executor.wait(attempt))
            driver.signal(signal.SIGKILL)
            async with asyncio.timeout(20):
                result = await waiting
            assert result.state is AttemptState.FAILED
            assert result.failure is not None
            assert result.failure.kind is FailureKind.KILLED
            assert ("exit code is unknown" if adopted else "killed (SIGKILL)") in result.failure.message
            await is_gone_from_spark(cluster, session_of(first, attempt))
            assert first.directory(attempt).read_result() == result

    asyncio.run(main())


@pytest.mark.spark
def test_cancel_of_a_stream_is_over_in_time(cluster: Cluster, tmp_path: Path) -> None:
    """I10."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(stream(tmp_path), cluster.engine())
            await leader.at_batch(attempt, 0)
            view = await leader.executor.progress(attempt)
            assert set(view["query_runs"]) == {"o"}
            driver = leader.directory(attempt).read_driver()
            assert driver is not None
            waiting = asyncio.create_task(leader.executor.wait(attempt))
            began = time.monotonic()
            await leader.executor.cancel(attempt, guard=certain)
            assert time.monotonic() - began < 10
            assert not driver.alive
            async with asyncio.timeout(5):
                assert (await waiting).state is AttemptState.CANCELED
            assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED
            await leader.executor.cancel(attempt, guard=certain)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.spark
def test_cancel_of_a_driver_that_does_not_listen(cluster: Cluster, tmp_path: Path) -> None:
    """The grace passes, the driver is killed, its session released: all within ten seconds."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs") as leader:
            attempt = await leader.start(slow(4000, tmp_path), cluster.engine())
            await leader.runs(attempt)
            driver = leader.directory(attempt).read_driver()
            assert driver is not None
            driver.signal(signal.SIGSTOP)
            began = time.monotonic()
            await leader.executor.cancel(attempt, guard=certain)
            assert time.monotonic() - began < 10
            assert not driver.alive
            result = await leader.executor.wait(attempt)
            assert (result.state, result.note) == (AttemptState.CANCELED, "called off while it ran")
            await is_gone_from_spark(cluster, session_of(leader, attempt))

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.spark
def test_stopped_stream_ends_after_its_batch_with_each_row_once(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(stream(tmp_path), cluster.engine())
            await leader.at_batch(attempt, 1)
            await leader.executor.stop(attempt)
            async with asyncio.timeout(60):
                result = await leader.executor.wait(attempt)
            await leader.executor.stop(attempt)
            events = leader.directory(attempt).events.read_text()
        assert (result.state, result.failure, result.stopped) == (AttemptState.FINISHED, None, True)
        assert result.batches["o"] >= 1
        assert_each_once(streamed_ids(tmp_path / "o"), batches=result.batches["o"] + 1)
        assert '"stopping"' in events

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.spark
def test_stop_lets_the_batch_in_flight_finish(cluster: Cluster, tmp_path: Path) -> None:
    """Batches of a second: the one that is under way is committed, and no other."""
    source, sink = stream(tmp_path, trigger="0 seconds").vertices
    sleep = "coalesce(reflect('java.lang.Thread', 'sleep', 100L), 'slept') <> ''"
    lazy = {"kind": "sql", "name": "lazy", "query": f"SELECT id FROM s WHERE {sleep}", "inputs": ["s"]}
    graph = job(
        source.model_dump(by_alias=True, exclude_none=True),
        lazy,
        {**sink.model_dump(by_alias=True, exclude_none=True), "input": "lazy"},
        mode="streaming",
    )

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(graph, cluster.engine())
            log = Path(cluster.configuration.state.checkpoints_dir) / attempt.job_id / "o"

            async def in_flight() -> bool:
                return (log / "offsets" / "1").exists()

            await until(in_flight)
            assert not (log / "commits" / "1").exists()
            await leader.executor.stop(attempt)
            result = await leader.executor.wait(attempt)
        assert (result.state, result.stopped, result.batches) == (AttemptState.FINISHED, True, {"o": 1})
        assert_each_once(streamed_ids(tmp_path / "o"), batches=2)

    asyncio.run(main())


@pytest.mark.spark
def test_stop_that_comes_before_the_driver_does(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = AttemptId(new_job_id(), 1)
            await leader.executor.stop(attempt)
            await leader.executor.start(Deployment(attempt, stream(tmp_path), cluster.engine()))
            async with asyncio.timeout(60):
                result = await leader.executor.wait(attempt)
        assert (result.state, result.stopped) == (AttemptState.FINISHED, True), result.failure
        assert_each_once(streamed_ids(tmp_path / "o"), batches=result.batches["o"] + 1)

    asyncio.run(main())


@pytest.mark.spark
def test_signal_that_comes_too_early_kills_nobody(cluster: Cluster, tmp_path: Path) -> None:
    """SIGUSR1 ends a process that does not handle it; a driver must not die of a stop that finds it unprepared."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(slow(20, tmp_path), cluster.engine())
            child = leader.executor._processes.drivers[attempt]

            async def compiled() -> bool:
                return not child.process.signal(signal.SIGUSR1) or (tmp_path / "marker").exists()

            await until(compiled)
            assert (await leader.executor.wait(attempt)).state is AttemptState.FINISHED

    asyncio.run(main())


@pytest.mark.spark
def test_fence_ends_a_running_attempt_for_good(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        engine = cluster.engine()
        async with leading(cluster.configuration, tmp_path / "jobs") as first:
            attempt = await first.start(slow(4000, tmp_path), engine)
            await first.runs(attempt)
            driver = first.directory(attempt).read_driver()
            assert driver is not None
            async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as second:
                result = await fenced(second, attempt)
                assert (result.state, result.note) == (AttemptState.CANCELED, "called off while it ran")
                assert not driver.alive
                await is_gone_from_spark(cluster, session_of(first, attempt))
                assert await second.executor.fence(attempt, guard=certain) == result
                # The first leader wakes up, and does what it was about to do.
                await first.executor.start(Deployment(attempt, slow(4000, tmp_path), engine))
                assert first.directory(attempt).read_driver() == driver
                assert await first.executor.wait(attempt) == result
        assert (tmp_path / "marker").read_text() == "x"
        assert ids(tmp_path / "o") == []

    asyncio.run(main())


@pytest.mark.spark
def test_checkpoint_is_the_last_committed_batch(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(stream(tmp_path), cluster.engine())
            await leader.at_batch(attempt, 1)
            found = await leader.executor.checkpoint(attempt)
            assert found["o"] >= 1
            assert len(streamed_ids(tmp_path / "o")) >= (found["o"] + 1) * 10
            await leader.executor.cancel(attempt, guard=certain)

    asyncio.run(main())


@pytest.mark.spark
def test_all_sessions_of_a_killed_program_end(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            from pyspark.sql import SparkSession
            SparkSession.builder.getOrCreate().stop()
            spark = SparkSession.builder.getOrCreate()
            print(spark.session_id, flush=True)
            spark.range(0, 4000, 1, 2).where("coalesce(reflect('java.lang.Thread', 'sleep', 50L), 'x') <> ''").count()
            """
        )
    )
    graph = graph_of({"kind": "script", "name": "script", "file": str(program), "api": "connect"})

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(graph, cluster.engine())
            directory = leader.directory(attempt)

            async def printed() -> bool:
                return directory.stdout.exists() and directory.stdout.read_text().endswith("\n")

            await until(printed)
            session = directory.stdout.read_text().strip()
            assert session != session_of(leader, attempt)
            await until(lambda: runs_on_spark(cluster, session))
            driver = directory.read_driver()
            assert driver is not None
            driver.signal(signal.SIGKILL)
            assert (await leader.executor.wait(attempt)).state is AttemptState.FAILED
            await is_gone_from_spark(cluster, session)

    asyncio.run(main())


@pytest.mark.spark
@pytest.mark.slow
def test_classic_script_takes_its_jvm_with_it(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            from pyspark import SparkContext
            sc = SparkContext.getOrCreate()
            pid = sc._gateway.jvm.java.lang.ProcessHandle.current().pid()
            print(sc.parallelize(range(4)).sum(), pid, flush=True)
            if "forever" in __import__("sys").argv:
                sc.parallelize(range(4)).foreach(lambda _: __import__("time").sleep(600))
            """
        )
    )

    def graph(*args: str) -> JobGraph:
        return graph_of({"kind": "script", "name": "script", "file": str(program), "args": args, "api": "classic"})

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = await leader.start(graph(), None)
            result = await leader.executor.wait(attempt)
            directory = leader.directory(attempt)
            assert result.failure is None, directory.stderr.read_text()
            total, pid = directory.stdout.read_text().split()
            assert total == "6"
            assert ProcessIdentity.of(int(pid)) is None
            assert list(directory.root.glob("jvm-*")) == []

            attempt = await leader.start(graph("forever"), None)
            directory = leader.directory(attempt)

            async def printed() -> bool:
                return directory.stdout.exists() and directory.stdout.read_text().endswith("\n")

            await until(printed)
            jvm = ProcessIdentity.of(int(directory.stdout.read_text().split()[1]))
            assert jvm is not None
            assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED
            assert not jvm.alive

    asyncio.run(main())
