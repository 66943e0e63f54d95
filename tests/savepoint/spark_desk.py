"""Real streams on the engine of all tests: an input that grows, jobs that read it, and what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import Cluster, graph_of
from tests.savepoint.fake_query import files_below
from tests.support.engine_shape import SHAPE

from firesteel.attempts.committed import Committed
from firesteel.config import load_configuration
from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.errors import NotLeadingError
from firesteel.hosts import this_user
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.savepoint.manifest import REQUEST
from firesteel.stores.job_graphs import Submission
from firesteel.stores.operations import Operation, OperationStatus
from firesteel.types import JobID, new_job_id

ROWS = 10
WINDOW = 3
"""Minutes; each file is one."""


class Input:
    """A directory of files, a minute each. Each has new ids, and all ids of the file before once more."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.files = 0
        self._began = time.time() - 3600

    def feed(self, files: int) -> None:
        for _ in range(files):
            n = self.files
            temporary = self.directory / f".{n}"
            temporary.write_text("".join(f'{{"id": {i}, "at": "2024-01-01T00:{n:02}:00Z"}}\n' for i in self._ids_of(n)))
            # Spark reads the older one first.
            os.utime(temporary, (self._began + n, self._began + n))
            temporary.rename(self.directory / f"{n:03}.json")
            self.files += 1

    def _ids_of(self, file: int) -> range:
        return range(max(0, file - 1) * ROWS, (file + 1) * ROWS)

    @property
    def ids(self) -> list[int]:
        return list(range(self.files * ROWS))

    @property
    def totals(self) -> list[tuple[int, int]]:
        """Of each window that is over: how many rows, repeated ones too, and the sum of their ids."""
        windows = [range(first, first + WINDOW) for first in range(0, self.files - WINDOW, WINDOW)]
        rows = [[i for n in window for i in self._ids_of(n)] for window in windows]
        return sorted((len(ids), sum(ids)) for ids in rows)


def rows_of_log(output: Path, up_to: int | None = None) -> list[dict[str, Any]]:
    """What the log of a file sink says is there, as Spark reads it; up to a batch."""
    log = output / "_spark_metadata"
    entries = {int(p.name.partition(".")[0]): p for p in log.glob("*") if p.name.partition(".")[0].isdecimal()}
    entries = {b: p for b, p in entries.items() if up_to is None or b <= up_to}
    first = max((b for b, p in entries.items() if p.name.endswith(".compact")), default=0)
    files = [
        json.loads(line)["path"].removeprefix("file://")
        for batch in sorted(b for b in entries if b >= first)
        for line in entries[batch].read_text().splitlines()[1:]
    ]
    return [row for f in files for row in pq.read_table(f).to_pylist()]


