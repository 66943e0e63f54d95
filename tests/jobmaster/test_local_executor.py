"""Attempts that outlive the control plane: started, found again, ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import Cluster, graph_of

from firesteel.config import Configuration
from firesteel.driver.attempt import AttemptDirectory, AttemptResult, AttemptSpec, AttemptState
from firesteel.driver.bell import ring
from firesteel.driver.claim import NOT_MINE, claimed
from firesteel.driver.pool import DriverPool
from firesteel.engines.api import EngineApi
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import EngineLostError, FiresteelError
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import AttemptExecutor, Deployment, Presence
from firesteel.jobmaster.local_executor import LocalAttemptExecutor
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, new_job_id

CODE = str(Path(__file__).parent.parent / "driver" / "jobcode")


def job(*vertices: dict[str, Any], **top: Any) -> JobGraph:
    return graph_of(*vertices, settings={"artifacts": {"py_files": [CODE]}}, **top)


def numbers(rows: int, out: Path) -> JobGraph:
    return job(
        {"kind": "python", "name": "a", "function": "job_functions:numbers", "args": {"rows": rows}},
        {"kind": "sink", "name": "o", "input": "a", "format": "parquet", "path": str(out)},
    )


def slow(rows: int, tmp_path: Path) -> JobGraph:
    """50 ms a row, two at a time. Each compilation leaves an x in the file `marker`."""
    args = {"rows": rows, "marker": str(tmp_path / "marker")}
    return job(
        {"kind": "python", "name": "a", "function": "job_functions:slow", "args": args},
        {"kind": "sink", "name": "o", "input": "a", "format": "parquet", "path": str(tmp_path / "o")},
    )


def stream(tmp_path: Path, files: int = 30, trigger: str = "100 ms") -> JobGraph:
    """Ten rows a file, a file a batch."""
    source = tmp_path / "in"
    source.mkdir()
    for n in range(files):
        (source / f"{n:03}.json").write_text("".join(f'{{"id": {n * 10 + i}}}\n' for i in range(10)))
    return job(
        {
            "kind": "source",
            "name": "s",
            "format": "json",
            "path": str(source),
            "schema": "id BIGINT",
            "options": {"maxFilesPerTrigger": 1},
        },
        {
            "kind": "sink",
            "name": "o",
            "input": "s",
            "format": "parquet",
            "path": str(tmp_path / "o"),
            "trigger": trigger,
        },
        mode="streaming",
    )


def ids(path: Path) -> list[int]:
    found = [f for f in path.rglob("*.parquet") if not f.relative_to(path).parts[0].startswith("_")]
    return sorted(i for f in found for i in pq.read_table(f).column("id").to_pylist())


def streamed_ids(path: Path) -> list[int]:
    """The rows that Spark's file sink has committed."""
    listed = [
        json.loads(line)["path"].removeprefix("file://")
        for log in path.glob("_spark_metadata/*")
        if log.name.split(".")[0].isdecimal()
        for line in log.read_text().splitlines()[1:]
    ]
    return sorted(i for f in set(listed) for i in pq.read_table(f).column("id").to_pylist())


