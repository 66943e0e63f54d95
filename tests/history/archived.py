"""Archives as clusters write them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from firesteel.dispatcher.archiving import archived
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.execution_graph import execution_graph
from firesteel.jobmaster.machine import JobState
from firesteel.status import JobStatus
from firesteel.stores.history import pack
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.types import JobID

GRAPH = {
    "name": "orders",
    "vertices": [
        {"kind": "source", "name": "raw", "format": "csv", "path": "/in/orders.csv", "schema": "id INT, amount DOUBLE"},
        {
            "kind": "sql",
            "name": "sums",
            "query": "SELECT id, sum(amount) AS total FROM raw GROUP BY id",
            "inputs": ["raw"],
        },
        {"kind": "sink", "name": "out", "input": "sums", "format": "parquet", "path": "/out/sums", "mode": "overwrite"},
    ],
}
EPOCH = 1_700_000_000.0


def job(number: int) -> JobID:
    return JobID(f"{number:032x}")


def details(
    number: int,
    *,
    owner: str = "alice",
    name: str = "orders",
    status: JobStatus = JobStatus.FINISHED,
    ended_at: float | None = None,
    progress: dict[str, Any] | None = None,
    graph: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The execution graph of an ended job."""
    model = JobGraph.model_validate({**(graph or GRAPH), "name": name})
    at = EPOCH + number if ended_at is None else ended_at
    submission = Submission(job(number), model, at - 10, "digest", owner=owner)
    result = JobResult(job(number), name, status, None, at - 10, at - 9, at, 1, 0, "digest", owner=owner, vertices=3)
    state = JobState(model.settings.restart, attempt=1)
    return execution_graph(submission, state, progress or {}, now=time.time(), result=result)


def put(directory: Path, number: int, operations: tuple[Operation, ...] = (), **more: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{job(number)}.json.gz"
    file.write_bytes(pack(job(number), archived(details(number, **more), operations)))
    return file
