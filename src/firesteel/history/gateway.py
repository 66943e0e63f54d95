"""The archives as a DispatcherGateway: the routes of a node read from them, and changes are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from firesteel.dispatcher.archiving import ARCHIVED, operations_in
from firesteel.dispatcher.gateway import ClusterOverview, JobOverview
from firesteel.dispatcher.questions import unknown
from firesteel.errors import JobStateError, OperationNotFoundError
from firesteel.failure import Failure
from firesteel.fleet.enrollment import Enrollment
from firesteel.fleet.view import FleetView, WorkerSessions
from firesteel.jobmaster.events import JobEvents, Subscription, state_event
from firesteel.resourcemanager.overview import NO_RESOURCES
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.stores.uploads import Upload
from firesteel.types import JobID

from .archives import ArchivedJobs

READ_ONLY = "This is a history server: it only shows jobs that have ended. Send this request to a node of the cluster."
LISTED = 10_000
"""The number of jobs in lists without pages; `/history` has pages of all jobs."""


class HistoryGateway:
    def __init__(self, jobs: ArchivedJobs) -> None:
        self._jobs = jobs
        self._events = JobEvents()
        jobs.on_new = self._arrived

    def _arrived(self, job: JobOverview) -> None:
        """Notify listeners of a job that was archived."""
        self._events.publish(state_event(job.job_id, job.status, job.changed_at, attempt=job.attempt, cause="archived"))

    async def request_application(self) -> None:
        return None

    async def list_jobs(self) -> Sequence[JobOverview]:
        return self._jobs.newest_first()[:LISTED]

    async def list_ended(self) -> Sequence[JobOverview]:
        return self._jobs.newest_first()

    async def recall(self, _job_id: JobID) -> str | None:
        return None  # all archives are known

    def owner_of(self, job_id: JobID) -> str:
        return self._job(job_id).owner

    def events(self, job_id: JobID | None = None) -> Subscription:
        return self._events.subscribe(job_id)

    async def request_job(self, job_id: JobID) -> dict[str, Any]:
        details = await self._jobs.details(job_id)
        if details is None:
            raise unknown(job_id)
        return {**details, ARCHIVED: True}

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        return self._job(job_id).status

    async def request_job_result(self, job_id: JobID) -> JobResult:
        job, details = self._job(job_id), await self.request_job(job_id)
        failure = details.get("failure")
        return JobResult(
            job_id,
            job.name,
            job.status,
            Failure.from_json(failure) if isinstance(failure, dict) else None,
            job.submitted_at,
            details.get("started_at"),
            job.changed_at,
            job.attempt,
            job.restarts,
            digest="",
            owner=job.owner,
            mode=job.mode,
            vertices=job.vertices,
        )

    async def list_operations(self, job_id: JobID) -> Sequence[Operation]:
        return operations_in(await self.request_job(job_id))

    async def request_operation(self, job_id: JobID, trigger_id: str) -> Operation:
        found = [o for o in await self.list_operations(job_id) if o.trigger_id == trigger_id]
        if not found:
            raise OperationNotFoundError(f"job {job_id} has no operation {trigger_id}")
        return found[0]

    async def request_cluster_overview(self) -> ClusterOverview:
        return ClusterOverview(dict(Counter(job.status for job in self._jobs.newest_first())), NO_RESOURCES)

    async def list_uploads(self) -> Sequence[Upload]:
        return ()

    def _job(self, job_id: JobID) -> JobOverview:
        job = self._jobs.get(job_id)
        if job is None:
            raise unknown(job_id)
        return job

    # -- refused; the endpoint already refuses such requests --------------------------------------------------------

    @property
    def fleet(self) -> FleetView:
        _refuse()

    @property
    def sessions(self) -> WorkerSessions:
        _refuse()

    @property
    def enrollment(self) -> Enrollment:
        _refuse()

    async def submit_job(self, _submission: Submission) -> None:
        _refuse()

    async def cancel_application(self) -> None:
        _refuse()

    async def cancel_job(self, job_id: JobID, *, keep_checkpoint: bool | None = None) -> None:
        _refuse()

    async def stop_job(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, savepoint: bool = True
    ) -> None:
        _refuse()

    async def trigger_checkpoint(self, job_id: JobID, trigger_id: str) -> None:
        _refuse()

    async def trigger_savepoint(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, cancel: bool = False
    ) -> None:
        _refuse()

    async def dispose_savepoint(self, path: str, trigger_id: str, *, owner: str = "") -> None:
        _refuse()

    async def report_client_heartbeat(self, job_id: JobID) -> None:
        _refuse()

    async def register_upload(self, upload: Upload) -> None:
        _refuse()

    async def remove_upload(self, upload_id: str) -> bool:
        _refuse()

    async def shut_down(self) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise JobStateError(READ_ONLY)
