"""Interactive sessions: a job that holds a Spark session for a notebook or shell, and is found again by its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firesteel.client.cluster import ClusterClient
from firesteel.client.errors import ClusterError
from firesteel.client.job import JobClient
from firesteel.errors import FiresteelError, JobNotFoundError, JobStateError
from firesteel.jobgraph.model import JobGraph
from firesteel.status import JobStatus

EVERYBODY = "*"
START_SECONDS = 30.0
POLL_SECONDS = 0.05
VERTEX = "session"


@dataclass(frozen=True, slots=True)
class OpenSession:
    job: JobClient
    remote: str
    """A Spark Connect URL with a credential in it."""
    found: bool
    """Whether the session existed already, with everything that was made in it."""


def session_graph(name: str, idle_timeout: str, settings: Mapping[str, str]) -> JobGraph:
    """The graph of an interactive job. Raises ValueError for what cannot be one."""
    return JobGraph.model_validate(
        {
            "name": name,
            "settings": {"spark": dict(settings)},
            "vertices": [{"name": VERTEX, "kind": "session", "idle_timeout": idle_timeout}],
        }
    )


def open_session(
    cluster: ClusterClient,
    graph: JobGraph,
    *,
    anew: bool = False,
    waiting: Callable[[JobStatus], None] = lambda status: None,
) -> OpenSession:
    """Open the caller's session of the graph's name, or else a new one. Returns once it can be used.

    Args:
        anew: Do not look for an existing one.
        waiting: Called with each state that the job enters before it runs.

    Raises:
        FiresteelError: The job ended before it could be used; says why.
    """
    job = None if anew else find_session(cluster, graph.name)
    if job is not None:
        return OpenSession(job, _address(job), found=True)
    job = cluster.submit(graph)
    for event in job.events():
        status = event.status
        if status is None:
            continue
        if status is JobStatus.RUNNING:
            return OpenSession(job, _address(job), found=False)
        if status.terminal:
            break
        waiting(status)
    result = job.wait()
    why = f": {result.failure.message}" if result.failure else ""
    raise FiresteelError(f"the session '{graph.name}' (job {job.job_id}) is {result.status.value}{why}")


def _address(job: JobClient) -> str:
    """Wait for the session: a job is RUNNING a moment before its driver knows what to do."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return job.session()
        except JobStateError:
            if time.monotonic() > deadline or job.status().terminal:
                raise
        time.sleep(POLL_SECONDS)


def find_session(cluster: ClusterClient, name: str) -> JobClient | None:
    """The caller's newest running session of this name."""
    me = cluster.whoami()
    mine = me.name if me.owner == EVERYBODY else me.owner
    rows = [row for row in cluster.jobs() if row.name == name and row.status is JobStatus.RUNNING]
    for row in sorted(rows, key=lambda row: row.started_at, reverse=True):
        job = cluster.job(row.job_id)
        try:
            details = job.details()
        except (JobNotFoundError, JobStateError, ClusterError):
            continue  # it ended a moment ago
        kinds = [vertex.get("kind") for vertex in details.get("vertices", ())]
        if details.get("owner") == mine and kinds == ["session"]:
            return job
    return None
