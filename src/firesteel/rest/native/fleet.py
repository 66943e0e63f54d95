"""The workers of the cluster, for people: which there are, and what is to become of them. How hosts join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.config.sections import Role
from firesteel.errors import ForbiddenError, WorkerNotFoundError, WorkerStateError
from firesteel.fleet.enrollment import DEFAULT_LIFETIME, MAX_LIFETIME
from firesteel.fleet.view import FleetView, Standing, WorkerView
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerPrincipal, Context
from firesteel.rest.native.blobs import Nothing
from firesteel.rest.params import body_as, body_schema
from firesteel.rest.security.principals import Principal, at_least, require
from firesteel.rest.security.worker_credentials import join_bearer, joining_token

router = APIRouter(tags=["workers"])

WorkerParam = Annotated[
    str, Path(alias="worker", pattern=r"^[A-Za-z0-9._-]{1,128}$", description="The id or the name of a worker.")
]


class WorkerMessage(TypedDict):
    id: str
    name: str
    standing: str
    """EXPECTED, CONNECTED, SILENT or LOST."""
    draining: bool
    revoked: bool
    """Its credential is of no use any more."""
    embedded: bool
    """It is part of a node."""
    cores: int
    memory: str
    labels: dict[str, str]
    sandbox: str
    policy: str
    """What it does when it hears from no node: `stop` or `run-on`."""
    max_engines: int
    engines: int
    attempts: int
    since: int
    """When it came into its standing, in milliseconds since 1970."""
    last_heard: int | None
    gone_at: int | None
    """When nothing of a silent worker runs any more; null when nobody can say."""
    host: str | None
    """For admins."""
    address: str | None
    """For admins."""
    incarnation: str | None
    """For admins: of its process."""


class WorkerList(TypedDict):
    workers: list[WorkerMessage]


class TokenMessage(TypedDict):
    token: str
    """A secret, which is shown this once."""
    id: str
    name: str
    """The worker that it is for; empty: any."""
    expires: int
    """Milliseconds since 1970."""


class JoinedWorker(TypedDict):
    id: str
    name: str


class TokenRequest(BaseModel):
    name: str = Field(default="", max_length=128, description="The worker that may join with it; empty: any.")
    expires: float = Field(
        default=DEFAULT_LIFETIME, gt=0, le=MAX_LIFETIME, description="Seconds for which the token is valid."
    )


class JoinRequest(BaseModel):
    id: str = Field(max_length=32, description="Drawn by the worker: `w` and 16 hex digits.")
    name: str = Field(max_length=128, description="Unique in the cluster.")
    secret_sha256: str = Field(
        alias="secretSha256",
        max_length=64,
        description="Of a secret of 64 hex digits that the worker has drawn.",
    )
    host: str = Field(default="", max_length=253)


@router.get("/workers", response_model=WorkerList, summary="Workers: the hosts that jobs run on")
async def list_workers(context: Context, principal: CallerPrincipal) -> Response:
    """Addresses are for admins."""
    require(principal, Role.VIEWER)
    content: WorkerList = {"workers": [render_worker(w, principal) for w in _sorted(context.gateway.fleet.workers())]}
    return answer(content)


@router.post(
    "/workers/tokens",
    status_code=201,
    response_model=TokenMessage,
    summary="Make a token with which one worker may join",
    openapi_extra=body_schema(TokenRequest),
)
async def issue_token(request: Request, context: Context, principal: CallerPrincipal) -> Response:
    """For admins. The token is shown this once."""
    require(principal, Role.ADMIN)
    wish = await body_as(request, TokenRequest)
    made = await context.gateway.enrollment.issue(wish.name, wish.expires)
    content: TokenMessage = {
        "token": join_bearer(made.id, made.secret),
        "id": made.id,
        "name": made.name,
        "expires": round(made.expires_at * 1000),
    }
    return answer(content, 201)


@router.post(
    "/workers/join",
    response_model=JoinedWorker,
    summary="Join as a worker, with a join token",
    openapi_extra=body_schema(JoinRequest, required=True),
)
async def join(request: Request, context: Context, principal: CallerPrincipal) -> Response:
    """The worker draws its id and its secret, and sends the hash of that. Its credential is then `fst_worker.<id>.<secret>`.
    The same request may be repeated until the token expires; the token is good for no other worker."""
    require_joiner(principal)
    wish = await body_as(request, JoinRequest)
    joined = await context.gateway.enrollment.join(
        joining_token(principal),
        worker=wish.id,
        name=wish.name,
        secret_sha256=wish.secret_sha256,
        host=wish.host,
    )
    content: JoinedWorker = {"id": joined.id, "name": joined.name}
    return answer(content)


@router.get("/workers/{worker}", response_model=WorkerMessage, summary="One worker")
async def show_worker(context: Context, principal: CallerPrincipal, text: WorkerParam) -> Response:
    require(principal, Role.VIEWER)
    return answer(render_worker(find_worker(context.gateway.fleet, text), principal))


@router.post("/workers/{worker}/drain", response_model=WorkerMessage, summary="Let a worker get no new jobs")
async def drain(context: Context, principal: CallerPrincipal, text: WorkerParam) -> Response:
    """For admins. What runs there runs to its end; then the host can be taken down."""
    require(principal, Role.ADMIN)
    fleet = context.gateway.fleet
    found = find_worker(fleet, text)
    await fleet.drain(found.worker)
    return answer(render_worker(find_worker(fleet, found.worker), principal))


@router.post("/workers/{worker}/undrain", response_model=WorkerMessage, summary="Let a worker get jobs again")
async def undrain(context: Context, principal: CallerPrincipal, text: WorkerParam) -> Response:
    """For admins."""
    require(principal, Role.ADMIN)
    fleet = context.gateway.fleet
    found = find_worker(fleet, text)
    await fleet.undrain(found.worker)
    return answer(render_worker(find_worker(fleet, found.worker), principal))


@router.post("/workers/{worker}/lost", response_model=WorkerMessage, summary="Say that a worker's host is gone")
async def declare_lost(context: Context, principal: CallerPrincipal, text: WorkerParam) -> Response:
    """For admins who know that nothing on that host runs any more: everything there counts as ended, and jobs start again
    elsewhere. A worker that is connected is not lost (409)."""
    require(principal, Role.ADMIN)
    fleet = context.gateway.fleet
    found = find_worker(fleet, text)
    await fleet.declare_lost(found.worker, principal.name)
    return answer(render_worker(find_worker(fleet, found.worker), principal))


@router.delete("/workers/{worker}", response_model=Nothing, summary="Revoke the credential of a worker")
async def revoke(context: Context, principal: CallerPrincipal, text: WorkerParam) -> Response:
    """For admins. The worker is let in no more. What runs there is not ended by this; `lost` says that it has."""
    require(principal, Role.ADMIN)
    fleet = context.gateway.fleet
    await fleet.revoke(find_worker(fleet, text).worker)
    return answer({})


def require_joiner(principal: Principal) -> None:
    """The door lets nobody else pass; this is for doors that are put together otherwise."""
    if principal.role is not Role.JOINER:
        raise ForbiddenError("workers join with a token of `firesteel worker token`")


def find_worker(fleet: FleetView, text: str) -> WorkerView:
    """By id, or by name: that of workers that are revoked or lost may have been given to another."""
    workers = fleet.workers()
    if (found := next((w for w in workers if w.worker == text), None)) is not None:
        return found
    named = [w for w in workers if w.name == text]
    here = [w for w in named if not w.revoked] or named
    here = [w for w in here if w.standing is not Standing.LOST] or here
    if len(here) > 1:
        ids = ", ".join(w.worker for w in here)
        raise WorkerStateError(f"{len(here)} workers are called '{text}'; give the id of one: {ids}")
    if not here:
        raise WorkerNotFoundError(f"no worker '{text}' is known here; `firesteel worker list` lists them")
    return here[0]


def render_worker(worker: WorkerView, principal: Principal) -> WorkerMessage:
    trusted = at_least(principal, Role.ADMIN)
    return {
        "id": worker.worker,
        "name": worker.name,
        "standing": worker.standing.value,
        "draining": worker.draining,
        "revoked": worker.revoked,
        "embedded": worker.embedded,
        "cores": worker.cores,
        "memory": worker.memory,
        "labels": dict(worker.labels),
        "sandbox": worker.sandbox,
        "policy": worker.policy,
        "max_engines": worker.max_engines,
        "engines": worker.engines,
        "attempts": worker.attempts,
        "since": round(worker.since * 1000),
        "last_heard": _milliseconds(worker.last_heard),
        "gone_at": _milliseconds(worker.gone_at),
        "host": worker.host if trusted else None,
        "address": worker.address if trusted else None,
        "incarnation": worker.incarnation if trusted else None,
    }


def _sorted(workers: Sequence[WorkerView]) -> list[WorkerView]:
    return sorted(workers, key=lambda w: (w.name, w.worker))


def _milliseconds(at: float | None) -> int | None:
    return None if at is None else round(at * 1000)
