"""One control plane in a process of its own, for `control_plane.py`: `python -m benchmarks.control_node MODE DIR GRAPH N`.

Everything is the product's own, on a real SQLite file, except where Spark would be: engines that never come (so that jobs
wait), or attempts that just run (so that a thousand of them fit on a small machine).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptResult
from firesteel.blob.store import BlobStore
from firesteel.config import Configuration, load_configuration
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.entrypoint.wiring import Node, finished_jobs
from firesteel.errors import NotLeadingError
from firesteel.ha.protocols import HighAvailabilityServices
from firesteel.ha.services import open_high_availability
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.enrichers import FailureEnrichers, load_enrichers
from firesteel.jobmaster.executor import Deployment, Presence
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.metrics.registry import MetricRegistry
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.status import JobStatus
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.types import AttemptId, Guard, JobID, new_job_id
from firesteel.worker.offer import local_offer

CLIENTS = 32


class Engines:
    """Engines that are there at once, or never."""

    def __init__(self, *, come: bool) -> None:
        self._come = come

    async def start(self, spec: EngineSpec, worker: str) -> EngineRecord:
        if not self._come:
            await asyncio.Event().wait()
        me = ProcessIdentity.of(os.getpid())
        return EngineRecord("stub", spec, "localhost", 1, process=me, cores=2, worker=worker)

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        return record

    async def there(self, record: EngineRecord) -> bool:
        return True

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None: ...

    async def health(self, record: EngineRecord) -> EngineHealth:
        return EngineHealth.WELL

    async def last_words(self, record: EngineRecord) -> str:
        return ""

    async def existing(self) -> Sequence[EngineRecord]:
        return ()

    async def shared(self) -> Sequence[EngineRecord]:
        return ()

    async def close(self) -> None: ...


class Attempts:
    """Attempts that run until the process ends."""

    def place(self, attempt: AttemptId, worker: str) -> None: ...

    async def start(self, deployment: Deployment) -> None: ...

    async def find(self, attempt: AttemptId) -> Presence:
        return Presence.ABSENT

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        await asyncio.Event().wait()
        raise AssertionError

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None: ...

    async def stop(self, attempt: AttemptId) -> None: ...

    async def prune(self, job_id: JobID, keep: int) -> None: ...

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        raise AssertionError

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        return {}

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        return {}

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        return ()

    async def tidied(self, attempt: AttemptId) -> None: ...

    async def prepare_savepoint(self, *_: Any, **__: Any) -> None: ...

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        return {}

    async def savepoint(self, *_: Any, **__: Any) -> dict[str, int]:
        return {}

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None: ...

    async def dispose_savepoint(self, *_: Any, **__: Any) -> None: ...

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None: ...


class Plane:
    """A leading control plane on a directory."""

    def __init__(
        self,
        configuration: Configuration,
        ha: HighAvailabilityServices,
        runner: DispatcherRunner,
        *,
        metrics: MetricRegistry,
    ) -> None:
        self.configuration = configuration
        self.ha = ha
        self.runner = runner
        self.metrics = metrics

    @staticmethod
    async def open(
        directory: Path, *, engines: bool, slots: int = 8, options: Mapping[str, str] | None = None
    ) -> Plane:
        configuration = load_configuration(
            overrides={
                "data.dir": str(directory),
                "engine.master": "local[2]",
                "engine.slots": str(slots),
                "engine.max": "1",
                "rest.port": "0",
                **(options or {}),
            },
            environ={"HOME": str(directory)},
        )

        async def nothing(_submission: Submission, _result: JobResult) -> None: ...

        ha = await open_high_availability(configuration)
        node = Node(
            configuration=configuration,
            ha=ha,
            executor=Attempts(),
            engines=Engines(come=engines),
            finished=finished_jobs(configuration, lambda _: None),
            archivist=HistoryArchivist(None),
            clear_outputs=nothing,
            enrichers=FailureEnrichers(load_enrichers(())),
            files=JobFiles(BlobStore(directory / "blobs", max_size=1, quota=1), directory),
            worker_id="w",
            worker=local_offer(configuration, shared_engine_spec(configuration), "w"),
        )
        runner = node.dispatcher_runner(ha.election("bench"), address="bench", on_fatal=_die, on_shut_down=lambda: None)
        plane = Plane(configuration, ha, runner, metrics=node.metrics)
        await runner.start()
        while True:
            try:
                _ = runner.dispatcher
                return plane
            except NotLeadingError:
                await asyncio.sleep(0.01)

    @property
    def dispatcher(self) -> Dispatcher:
        return self.runner.dispatcher

    async def close(self) -> None:
        await self.runner.close()
        await self.ha.close()

    async def submit(self, graph: JobGraph, count: int) -> float:
        """Submissions a second, each acknowledged when it is durable, by clients side by side."""
        left = iter(range(count))

        async def client() -> None:
            for _ in left:
                # What the door does for each: the graph arrives as JSON and is understood.
                mine = JobGraph.model_validate_json(text)
                await self.dispatcher.submit_job(Submission(new_job_id(), mine, time.time(), digest_of(mine)))

        text = graph.to_json()
        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return count / (time.perf_counter() - began)

    async def until(self, status: JobStatus, count: int) -> None:
        while sum(j.status is status for j in await self.dispatcher.list_jobs()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def grow_files(self) -> None:
        """Values that come and go, so that a new database pays for the growth of its files before it is measured."""
        leader = await self.runner._election.leader()
        assert leader is not None

        async def one(number: int) -> None:
            await self.ha.store.put(f"growth/{number}", bytes(4000), epoch=leader.epoch)

        for start in range(0, 2_000, 200):
            await asyncio.gather(*(one(i) for i in range(start, start + 200)))
        for number in range(2_000):
            await self.ha.store.delete(f"growth/{number}", epoch=leader.epoch)

    async def load_finished(self, count: int) -> None:
        """Results of jobs that ended long ago, before the control plane starts."""
        store = JobResultStore(self.ha.store, 10**6)
        await store.load()
        leader = await self.runner._election.leader()
        assert leader is not None

        async def one(_: int) -> None:
            result = JobResult(
                new_job_id(), "orders", JobStatus.FINISHED, None, 1.0, 2.0, time.time(), 1, 0, digest="0" * 64
            )
            await store.put_dirty(result, epoch=leader.epoch)
            await store.mark_clean(result.job_id, epoch=leader.epoch)

        for start in range(0, count, 200):
            await asyncio.gather(*(one(i) for i in range(start, min(start + 200, count))))


def _die(error: BaseException) -> None:
    raise SystemExit(f"fatal: {error}")


def rss_mb() -> float:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def submissions(directory: Path, graph: JobGraph, count: int, rounds: int) -> dict[str, Any]:
    """An empty cluster and one with 10,000 finished and 1,000 waiting jobs, by turns."""
    before = await Plane.open(directory / "loaded", engines=False)
    await before.load_finished(10_000)
    await before.submit(graph, 1_000)
    await before.close()
    loaded = await Plane.open(directory / "loaded", engines=False)
    await loaded.until(JobStatus.CREATED, 1_000)
    await loaded.submit(graph, count)
    rows = []
    for number in range(rounds):
        empty = await Plane.open(directory / f"empty-{number}", engines=False)
        await empty.grow_files()
        await empty.submit(graph, 50)
        fast = await empty.submit(graph, count)
        await empty.close()
        rows.append({"empty": fast, "loaded": await loaded.submit(graph, count)})
    found = len(await loaded.dispatcher.list_jobs())
    assert found == 11_000 + count * (rounds + 1), found
    await loaded.close()
    return {"rounds": rows, "clients": CLIENTS, "count": count}


async def running(directory: Path, graph: JobGraph, count: int) -> dict[str, Any]:
    """Memory of jobs whose attempts run."""
    plane = await Plane.open(directory, engines=True, slots=count + 100)
    await plane.submit(graph, 50)  # whatever the first jobs make grow once
    await asyncio.sleep(1)
    gc.collect()
    before = rss_mb()
    await plane.submit(graph, count)
    await plane.until(JobStatus.RUNNING, count + 50)
    gc.collect()
    after = rss_mb()
    await plane.close()
    return {"before_mb": before, "after_mb": after, "jobs": count, "per_job_mb": (after - before) / count}


def main() -> None:
    mode, directory, graph_file, count, *rest = sys.argv[1:]
    graph = JobGraph.model_validate_json(Path(graph_file).read_text())
    if mode == "submissions":
        found = asyncio.run(submissions(Path(directory), graph, int(count), int(rest[0])))
    else:
        found = asyncio.run(running(Path(directory), graph, int(count)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
