"""What others may ask of the Dispatcher, wherever it runs. The REST endpoint speaks to this and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from firesteel.resourcemanager.manager import ResourceOverview
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.types import JobID


@dataclass(frozen=True, slots=True)
class JobOverview:
    """One line in a list of jobs."""

    job_id: JobID
    name: str
    status: JobStatus
    submitted_at: float
    ended_at: float | None
    attempt: int
    restarts: int


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """How many jobs are in which state, and what they can run on."""

    jobs: Mapping[JobStatus, int]
    resources: ResourceOverview


class DispatcherGateway(Protocol):
    """Every method raises NotLeadingError on a node that does not lead, or has just stopped to."""

    async def submit_job(self, submission: Submission) -> None:
        """Returns once the job is durable (I1). Repeating the very same submission is answered alike and runs once (I3).

        Raises DuplicateJobError when the id belongs to another job, running or ended; InvalidPipelineError when the graph
        cannot be run as it is; a StoreError when it could not be stored, after which it may or may not run: ask, or repeat.
        """
        ...

    async def list_jobs(self) -> Sequence[JobOverview]: ...

    async def request_job(self, job_id: JobID) -> dict[str, Any]:
        """The ExecutionGraph, of a running job or of an ended one that is still kept."""
        ...

    async def request_job_status(self, job_id: JobID) -> JobStatus: ...

    async def request_job_result(self, job_id: JobID) -> JobResult:
        """Waits for the end of the job."""
        ...

    async def cancel_job(self, job_id: JobID) -> None:
        """Returns once the wish is durable: the job is stopped within 10 s and never runs again (I10)."""
        ...

    async def stop_job(self, job_id: JobID, trigger_id: str) -> None:
        """Let a streaming job end after the batch that it is at; its checkpoint stays. Ask `request_operation`."""
        ...

    async def trigger_checkpoint(self, job_id: JobID, trigger_id: str) -> None:
        """Find out up to which batch everything read so far is committed. Ask `request_operation`."""
        ...

    async def trigger_savepoint(self, job_id: JobID, trigger_id: str, target: str | None = None) -> None: ...

    async def request_operation(self, job_id: JobID, trigger_id: str) -> Operation: ...

    async def report_client_heartbeat(self, job_id: JobID) -> None:
        """The client that asked for it still wants this job."""
        ...

    async def request_cluster_overview(self) -> ClusterOverview: ...

    async def shut_down(self) -> None:
        """End this node, which leads; running jobs go on, and another node of the cluster, if there is one, leads next."""
        ...
