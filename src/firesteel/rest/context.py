"""The objects that routes use."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from firesteel.blob.store import BlobStore
from firesteel.blob.threads import Threads
from firesteel.config import Configuration
from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.errors import ForbiddenError, JobNotFoundError
from firesteel.metrics.registry import MetricRegistry
from firesteel.rest.announcement import Announcement
from firesteel.rest.job_rows import render_job_row
from firesteel.rest.logs import JobLogs
from firesteel.rest.native.event_source import EventSource
from firesteel.rest.native.graph_checks import GraphChecks
from firesteel.rest.node_view import NodeView
from firesteel.rest.overview import OverviewLines
from firesteel.rest.security.principals import Principal, may_read, may_write
from firesteel.rest.security.rates import RateLimiter
from firesteel.types import JobID, is_job_id
from firesteel.worker.sandboxing import sandbox_policy


@dataclass
class RestContext:
    """The context of a node, for as long as it serves."""

    configuration: Configuration
    node: NodeView
    blobs: BlobStore
    logs: JobLogs
    directory: Path
    """The directory of the cluster, with node logs and jobs' files."""
    job_of_key: Callable[[str, str], Awaitable[JobID]]
    """The job id for an idempotency key of an owner."""
    read_only: bool = False
    """Whether it shows jobs that have ended, and nothing else."""
    application: Callable[[], JobID | None] = lambda: None
    """The application that the cluster lives for; None in a session cluster."""
    address: str = ""
    """The address of this node, known once it serves."""
    started_at: float = field(default_factory=time.time)
    overview: OverviewLines = field(default_factory=OverviewLines)
    """Rows of ended jobs, rendered once."""
    job_rows: OverviewLines = field(default_factory=lambda: OverviewLines(render=render_job_row))
    """The same for short rows."""
    announcement: Announcement | None = None
    """The file in which commands of this machine find this node; None before it is announced."""
    metrics: MetricRegistry = field(default_factory=MetricRegistry)
    """The metrics of the node."""
    events: EventSource = field(default_factory=EventSource)
    """The open event streams, which have to be closed before the server."""
    checks: GraphChecks = field(init=False)
    """The checks of what callers send and name; they have to be closed."""
    archives: Threads = field(default_factory=lambda: Threads(1, "archives"))
    """The threads that inspect uploads, which may take long: uploads then wait only for each other."""
    submissions: RateLimiter = field(init=False)
    """Limits per owner, who may have many tokens."""

    def __post_init__(self) -> None:
        rate = self.configuration.rest.submit_rate
        self.submissions = RateLimiter(rate, rate)
        self.checks = GraphChecks(lambda: sandbox_policy(self.configuration))

    async def close(self) -> None:
        """End the threads and processes that did work for requests."""
        try:
            await self.checks.close()
        finally:
            await self.archives.close()

    @property
    def gateway(self) -> DispatcherGateway:
        """The Dispatcher of this node; raises NotLeadingError while another one leads."""
        return self.node.dispatcher

    def check_open_to(self, principal: Principal) -> None:
        """Raises ForbiddenError when the cluster is an application's, and the caller is not its program."""
        application = self.application()
        if application is not None and principal.application != application:
            raise ForbiddenError(
                f"this cluster lives for application {application} alone and takes no other jobs or files; "
                "submit to a session cluster, or deploy with `firesteel run-application`"
            )

    def withdraw(self) -> None:
        """Remove the announcement of this node, which is about to end."""
        if self.announcement is not None:
            self.announcement.take_back()


@dataclass(frozen=True, slots=True)
class Recalled:
    """A job of which nothing is left here but its archive."""

    job_id: JobID
    owner: str


class Caller:
    """The caller of a request, and what it may see and do (S19, S20)."""

    def __init__(self, principal: Principal, gateway: DispatcherGateway, recalled: Recalled | None = None) -> None:
        self.principal = principal
        self._gateway = gateway
        self._recalled = recalled

    def sees(self, owner: str) -> bool:
        return may_read(self.principal, owner)

    def sees_engine(self, owner: str | None) -> bool:
        """Whether the caller may see an engine of that owner; all may see an engine without an owner."""
        return owner is None or self.sees(owner)

    def read(self, job_id: JobID) -> JobID:
        """`job_id`, if the caller may see the job; other jobs look as if they did not exist."""
        if not self.sees(self._owner(job_id)):
            raise JobNotFoundError(f"no job {job_id} is known here")
        return job_id

    def _owner(self, job_id: JobID) -> str:
        if self._recalled is not None and self._recalled.job_id == job_id:
            return self._recalled.owner
        return self._gateway.owner_of(job_id)

    def write(self, job_id: JobID) -> JobID:
        """`job_id`, if the caller may change the job."""
        if not may_write(self.principal, self._gateway.owner_of(job_id)):
            raise ForbiddenError(
                f"{self.principal.name} ({self.principal.role.value}) may not change job {job_id}; ask its owner or an admin"
            )
        return job_id


# Coroutines although they await nothing: FastAPI would call plain functions in threads, for each request.


async def _context(request: Request) -> RestContext:
    context: RestContext = request.app.state.context
    return context


async def _principal(request: Request) -> Principal:
    # Set by the door, which refuses requests without one.
    principal: Principal = request.scope["firesteel.principal"]
    return principal


Context = Annotated[RestContext, Depends(_context)]
CallerPrincipal = Annotated[Principal, Depends(_principal)]


async def _caller(request: Request, context: Context, principal: CallerPrincipal) -> Caller:
    gateway = context.gateway
    named = request.path_params.get("jobid", request.path_params.get("applicationid", "")).lower()
    # For requests that read only: an archive says who may see a job, and not who may do something about it.
    if request.method in ("GET", "HEAD") and is_job_id(named):
        owner = await gateway.recall(JobID(named))
        if owner is not None:
            return Caller(principal, gateway, Recalled(JobID(named), owner))
    return Caller(principal, gateway)


CallerParam = Annotated[Caller, Depends(_caller)]