class Desk:
    def __init__(self, gateway: DispatcherGateway, root: Path) -> None:
        self.gateway = gateway
        self.root = root
        self.input = Input(root / "in")

    def graph(
        self,
        name: str,
        *,
        restore: str | None = None,
        totals: bool = False,
        restarts: int = 0,
        ids: str = "SELECT id FROM s",
    ) -> JobGraph:
        """`ids` forgets no id that it has seen; `totals` counts and sums the rows of three files at a time."""

        def sink(vertex: str, input_: str) -> dict[str, Any]:
            path = str(self.root / name / vertex)
            fields = {"kind": "sink", "format": "parquet", "trigger": "100 ms"}
            return {**fields, "name": vertex, "input": input_, "path": path}

        distinct = {"kind": "sql", "name": "new", "query": ids, "inputs": ["s"]}
        query = f"SELECT count(*) n, sum(id) total FROM timed GROUP BY window(at, '{WINDOW} minutes')"
        vertices: list[dict[str, Any]] = [
            {
                "kind": "source",
                "name": "s",
                "format": "json",
                "path": str(self.input.directory),
                "schema": "id BIGINT, at TIMESTAMP",
                "options": {"maxFilesPerTrigger": 1},
            },
            {**distinct, "deduplicate": {"columns": ["id"]}},
            sink("ids", "new"),
        ]
        if totals:
            timed = {"kind": "sql", "name": "timed", "query": "SELECT id, at FROM s", "inputs": ["s"]}
            vertices += [
                {**timed, "watermark": {"column": "at", "delay": "0 s"}},
                {"kind": "sql", "name": "sums", "query": query, "inputs": ["timed"]},
                sink("totals", "sums"),
            ]
        settings: dict[str, Any] = {"restore": {"path": restore}} if restore is not None else {}
        if restarts:
            settings["restart"] = {"type": "fixed-delay", "attempts": restarts, "delay": "100 ms"}
        return graph_of(*vertices, mode="streaming", parallelism=1, settings=settings)

    async def submit(self, graph: JobGraph, *, resumes: str = "") -> JobID:
        job_id = new_job_id()
        # The engine of all tests is the user's who runs them.
        submission = Submission(job_id, graph, 0.0, digest_of(graph), owner=this_user(), resumes=resumes)
        await self.gateway.submit_job(submission)
        return job_id

    async def until(self, condition: Callable[[], Any | Awaitable[Any]], job_id: JobID | None = None) -> None:
        try:
            async with asyncio.timeout(240):
                while True:
                    found = condition()
                    if await found if isinstance(found, Awaitable) else found:
                        return
                    if job_id is not None and (await self.gateway.request_job_status(job_id)).terminal:
                        pytest.fail(f"the job ended: {await self.gateway.request_job_result(job_id)}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"it did not come to that: {job_id and await self.gateway.request_job(job_id)}")

    async def runs(self, job_id: JobID) -> Any:
        return (await self.gateway.request_job(job_id))["progress"]["query_runs"]

    async def committed(self, job_id: JobID) -> Committed:
        """What is told of the batches of the sink `ids`."""
        log = (await self.gateway.request_job(job_id))["checkpoints"].get("ids")
        return Committed() if log is None else Committed.from_json(log)

    async def done(self, job_id: JobID, trigger: str) -> Operation:
        async def ended() -> bool:
            operation = await self.gateway.request_operation(job_id, trigger)
            return operation.status is not OperationStatus.IN_PROGRESS

        await self.until(ended)
        operation = await self.gateway.request_operation(job_id, trigger)
        assert (operation.status, operation.error) == (OperationStatus.COMPLETED, "")
        return operation

    # -- what came of it --------------------------------------------------------------------------------------------

    def rows(self, name: str, vertex: str, up_to: int | None = None) -> list[dict[str, Any]]:
        return rows_of_log(self.root / name / vertex, up_to)

    def ids(self, name: str, up_to: int | None = None) -> list[int]:
        return sorted(r["id"] for r in self.rows(name, "ids", up_to))

    def totals(self, name: str) -> list[tuple[int, int]]:
        return sorted((r["n"], r["total"]) for r in self.rows(name, "totals"))

    def visible_ids(self, name: str) -> list[int]:
        """What a reader finds that does not know of the log."""
        files = (self.root / name / "ids").glob("*.parquet")
        return sorted(i for f in files for i in pq.read_table(f).column("id").to_pylist())

    def files_of(self, savepoint: str) -> set[str]:
        return files_below(Path(savepoint))

    def size_of(self, savepoint: str) -> int:
        """Of the data, without the manifest."""
        return sum(f.stat().st_size for f in Path(savepoint).glob("data-*/**/*") if f.is_file())

    def begin_savepoint(self, savepoint: str) -> None:
        os.makedirs(savepoint)
        Path(savepoint, REQUEST).write_text("{}")


@contextlib.asynccontextmanager
async def desk(cluster: Cluster, root: Path) -> AsyncIterator[Desk]:
    """A cluster of one node, on the engine of all tests."""
    await asyncio.to_thread(cluster.engine)
    overrides = {
        **SHAPE,
        "data.dir": str(cluster.configuration.data.dir),
        "engine.max": "1",
        "spark.sql.shuffle.partitions": "4",
        "high-availability.type": "none",
        "high-availability.cluster-id": f"savepoints-{uuid.uuid4().hex[:8]}",
        "state.checkpoints.dir": str(root / "checkpoints"),
        "state.savepoints.dir": str(root / "savepoints"),
    }
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    async with ClusterEntrypoint(load_configuration(overrides=overrides, environ=environ)).open() as component:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(NotLeadingError):
                    if (await component.dispatcher.request_cluster_overview()).resources.engines:
                        break  # it has found the engine, and starts no other
                await asyncio.sleep(0.05)
        made = Desk(component.dispatcher, root)
        try:
            yield made
        finally:
            for job in await made.gateway.list_jobs():
                if not job.status.terminal:
                    await made.gateway.cancel_job(job.job_id)
                    await made.gateway.request_job_result(job.job_id)
