"""What the routes work with."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from firesteel.blob.store import BlobStore
from firesteel.config import Configuration
from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.errors import ForbiddenError, JobNotFoundError, NotLeadingError
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.jobmaster.sandboxing import sandbox_policy
from firesteel.rest.logs import JobLogs
from firesteel.rest.native.event_source import EventSource
from firesteel.rest.native.graph_checks import GraphChecks
from firesteel.rest.overview import OverviewLines
from firesteel.rest.security.principals import Principal, may_read, may_write
from firesteel.rest.security.rates import RateLimiter
from firesteel.types import JobID


async def _unknown() -> bool | None:
    return None


async def _no_keys(owner: str, key: str) -> JobID:
    raise NotLeadingError("idempotency keys are known to the leader; ask the leader")


def _not_leading() -> Epoch:
    raise NotLeadingError("this node does not lead; ask the leader")


@dataclass
class RestContext:
    """Of a node, for as long as it serves."""

    configuration: Configuration
    leading: Callable[[], DispatcherGateway]
    """The Dispatcher of this node; raises NotLeadingError while another one leads."""
    blobs: BlobStore
    logs: JobLogs
    directory: Path
    """Of the cluster: node logs, jobs' files."""
    address: str = ""
    """Where this node serves; known once it does."""
    started_at: float = field(default_factory=time.time)
    overview: OverviewLines = field(default_factory=OverviewLines)
    """Lines of ended jobs, rendered once."""
    withdraw: Callable[[], None] = field(default=lambda: None)
    """Announce this node no more: it is about to end."""
    leader: Callable[[], LeaderInformation | None] = field(default=lambda: None)
    """Who leads, as far as this node knows."""
    absence: Callable[[], Absence | None] = field(default=lambda: None)
    """Why nobody is known who leads, if that is so; None while this node leads itself."""
    others_wait: Callable[[], Awaitable[bool | None]] = _unknown
    """Whether another node would lead in this one's place; None when that cannot be told."""
    job_of_key: Callable[[str, str], Awaitable[JobID]] = _no_keys
    """The job that an idempotency key of an owner stands for."""
    epoch: Callable[[], Epoch] = _not_leading
    """Of this node's leadership; raises NotLeadingError."""
    hand_over: Callable[[], None] = field(default=lambda: None)
    """Begin to give leadership away."""
    events: EventSource = field(default_factory=EventSource)
    """Open event streams; to be closed before the server."""
    checks: GraphChecks = field(init=False)
    """Of what callers send and name; to be closed."""
    submissions: RateLimiter = field(init=False)
    """By owner, who may have many tokens."""

    def __post_init__(self) -> None:
        rate = self.configuration.rest.submit_rate
        self.submissions = RateLimiter(rate, rate)
        self.checks = GraphChecks(lambda: sandbox_policy(self.configuration))

    @property
    def gateway(self) -> DispatcherGateway:
        return self.leading()


class Caller:
    """The one who asks: what it may see and do (S19, S20)."""

    def __init__(self, principal: Principal, gateway: DispatcherGateway) -> None:
        self.principal = principal
        self._gateway = gateway

    def sees(self, owner: str) -> bool:
        return may_read(self.principal, owner)

    def sees_engine(self, owner: str | None) -> bool:
        """Whether the caller may see an engine of that owner; one of nobody is everybody's."""
        return owner is None or self.sees(owner)

    def read(self, job_id: JobID) -> JobID:
        """`job_id`, if the caller may see the job; somebody else's job looks like none at all."""
        if not self.sees(self._gateway.owner_of(job_id)):
            raise JobNotFoundError(f"no job {job_id} is known here")
        return job_id

    def write(self, job_id: JobID) -> JobID:
        """`job_id`, if the caller may change the job."""
        if not may_write(self.principal, self._gateway.owner_of(job_id)):
            raise ForbiddenError(
                f"{self.principal.name} ({self.principal.role.value}) may not change job {job_id}; ask its owner or an admin"
            )
        return job_id


# Coroutines although they wait for nothing: FastAPI would call plain functions in threads, for each request.


async def _context(request: Request) -> RestContext:
    context: RestContext = request.app.state.context
    return context


async def _principal(request: Request) -> Principal:
    # Set by the door, which lets nobody in without one.
    principal: Principal = request.scope["firesteel.principal"]
    return principal


Context = Annotated[RestContext, Depends(_context)]
CallerPrincipal = Annotated[Principal, Depends(_principal)]


async def _caller(context: Context, principal: CallerPrincipal) -> Caller:
    return Caller(principal, context.gateway)


CallerParam = Annotated[Caller, Depends(_caller)]
