"""A REST application over a Dispatcher that only pretends: jobs are what a test says they are."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from tests.support.roster import Roster

from firesteel.blob.store import BlobStore
from firesteel.config import Configuration, load_configuration
from firesteel.config.sections import Role
from firesteel.dispatcher.gateway import ClusterOverview, JobOverview
from firesteel.errors import DuplicateJobError, JobNotFoundError, JobStateError, NotLeadingError, OperationNotFoundError
from firesteel.fleet.enrollment import Enrollment
from firesteel.fleet.view import FleetView
from firesteel.flink_rest.routes import FLINK
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.events import JobEvents, Subscription
from firesteel.jobmaster.execution_graph import execution_graph
from firesteel.jobmaster.machine import JobState
from firesteel.resourcemanager.overview import ResourceOverview
from firesteel.rest.app import TidyPaths, create_app
from firesteel.rest.context import RestContext
from firesteel.rest.logs import JobLogs
from firesteel.rest.security.principals import Principal
from firesteel.status import JobStatus
from firesteel.stores.applications import ApplicationRecord
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_keys import job_id_of
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import Operation
from firesteel.stores.uploads import Upload
from firesteel.stores.workers import WorkerStore
from firesteel.types import JobID

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have httpx2
    from starlette.testclient import TestClient

Client = TestClient
"""For tests, which would be warned when they import it themselves."""

ADMIN = Principal("root", Role.ADMIN, "*")


class FakeGateway:
    """A DispatcherGateway. `add` puts a job in; wishes are written down in `asked`."""

    def __init__(self) -> None:
        self.jobs: dict[JobID, dict[str, Any]] = {}
        self.owners: dict[JobID, str] = {}
        self.digests: dict[JobID, str] = {}
        self.results: dict[JobID, JobResult] = {}
        self.operations: dict[tuple[str, str], Operation] = {}
        self.resources = ResourceOverview((), 0, 0)
        self.hub = JobEvents()
        self.asked: list[tuple[Any, ...]] = []
        self.submitted: list[Submission] = []
        self.application: ApplicationRecord | None = None
        self.uploads: dict[str, Upload] = {}
        self.recallable: dict[JobID, str] = {}
        """Owners of jobs that are in the archive only."""
        store, epoch = MemoryStateStore(), Epoch(1)
        store.newest_epoch = epoch
        self.workers = WorkerStore(store)
        roster = Roster(self.workers, epoch, now=time.time)
        self.fleet: FleetView = roster
        self.sessions: Any = None
        self.enrollment = Enrollment(self.workers, epoch, now=time.time, joined=roster.joined)

    def add(
        self,
        submission: Submission,
        state: JobState,
        *,
        progress: dict[str, Any] | None = None,
        result: JobResult | None = None,
    ) -> JobID:
        job_id = submission.job_id
        self.jobs[job_id] = execution_graph(submission, state, progress or {}, now=time.time(), result=result)
        self.owners[job_id] = submission.owner
        self.digests[job_id] = submission.digest
        if result is not None:
            self.results[job_id] = result
        return job_id

    async def submit_job(self, submission: Submission) -> None:
        there = self.digests.get(submission.job_id)
        if there == submission.digest:
            return
        if there is not None:
            raise DuplicateJobError(f"job id {submission.job_id} belongs to another job, which runs; choose a new one")
        self.submitted.append(submission)
        self.add(submission, JobState(submission.graph.settings.restart))

    async def request_application(self) -> ApplicationRecord | None:
        return self.application

    async def cancel_application(self) -> None:
        self.asked.append(("cancel_application",))

    async def list_jobs(self) -> Sequence[JobOverview]:
        return [
            JobOverview(
                job_id,
                job["name"],
                JobStatus(job["status"]),
                job["submitted_at"],
                job["ended_at"],
                job["attempt"],
                job["restarts"],
                job["ended_at"] or job["submitted_at"],
                job["owner"],
                job["mode"],
                len(job["vertices"]),
                job["kind"],
            )
            for job_id, job in self.jobs.items()
        ]

    async def list_ended(self) -> Sequence[JobOverview]:
        ended = [job for job in await self.list_jobs() if job.ended_at is not None]
        return sorted(ended, key=lambda job: (job.ended_at or 0.0, job.job_id), reverse=True)

    async def recall(self, job_id: JobID) -> str | None:
        return self.recallable.get(job_id)

    def owner_of(self, job_id: JobID) -> str:
        self._job(job_id)
        return self.owners[job_id]

    def events(self, job_id: JobID | None = None) -> Subscription:
        return self.hub.subscribe(job_id)

    async def request_job(self, job_id: JobID) -> dict[str, Any]:
        return self._job(job_id)

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        return JobStatus(self._job(job_id)["status"])

    async def request_job_result(self, job_id: JobID) -> JobResult:
        self._job(job_id)
        while job_id not in self.results:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.results[job_id]

    async def cancel_job(self, job_id: JobID, *, keep_checkpoint: bool | None = None) -> None:
        self._live(job_id)
        self.asked.append(("cancel", job_id) if keep_checkpoint is None else ("cancel", job_id, keep_checkpoint))

    async def stop_job(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, savepoint: bool = True
    ) -> None:
        self._live(job_id)
        self.asked.append(("stop", job_id, trigger_id, target, savepoint))

    async def trigger_checkpoint(self, job_id: JobID, trigger_id: str) -> None:
        self._live(job_id)
        self.asked.append(("checkpoint", job_id, trigger_id))

    async def trigger_savepoint(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, cancel: bool = False
    ) -> None:
        self._live(job_id)
        self.asked.append(("savepoint", job_id, trigger_id, target, cancel))

    async def dispose_savepoint(self, path: str, trigger_id: str, *, owner: str = "") -> None:
        self.asked.append(("dispose", path, trigger_id, owner))

    async def request_operation(self, job_id: JobID, trigger_id: str) -> Operation:
        found = self.operations.get((job_id, trigger_id))
        if found is None:
            raise OperationNotFoundError(f"nothing was triggered for job {job_id} under the id {trigger_id}")
        return found

    async def list_operations(self, job_id: JobID) -> Sequence[Operation]:
        return [o for o in self.operations.values() if o.job_id == job_id]

    async def report_client_heartbeat(self, job_id: JobID) -> None:
        self._live(job_id)
        self.asked.append(("heartbeat", job_id))

    async def request_cluster_overview(self) -> ClusterOverview:
        counts: dict[JobStatus, int] = {}
        for job in self.jobs.values():
            status = JobStatus(job["status"])
            counts[status] = counts.get(status, 0) + 1
        return ClusterOverview(counts, self.resources)

    async def register_upload(self, upload: Upload) -> None:
        self.uploads[upload.upload_id] = upload

    async def list_uploads(self) -> Sequence[Upload]:
        return list(self.uploads.values())

    async def remove_upload(self, upload_id: str) -> bool:
        return self.uploads.pop(upload_id, None) is not None

    async def shut_down(self) -> None:
        self.asked.append(("shut down",))

    def _job(self, job_id: JobID) -> dict[str, Any]:
        if job_id not in self.jobs:
            raise JobNotFoundError(f"no job {job_id} is known here")
        return self.jobs[job_id]

    def _live(self, job_id: JobID) -> None:
        status = JobStatus(self._job(job_id)["status"])
        if status.terminal:
            raise JobStateError(f"job {job_id} is {status}; it has ended for good")


class FakeNode:
    """A node of which a test says who leads: a NodeView."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.leads = True
        """Whether it has a Dispatcher."""
        self.own_epoch: Epoch | None = None
        self.known: LeaderInformation | None = None
        self.absence: Absence | None = None
        self.others: bool | None = None
        self.handed_over = 0

    @property
    def dispatcher(self) -> FakeGateway:
        if not self.leads:
            raise NotLeadingError("another node leads")
        return self._desk.gateway

    @property
    def epoch(self) -> Epoch:
        if self.own_epoch is None:
            raise NotLeadingError("this node does not lead; ask the leader")
        return self.own_epoch

    def leader(self) -> LeaderInformation | None:
        return self.known

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        await asyncio.sleep(timeout)

    async def others_wait(self) -> bool | None:
        return self.others

    def begin_hand_over(self) -> None:
        self.handed_over += 1