def assert_each_once(found: list[int], *, batches: int) -> None:
    """Whole files only, none twice. Which file goes first is Spark's choice."""
    assert len(set(found)) == len(found) == batches * 10
    assert all(set(range(n // 10 * 10, n // 10 * 10 + 10)) <= set(found) for n in found)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - files change, and nobody tells
            await asyncio.sleep(0.05)


async def still_waits(task: asyncio.Task[Any]) -> bool:
    done, _ = await asyncio.wait({task}, timeout=0.4)
    return not done


class Leader:
    """One life of a control plane: an executor with drivers of its own."""

    def __init__(self, executor: LocalAttemptExecutor, root: Path) -> None:
        self.executor = executor
        self.root = root

    def directory(self, attempt: AttemptId) -> AttemptDirectory:
        return AttemptDirectory(self.root / attempt.job_id / "attempts" / str(attempt.number))

    async def start(self, graph: JobGraph, engine: EngineRecord | None, number: int = 1) -> AttemptId:
        attempt = AttemptId(new_job_id(), number)
        await self.executor.start(Deployment(attempt, graph, engine))
        return attempt

    async def runs(self, attempt: AttemptId) -> None:
        async def running() -> bool:
            view = await self.executor.progress(attempt)
            return bool(view["phase"] == "running")

        await until(running)

    async def at_batch(self, attempt: AttemptId, batch: int) -> None:
        async def there() -> bool:
            view = await self.executor.progress(attempt)
            return bool(view["sinks"].get("o", {}).get("batch", -1) >= batch)

        await until(there)


@contextlib.asynccontextmanager
async def leading(configuration: Configuration, root: Path, pool: DriverPool | None = None) -> AsyncIterator[Leader]:
    executor = LocalAttemptExecutor(configuration, root, pool)
    try:
        yield Leader(executor, root)
    finally:
        await executor.close()


async def fenced(leader: Leader, attempt: AttemptId) -> AttemptResult:
    """As a JobMaster does it: again, while an engine that is busy does not answer in time."""
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(EngineLostError):
                return await leader.executor.fence(attempt)


def conforms(executor: LocalAttemptExecutor) -> AttemptExecutor:
    return executor


async def runs_on_spark(cluster: Cluster, session: str) -> bool:
    def running() -> bool:
        jobs = EngineApi(cluster.engine()).get("jobs", status="running")
        return any(session in tag for j in jobs for tag in j["jobTags"])

    return await asyncio.to_thread(running)


async def is_gone_from_spark(cluster: Cluster, session: str) -> None:
    """Spark's monitoring tells a moment later."""

    async def gone() -> bool:
        return not await runs_on_spark(cluster, session)

    async with asyncio.timeout(5):
        await until(gone)


# -- on a real engine -------------------------------------------------------------------------------------------------


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
            assert await second.executor.fence(attempt) == result
        assert ids(tmp_path / "o") == list(range(7))

    asyncio.run(main())


@pytest.mark.spark
@pytest.mark.parametrize("adopted", [False, True])
def test_killed_driver_fails_and_its_work_on_spark_ends_first(cluster: Cluster, tmp_path: Path, adopted: bool) -> None:
    async def main() -> None:
        engine = cluster.engine()
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(leading(cluster.configuration, tmp_path / "jobs"))
            attempt = await first.start(slow(4000, tmp_path), engine)
            await until(lambda: runs_on_spark(cluster, attempt.session_id))
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
            await is_gone_from_spark(cluster, attempt.session_id)
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
            await leader.executor.cancel(attempt)
            assert time.monotonic() - began < 10
            assert not driver.alive
            async with asyncio.timeout(5):
                assert (await waiting).state is AttemptState.CANCELED
            assert (await leader.executor.fence(attempt)).state is AttemptState.CANCELED
            await leader.executor.cancel(attempt)

    asyncio.run(main())


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
            await leader.executor.cancel(attempt)
            assert time.monotonic() - began < 10
            assert not driver.alive
            result = await leader.executor.wait(attempt)
            assert (result.state, result.note) == (AttemptState.CANCELED, "called off while it ran")
            await is_gone_from_spark(cluster, attempt.session_id)

    asyncio.run(main())


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
            child = leader.executor._drivers[attempt]

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
                await is_gone_from_spark(cluster, attempt.session_id)
                assert await second.executor.fence(attempt) == result
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
            await leader.executor.cancel(attempt)

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
            assert session != attempt.session_id
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
            assert (await leader.executor.fence(attempt)).state is AttemptState.CANCELED
            assert not jvm.alive

    asyncio.run(main())


# -- without one ------------------------------------------------------------------------------------------------------


def fake_engine(process: ProcessIdentity | None, port: int = 1) -> EngineRecord:
    return EngineRecord("fake", EngineSpec("local[1]"), "localhost", port, process=process)


def prepared(leader: Leader, graph: JobGraph, engine: EngineRecord | None, checkpoints: str = "") -> AttemptId:
    """An attempt of an earlier life, of which there is a spec and nothing else."""
    attempt = AttemptId(new_job_id(), 1)
    leader.directory(attempt).prepare(AttemptSpec(attempt, graph, engine, checkpoints=checkpoints))
    return attempt


def taken(leader: Leader, attempt: AttemptId, driver: ProcessIdentity) -> None:
    leader.directory(attempt).driver.write_text(json.dumps(dataclasses.asdict(driver)))


@contextlib.contextmanager
def sleeper() -> Iterator[tuple[ProcessIdentity, subprocess.Popen[bytes]]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    try:
        yield identity, process
    finally:
        process.kill()
        process.wait()


LOCKER = """
import fcntl, os, sys
fd = os.open(os.path.join(sys.argv[1], "driver.lock"), os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(directory: AttemptDirectory) -> Iterator[int]:
    """Another process has the attempt, and has not said who it is."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(directory.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process.pid
    finally:
        process.communicate(timeout=20)


def dead() -> ProcessIdentity:
    with sleeper() as (identity, _):
        return identity


def test_what_is_found_of_an_attempt(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path / "jobs") as leader:
            find = leader.executor.find
            assert await find(AttemptId(new_job_id(), 3)) is Presence.ABSENT
            assert not (tmp_path / "jobs").exists()
            graph = numbers(1, tmp_path / "o")
            intended = prepared(leader, graph, None)
            assert await find(intended) is Presence.ABSENT
            # A driver that has taken the attempt, and has not said so yet.
            with locked(leader.directory(intended)):
                assert await find(intended) is Presence.RUNNING
            assert await find(intended) is Presence.ABSENT
            died = prepared(leader, graph, None)
            taken(leader, died, dead())
            assert await find(died) is Presence.RUNNING
            assert (await leader.executor.wait(died)).state is AttemptState.FAILED
            assert await find(died) is Presence.ENDED

    asyncio.run(main())


def test_find_waits_for_a_driver_that_is_about_to_take_the_attempt(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.jobmaster.local_executor.FIND_SECONDS", 20)

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            finding = asyncio.create_task(leader.executor.find(attempt))
            assert await still_waits(finding)
            taken(leader, attempt, dead())
            assert await finding is Presence.RUNNING

    asyncio.run(main())


def test_fence_of_an_attempt_that_never_began_spends_its_id(configuration: Configuration, tmp_path: Path) -> None:
    """Without a zygote and without an engine: nothing can have been made there."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            with sleeper() as (engine, _):
                attempt = prepared(leader, numbers(1, tmp_path / "o"), fake_engine(engine))
                result = await leader.executor.fence(attempt)
                assert (result.state, result.note) == (AttemptState.CANCELED, "called off before it started")
                assert await leader.executor.fence(attempt) == result
                await leader.executor.start(Deployment(attempt, numbers(1, tmp_path / "o"), fake_engine(engine)))
                assert await leader.executor.wait(attempt) == result
                assert leader.executor._own is None
                absent = AttemptId(new_job_id(), 1)
                assert (await leader.executor.fence(absent)).state is AttemptState.CANCELED

    asyncio.run(main())


def test_fence_says_when_the_engine_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    """As long as the session may run, the attempt has no result; when the engine is gone, it has."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, sleeper() as (engine, process):
            async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
                record = fake_engine(engine, silent.getsockname()[1])
                attempt = prepared(leader, numbers(1, tmp_path / "o"), record)
                taken(leader, attempt, dead())
                began = time.monotonic()
                with pytest.raises(EngineLostError, match="engine fake at localhost"):
                    await leader.executor.fence(attempt)
                assert time.monotonic() - began < 60
                assert leader.directory(attempt).read_result() is None
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                assert await still_waits(waiting)
                process.kill()
                process.wait()
                result = await leader.executor.fence(attempt)
                assert result.state is AttemptState.CANCELED
                async with asyncio.timeout(20):
                    assert await waiting == result

    asyncio.run(main())


def test_fence_does_not_trust_a_failed_driver_to_have_released_its_session(cluster: Cluster, tmp_path: Path) -> None:
    """It failed because its engine did not answer: its session may run again when the engine does."""
    failed = AttemptResult(AttemptState.FAILED, Failure(FailureKind.ENGINE_LOST, "no answer"), 1.0)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, sleeper() as (engine, _):
            async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
                record = fake_engine(engine, silent.getsockname()[1])
                attempt = prepared(leader, numbers(1, tmp_path / "o"), record)
                taken(leader, attempt, dead())
                leader.directory(attempt).write_result(failed)
                assert await leader.executor.wait(attempt) == failed
                with pytest.raises(EngineLostError):
                    await leader.executor.fence(attempt)
                leader.directory(attempt).released.touch()
                assert await leader.executor.fence(attempt) == failed

    asyncio.run(main())


def test_fence_kills_a_driver_whose_lock_is_gone(configuration: Configuration, tmp_path: Path) -> None:
    """User code may close every descriptor of its process, and the lock with them."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            with sleeper() as (driver, process):
                attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
                taken(leader, attempt, driver)
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                assert (await leader.executor.fence(attempt)).state is AttemptState.CANCELED
                assert process.wait(5) == -signal.SIGKILL
                assert (await waiting).state is AttemptState.CANCELED

    asyncio.run(main())


def test_leader_that_is_held_up_while_it_ends_the_work_does_not_hold_the_attempt(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4, I7: a leader that is stopped while it waits for an engine keeps nobody else from fencing the attempt."""
    at_work, go_on = threading.Event(), threading.Event()

    def held_up(*_: Any, **__: Any) -> None:
        at_work.set()
        assert go_on.wait(60)

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader, leading(configuration, tmp_path) as following:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            taken(leader, attempt, dead())
            monkeypatch.setattr(leader.executor, "_release", held_up)
            fencing = asyncio.create_task(leader.executor.fence(attempt))
            assert await asyncio.to_thread(at_work.wait, 60)
            with locked(leader.directory(attempt)):
                pass  # another process can have it
            result = await following.executor.fence(attempt)
            assert result.state is AttemptState.CANCELED
            go_on.set()
            assert await fencing == result

    asyncio.run(main())


def test_attempt_that_is_held_and_not_let_go_cannot_be_fenced(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.jobmaster.local_executor.CLAIM_SECONDS", 0.5)

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            with locked(leader.directory(attempt)) as pid, pytest.raises(FiresteelError, match=f"process {pid},"):
                await leader.executor.fence(attempt)
            assert (await leader.executor.fence(attempt)).state is AttemptState.CANCELED

    asyncio.run(main())


def test_checkpoint_waits_for_the_batch_in_flight(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path / "jobs") as leader:
            with sleeper() as (driver, process):
                attempt = prepared(leader, stream(tmp_path, files=0), None, checkpoints=str(tmp_path / "c"))
                taken(leader, attempt, driver)
                assert await leader.executor.checkpoint(attempt) == {"o": -1}
                for kind, last in (("offsets", 11), ("commits", 9)):
                    (tmp_path / "c" / "o" / kind).mkdir(parents=True)
                    for n in range(last + 1):
                        (tmp_path / "c" / "o" / kind / str(n)).touch()
                        (tmp_path / "c" / "o" / kind / f".{n}.crc").touch()
                asking = asyncio.create_task(leader.executor.checkpoint(attempt))
                assert await still_waits(asking)
                (tmp_path / "c" / "o" / "commits" / "10").touch()
                assert await still_waits(asking)
                (tmp_path / "c" / "o" / "commits" / "11").touch()
                (tmp_path / "c" / "o" / "offsets" / "12").touch()
                assert await asking == {"o": 11}
                asking = asyncio.create_task(leader.executor.checkpoint(attempt))
                process.kill()
                process.wait()
                with pytest.raises(FiresteelError, match="ended before the batch"):
                    await asking

    asyncio.run(main())


def test_forgotten_attempt_keeps_its_logs_and_no_secret(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            secret = dataclasses.replace(fake_engine(None), token="do-not-tell")
            attempt = prepared(leader, numbers(1, tmp_path / "o"), secret)
            directory = leader.directory(attempt)
            await leader.executor.stop(attempt)
            for file in (directory.stdout, directory.stderr, directory.events):
                file.write_text("")
            (directory.root / "jvm-1").mkdir()
            await leader.executor.forget(attempt)
            assert (await leader.executor.wait(attempt)).state is AttemptState.CANCELED
            await leader.executor.forget(attempt)
            await leader.executor.forget(AttemptId(new_job_id(), 1))
            kept = {f.name for f in directory.root.iterdir()}
            assert kept == {"stdout.log", "stderr.log", "events.jsonl", "result.json"}
            assert await leader.executor.find(attempt) is Presence.ENDED
            await leader.executor.start(Deployment(attempt, numbers(1, tmp_path / "o"), secret))
            assert not directory.spec.exists()

    asyncio.run(main())


def test_attempt_that_cannot_be_started_says_why_and_can_be_fenced(
    configuration: Configuration, tmp_path: Path
) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = AttemptId(new_job_id(), 1)
            deployment = Deployment(attempt, numbers(1, tmp_path / "o"), fake_engine(None))
            leader.executor._python = str(tmp_path / "no-python")
            with pytest.raises(FiresteelError, match="no-python"):
                await leader.executor.start(deployment)
            assert (await leader.executor.fence(attempt)).state is AttemptState.CANCELED

    asyncio.run(main())


def test_driver_that_yields_leaves_the_result_to_the_one_that_has_the_attempt(cluster: Cluster, tmp_path: Path) -> None:
    """Our driver finds the attempt taken; we wait for the one that has it."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            directory = leader.directory(attempt)
            finished = AttemptResult(AttemptState.FINISHED, ended_at=1.0)
            with sleeper() as (other, _), locked(directory):
                taken(leader, attempt, other)
                args = {"directory": str(directory.root)}
                made = cluster.pool.spawn(
                    "attempt", args, stdout=directory.stdout, stderr=directory.stderr, cwd=tmp_path
                )
                leader.executor._drivers[attempt] = made
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                exited = await asyncio.to_thread(made.exited.result, 30)
                assert exited.status == NOT_MINE
                assert await still_waits(waiting)
                directory.write_result(finished)
            async with asyncio.timeout(10):
                assert await waiting == finished
            assert leader.executor._drivers == {}

    asyncio.run(main())


def test_finished_attempt_is_told_before_its_driver_has_tidied_up(cluster: Cluster, tmp_path: Path) -> None:
    """The driver rings when its result is written. What it does after that, others need not wait for; `forget` does."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
            await leader.executor.open()
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            directory = leader.directory(attempt)
            finished = AttemptResult(AttemptState.FINISHED, ended_at=1.0)
            with sleeper() as (driver, _):
                taken(leader, attempt, driver)
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                assert await still_waits(waiting)
                directory.write_result(finished)
                ring(directory.jobs, directory.attempt)
                async with asyncio.timeout(10):
                    assert await waiting == finished
                assert driver.alive
                forgetting = asyncio.create_task(leader.executor.forget(attempt))
                assert await still_waits(forgetting)
            async with asyncio.timeout(10):
                await forgetting
            assert not directory.spec.exists()

    asyncio.run(main())


def test_bell_of_a_node_that_is_gone_is_removed(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            jobs = leader.directory(AttemptId(new_job_id(), 1)).jobs
            jobs.mkdir(parents=True, exist_ok=True)
            stale = jobs / ".bells" / "4194303"
            stale.parent.mkdir()
            stale.touch()
            await leader.executor.open()
            assert not stale.exists()
            assert [p.name for p in stale.parent.iterdir()] == [str(os.getpid())]
        assert list(stale.parent.iterdir()) == []

    asyncio.run(main())


def test_a_running_attempt_costs_little(configuration: Configuration, tmp_path: Path) -> None:
    count = 50

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            with sleeper() as (driver, process):
                attempts = [prepared(leader, numbers(1, tmp_path / "o"), None) for _ in range(count)]
                for attempt in attempts:
                    taken(leader, attempt, driver)
                    leader.directory(attempt).events.write_text('{"t": 1, "type": "phase", "phase": "running"}\n' * 100)
                await leader.executor.progress(attempts[0])
                threads = leader.executor._threads._threads
                tracemalloc.start()
                before, _ = tracemalloc.get_traced_memory()
                waiting = [asyncio.create_task(leader.executor.wait(a)) for a in attempts]
                for attempt in attempts:
                    await leader.executor.progress(attempt)
                after, _ = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert (after - before) / count < 30_000
                assert len(threads) <= 16
                process.kill()
                process.wait()
                results = await asyncio.gather(*waiting)
                assert {r.state for r in results} == {AttemptState.FAILED}

    asyncio.run(main())


def test_lock_file_is_not_needed_to_tell_that_an_attempt_is_over(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            with claimed(leader.directory(attempt).root) as mine:
                assert mine
            assert await leader.executor.find(attempt) is Presence.ABSENT
            assert conforms(leader.executor) is leader.executor

    asyncio.run(main())
