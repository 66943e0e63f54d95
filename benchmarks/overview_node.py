"""`python -m benchmarks.overview_node DIRECTORY REQUESTS`: a node with 11,000 jobs, and how long their list takes.

The client is a thread with a plain socket, so that what is measured is the answer, not a parser of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.control_node import Plane

from firesteel.blob.store import BlobStore
from firesteel.client.discovery import LocalCluster, find_local
from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.entrypoint.node_metrics import measuring
from firesteel.errors import NotLeadingError
from firesteel.flink_rest.routes import FLINK
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.jobgraph.model import JobGraph
from firesteel.rest.endpoint import WebMonitorEndpoint
from firesteel.status import JobStatus
from firesteel.stores.job_keys import JobKeys
from firesteel.stores.secrets import NodeKeys
from firesteel.stores.workers import WorkerStore

ENDED, RUNNING = 10_000, 1_000
WARM_UP = 20
GRAPH = {
    "name": "trivial",
    "vertices": [
        {"kind": "sql", "name": "one", "query": "SELECT 1"},
        {"kind": "sink", "name": "nowhere", "input": "one", "format": "noop", "mode": "overwrite"},
    ],
}


class View:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    @property
    def dispatcher(self) -> DispatcherGateway:
        return self._plane.dispatcher

    @property
    def epoch(self) -> Epoch:
        return self._plane.runner.epoch

    def leader(self) -> LeaderInformation | None:
        return None

    @property
    def absence(self) -> Absence | None:
        return None

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        await asyncio.sleep(timeout)

    async def others_wait(self) -> bool | None:
        return None

    def begin_hand_over(self) -> None:
        raise NotLeadingError("a benchmark has nobody to give it to")


@contextlib.asynccontextmanager
async def served(plane: Plane, directory: Path) -> AsyncIterator[LocalCluster]:
    """The plane's REST endpoint, and how it is reached."""
    root = directory / "clusters" / plane.configuration.high_availability.cluster_id
    root.mkdir(parents=True, exist_ok=True)
    blobs = BlobStore(root / "blobs", max_size=1, quota=1)
    await blobs.open()
    try:
        endpoint = WebMonitorEndpoint(
            plane.configuration,
            root,
            blobs,
            NodeKeys(plane.ha.store),
            WorkerStore(plane.ha.store),
            facade=FLINK,
            job_of_key=JobKeys(plane.ha.store),
            metrics=plane.metrics,
        )
        async with measuring(plane.configuration, plane.metrics), endpoint(View(plane)):
            local = find_local(plane.configuration)
            assert local is not None
            yield local
    finally:
        await blobs.close()


async def measure(directory: Path, requests: int) -> dict[str, Any]:
    before = await Plane.open(directory, engines=False)
    await before.load_finished(ENDED)
    await before.close()
    plane = await Plane.open(directory, engines=True, slots=RUNNING + 100)
    await plane.submit(JobGraph.model_validate(GRAPH), RUNNING)
    await plane.until(JobStatus.RUNNING, RUNNING)
    async with served(plane, directory) as local:
        assert local.token is not None
        found = await asyncio.to_thread(_ask, local.address, local.token, requests)
    await plane.close()
    return found


def _ask(address: str, token: str, requests: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    times = []
    for number in range(WARM_UP + requests):
        began = time.perf_counter()
        connection.request("GET", "/jobs/overview", headers={"Authorization": f"Bearer {token}"})
        body = connection.getresponse().read()
        if number >= WARM_UP:
            times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    jobs = json.loads(body)["jobs"]
    running = sum(j["state"] == "RUNNING" for j in jobs)
    assert (len(jobs), running) == (ENDED + RUNNING, RUNNING), (len(jobs), running)
    times.sort()
    return {
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[int(len(times) * 0.99)],
        "max_ms": times[-1],
        "requests": len(times),
        "jobs": len(jobs),
        "bytes": len(body),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2])))))
