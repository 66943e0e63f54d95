"""Attempts of a leader on this host: graphs, what came out, and attempts that only look like ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.conftest import Cluster, graph_of
from tests.support.guards import certain
from tests.support.sleeper import sleeper

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptSpec
from firesteel.config import Configuration
from firesteel.engines.api import EngineApi
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import EngineLostError
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.executor import LocalAttemptExecutor
from firesteel.worker.pool import DriverPool

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
                return await leader.executor.fence(attempt, guard=certain)


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


def fake_engine(process: ProcessIdentity | None, port: int = 1) -> EngineRecord:
    return EngineRecord("fake", EngineSpec("local[1]"), "localhost", port, process=process)


def prepared(
    leader: Leader, graph: JobGraph, engine: EngineRecord | None, checkpoints: str = "", *, owner: str = ""
) -> AttemptId:
    """An attempt of an earlier life, of which there is a spec and nothing else."""
    attempt = AttemptId(new_job_id(), 1)
    leader.directory(attempt).prepare(AttemptSpec(attempt, graph, engine, checkpoints=checkpoints, owner=owner))
    return attempt


def taken(leader: Leader, attempt: AttemptId, driver: ProcessIdentity) -> None:
    leader.directory(attempt).driver.write_text(json.dumps(dataclasses.asdict(driver)))


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
    with sleeper() as process:
        return process
