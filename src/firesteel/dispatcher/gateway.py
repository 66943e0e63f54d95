"""The Dispatcher's interface to the rest of the node. The REST endpoint talks to this and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from firesteel.fleet.enrollment import Enrollment
from firesteel.fleet.view import FleetView, WorkerSessions
from firesteel.jobmaster.events import Subscription
from firesteel.resourcemanager.manager import ResourceOverview
from firesteel.status import JobStatus
from firesteel.stores.applications import ApplicationRecord
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.stores.uploads import Upload
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
    changed_at: float
    """When it entered its current state."""
    owner: str = ""
    mode: str = "batch"
    vertices: int = 0
    kind: str = "batch"
    """The mode, or `script` or `interactive`."""


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """How many jobs are in each state, and what they can run on."""

    jobs: Mapping[JobStatus, int]
    resources: ResourceOverview


class DispatcherGateway(Protocol):
    """Every method raises NotLeadingError on a node that does not lead, or has just stopped leading."""

    @property
    def fleet(self) -> FleetView:
        """The workers."""
        ...

    @property
    def enrollment(self) -> Enrollment:
        """How hosts become workers."""
        ...

    async def submit_job(self, submission: Submission) -> None:
        """Returns once the job is durable (I1). Repeating the very same submission is answered alike and runs once (I3).

        Raises DuplicateJobError when the id belongs to another job, running or ended; InvalidPipelineError when the graph
        cannot be run as it is; a StoreError when it could not be stored, after which it may or may not run: ask, or repeat.
        """
        ...

    @property
    def sessions(self) -> WorkerSessions:
        """What workers themselves ask for."""
        ...

    async def request_application(self) -> ApplicationRecord | None:
        """The application that this cluster lives for; None in a session cluster."""
        ...

    async def cancel_application(self) -> None:
        """Cancel the program and all jobs of the application. Raises JobStateError when there is none, or it has ended."""
        ...

    async def list_jobs(self) -> Sequence[JobOverview]: ...

    async def list_ended(self) -> Sequence[JobOverview]:
        """The jobs that have ended, the last one first."""
        ...

    async def recall(self, job_id: JobID) -> str | None:
        """The owner of a job that is not known here any more, by its archive, for those who only read; None when the job is
        known, or has no archive. `request_job` and its like show a job that was recalled; `owner_of`, which decides what may be
        done, does not know it."""
        ...

    def owner_of(self, job_id: JobID) -> str:
        """Whose job it is. Raises JobNotFoundError."""
        ...

    def events(self, job_id: JobID | None = None) -> Subscription:
        """What happens to a job, or to all of them, from now on; see `jobmaster.events`."""
        ...

    async def request_job(self, job_id: JobID) -> dict[str, Any]:
        """The ExecutionGraph, of a running job or of an ended one that is still kept."""
        ...

    async def request_job_status(self, job_id: JobID) -> JobStatus: ...

    async def request_job_result(self, job_id: JobID) -> JobResult:
        """Waits for the end of the job."""
        ...

    async def cancel_job(self, job_id: JobID, *, keep_checkpoint: bool | None = None) -> None:
        """Returns once the wish is durable: the job is stopped within 10 s and never runs again (I10).

        `keep_checkpoint` overrides what is configured for the checkpoint of a stream. Of several cancels the first
        counts.
        """
        ...

    async def stop_job(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, savepoint: bool = True
    ) -> None:
        """Let a streaming job end after its current batch, then take a savepoint in a directory below `target` (else
        `state.savepoints.dir`). Its checkpoint stays too. A place that cannot be written to leaves the job running (I14).

        Ask `request_operation`: `status`, `checkpoint`, and of the savepoint `location` and `batches`.
        """
        ...

    async def trigger_checkpoint(self, job_id: JobID, trigger_id: str) -> None:
        """Find out up to which batch everything read so far is committed. Ask `request_operation`."""
        ...

    async def trigger_savepoint(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, cancel: bool = False
    ) -> None:
        """Take a savepoint of a running streaming job, which does not notice; with `cancel` it is cancelled afterwards.

        It goes into a directory below `target`, else below `state.savepoints.dir`, whose name is derived from job and trigger
        id. Ask `request_operation`: `location`, and `batches`, the last batch by sink. Raises InvalidRequestError for a
        target where there can be none, JobStateError for a job that can have none or does not run.
        """
        ...

    async def dispose_savepoint(self, path: str, trigger_id: str, *, owner: str = "") -> None:
        """Remove a savepoint on behalf of `owner`, who may dispose of everybody's. No job is concerned: ask `request_operation`
        for it with `stores.operations.NO_JOB`."""
        ...

    async def request_operation(self, job_id: JobID, trigger_id: str) -> Operation: ...

    async def list_operations(self, job_id: JobID) -> Sequence[Operation]:
        """The operations that were triggered for the job and are still remembered, oldest first."""
        ...

    async def report_client_heartbeat(self, job_id: JobID) -> None:
        """The client that asked for it still wants this job."""
        ...

    async def request_cluster_overview(self) -> ClusterOverview: ...

    async def register_upload(self, upload: Upload) -> None:
        """Keep the record of an uploaded program. Raises QuotaExceededError when its owner has too many."""
        ...

    async def list_uploads(self) -> Sequence[Upload]:
        """The uploaded programs of all owners, oldest first."""
        ...

    async def remove_upload(self, upload_id: str) -> bool:
        """Forget an uploaded program; False when there was none. Jobs that run it are not touched."""
        ...

    async def shut_down(self) -> None:
        """End this node, which leads; running jobs go on, and another node of the cluster, if there is one, leads next."""
        ...
