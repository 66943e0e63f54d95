"""Read-only requests to a Dispatcher, answered from its table and the stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from firesteel.dispatcher.archiving import JobArchives, operations_in
from firesteel.dispatcher.details import JobDetails
from firesteel.dispatcher.gateway import ClusterOverview, JobOverview
from firesteel.dispatcher.job_table import Ended, Ending, JobTable, Live, Parked, Submitting
from firesteel.dispatcher.overviews import EndedJobs, live_row, unread_row
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import JobNotFoundError, OperationNotFoundError
from firesteel.fleet.enrollment import Enrollment
from firesteel.fleet.view import FleetView, WorkerSessions
from firesteel.jobmaster.events import Subscription
from firesteel.status import JobStatus
from firesteel.stores.applications import ApplicationRecord
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.stores.uploads import Upload
from firesteel.types import JobID


class JobQuestions:
    """The read-only half of the DispatcherGateway. Every method raises NotLeadingError once the table is closed."""

    def __init__(self, services: DispatcherServices) -> None:
        self._services = services
        self._table = JobTable(services.results)
        self._archives = JobArchives(services)
        self._details = JobDetails(services, self._table, self._archives)
        self._ended = EndedJobs(services.results)
        self.application: ApplicationRecord | None = None
        """The application that the cluster lives for; None in a session cluster."""
        self._given_up: set[JobID] = set()
        """Ended jobs whose clean-up was given up. They stay dirty, and nothing more happens here about them."""

    @property
    def fleet(self) -> FleetView:
        self._table.check_open()
        return self._services.fleet

    @property
    def sessions(self) -> WorkerSessions:
        self._table.check_open()
        return self._services.fleet

    @property
    def enrollment(self) -> Enrollment:
        self._table.check_open()
        return self._services.enrollment

    async def list_jobs(self) -> Sequence[JobOverview]:
        self._table.check_open()
        now = self._services.now()
        live, parked = self._table.live(), self._table.parked()
        rows = [live_row(runner) for runner in live]
        rows += [unread_row(job_id, entry.runner, now) for job_id, entry in parked]
        # A job without a result here may have one in the store, which its runner is about to see.
        return [*self._ended.rows(but={row.job_id for row in rows}), *rows]

    async def list_ended(self) -> Sequence[JobOverview]:
        ended = [job for job in await self.list_jobs() if job.ended_at is not None]
        return sorted(ended, key=lambda job: (job.ended_at or 0.0, job.job_id), reverse=True)

    def owner_of(self, job_id: JobID) -> str:
        self._table.check_open()
        if (runner := self._table.runner(job_id)) is not None:
            return runner.submission.owner
        if (result := self._table.result(job_id)) is not None:
            return result.owner
        raise unknown(job_id)

    async def recall(self, job_id: JobID) -> str | None:
        self._table.check_open()
        if self._table.runner(job_id) is not None or self._table.result(job_id) is not None:
            return None
        found = await self._archives.find(job_id)
        return None if found is None else str(found["owner"])

    async def request_job(self, job_id: JobID) -> dict[str, Any]:
        self._table.check_open()
        details = await self._details.of(job_id) or self._archives.recalled(job_id)
        if details is None:
            raise unknown(job_id)
        return details

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        self._table.check_open()
        match self._table.get(job_id):
            case Live(runner):
                return runner.shown.status
            case Parked():
                return JobStatus.RECONCILING
            case Ending(result) | Ended(result):
                return result.status
            case _ if (found := self._archives.recalled(job_id)) is not None:
                return JobStatus(found["status"])
            case _:
                raise unknown(job_id)

    async def request_job_result(self, job_id: JobID) -> JobResult:
        self._table.check_open()
        entry = self._table.get(job_id)
        while isinstance(entry, Live | Parked):
            entry = await self._table.changed(job_id)
        if isinstance(entry, Ending | Ended):
            return entry.result
        raise unknown(job_id)

    async def request_cluster_overview(self) -> ClusterOverview:
        counts = Counter(row.status for row in await self.list_jobs())
        return ClusterOverview(dict(counts), self._services.resources.overview())

    async def request_operation(self, job_id: JobID, trigger_id: str) -> Operation:
        self._table.check_open()
        operation = self._services.operations.get(job_id, trigger_id)
        if operation is None:
            raise OperationNotFoundError(f"nothing was triggered for job {job_id} under the id {trigger_id}")
        return operation

    async def list_operations(self, job_id: JobID) -> Sequence[Operation]:
        self._table.check_open()
        known = self._services.operations.of_job(job_id)
        found = None if known else self._archives.recalled(job_id)
        return known if found is None else operations_in(found)

    async def list_uploads(self) -> Sequence[Upload]:
        self._table.check_open()
        return await self._services.uploads.list()

    def events(self, job_id: JobID | None = None) -> Subscription:
        self._table.check_open()
        return self._services.events.subscribe(job_id)

    def unfinished_jobs(self) -> list[JobID]:
        """The jobs that have no result. Raises NotLeadingError once the table is closed."""
        self._table.check_open()
        return [job_id for job_id in self._table if isinstance(self._table.get(job_id), Live | Parked | Submitting)]

    async def request_application(self) -> ApplicationRecord | None:
        self._table.check_open()
        return self.application

    @property
    def busy(self) -> bool:
        """Whether there is a job that has not ended, or is still being cleaned up."""
        return len(self._table) > len(self._given_up)

    @property
    def needs_engines(self) -> bool:
        """Whether there is a job that runs or may run on an engine: one that has not ended."""
        return self._table.unfinished


def unknown(job_id: JobID) -> JobNotFoundError:
    return JobNotFoundError(f"no job {job_id} is known here")