async def _job_of_key(owner: str, key: str) -> JobID:
    return job_id_of(b"secret of the cluster", owner, key)


class Desk:
    """`client()` speaks to the application as `principal`, without the door."""

    def __init__(self, tmp_path: Path, overrides: dict[str, str] | None = None) -> None:
        self.configuration: Configuration = load_configuration(
            file=None, environ={"HOME": str(tmp_path)}, overrides={"data.dir": str(tmp_path), **(overrides or {})}
        )
        self.gateway = FakeGateway()
        self.blobs = BlobStore(tmp_path / "blobs", max_size=1 << 20, quota=4 << 20)
        asyncio.run(self.blobs.open())
        self.node = FakeNode(self)
        self.context = RestContext(
            configuration=self.configuration,
            node=self.node,
            blobs=self.blobs,
            logs=JobLogs(tmp_path / "jobs"),
            directory=tmp_path,
            job_of_key=_job_of_key,
        )
        self.app: FastAPI = _app()
        self.app.state.context = self.context

    def client(self, principal: Principal = ADMIN) -> TestClient:
        return TestClient(_As(self, principal), raise_server_exceptions=False)


@cache
def _app() -> FastAPI:
    """One for all desks: putting its routes together takes longer than most tests. A request finds its own desk's context."""
    return create_app(None, FLINK)  # type: ignore[arg-type]


class _As:
    def __init__(self, desk: Desk, principal: Principal) -> None:
        self._context = desk.context
        self._fastapi = desk.app
        self._app = TidyPaths(desk.app)
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._fastapi.state.context = self._context
        await self._app({**scope, "firesteel.principal": self._principal}, receive, send)


def submission_of(graph: JobGraph, job_id: str, *, owner: str = "alice", submitted_at: float = 1000.0) -> Submission:
    return Submission(JobID(job_id), graph, submitted_at, digest_of(graph), owner=owner)
