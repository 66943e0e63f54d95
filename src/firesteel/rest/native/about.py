"""Small questions: who am I, is anybody there, who leads; and a job as the control plane knows it."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NotRequired

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel import __version__
from firesteel.config.sections import Role
from firesteel.errors import NotLeadingError
from firesteel.ha.protocols import LeaderInformation
from firesteel.ha.retrieval import Absence
from firesteel.rest.answers import answer, encode, encoded
from firesteel.rest.context import CallerParam, CallerPrincipal, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.forwarding import ABSENCE
from firesteel.rest.params import JobIdParam, body_as, body_schema
from firesteel.rest.security.masking import mask
from firesteel.rest.security.principals import require

router = APIRouter(tags=["cluster"])
jobs = APIRouter(tags=["jobs"])


class WhoAmI(TypedDict):
    name: str
    role: str
    owner: str


class Health(TypedDict):
    status: str
    """`ok`, or `degraded`."""
    since: NotRequired[int]
    """Of a degraded one; milliseconds since 1970."""


class Leader(TypedDict):
    address: str
    epoch: int


class NodeMessage(TypedDict):
    address: str
    pid: int
    host: str
    started: int
    """Milliseconds since 1970."""


ClusterStatusAnswer = TypedDict(
    "ClusterStatusAnswer",
    {
        "cluster_id": str,
        "leader": Leader | None,
        "version": str,
        "node": NodeMessage,
        "high-availability": str,
        "degraded": bool,
        "reason": str | None,
        "since": int | None,
        "lastLeader": Leader | None,
    },
)


class ChapterAnswer(TypedDict):
    at: float
    status: str
    cause: str
    attempt: int
    epoch: int


class StoryAnswer(TypedDict):
    job_id: str
    chapters: list[ChapterAnswer]
    left_out: int


class HandOverAnswer(TypedDict):
    leader: Leader
    """Whoever leads now, and gives it away."""
    others: bool | None
    """Whether another node is known to wait; null when that cannot be told."""


class OptionMessage(TypedDict):
    key: str
    value: str
    origin: str
    """`default`, or where it was set."""
    description: str


class ConfigurationAnswer(TypedDict):
    options: list[OptionMessage]


class HandOverRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    epoch: int | None = Field(None, description="Of the leader that is meant; once another leads, nothing is done.")
    force: bool = Field(False, description="Also when no other node is known.")


@router.get("/whoami", response_model=WhoAmI, summary="Who the caller is to this cluster")
async def who_am_i(principal: CallerPrincipal) -> Response:
    content: WhoAmI = {"name": principal.name, "role": principal.role.value, "owner": principal.owner}
    return answer(content)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=Health, summary="Whether this node serves")
async def health(context: Context, ready: str | None = None) -> Response:
    """For load balancers and probes, who show no credential and are told no details.

    200 while the process lives. With `?ready`, 503 while the node knows no leader: requests would not be served.
    """
    absence = context.node.absence
    if absence is None:
        content: Health = {"status": "ok"}
        return answer(content)
    content = {"status": "degraded", "since": _milliseconds(absence.since)}
    return answer(content, 200 if ready is None else 503)


@router.get("/cluster/status", response_model=ClusterStatusAnswer, summary="Who leads, and which node answers")
async def cluster_status(context: Context, principal: CallerPrincipal, request: Request) -> Response:
    """The leader answers, or, when there is none to ask, each node for itself: `degraded`, why, since when, who led last."""
    absence: Absence | None = request.scope.get(ABSENCE) or context.node.absence
    leader = _known_leader(context) if absence is None else None
    options = context.configuration.high_availability
    content: ClusterStatusAnswer = {
        "cluster_id": options.cluster_id,
        "leader": _leader(leader),
        "version": __version__,
        "node": {
            "address": context.address,
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "started": _milliseconds(context.started_at),
        },
        "high-availability": str(options.type),
        "degraded": absence is not None,
        "reason": absence.reason if absence else None,
        "since": _milliseconds(absence.since) if absence else None,
        "lastLeader": _leader(absence.last_leader) if absence else None,
    }
    return answer(content)


@router.post(
    "/cluster/handover",
    status_code=202,
    response_model=HandOverAnswer,
    openapi_extra=body_schema(HandOverRequest),
    summary="Have the leader give its leadership to another node",
)
async def hand_over(context: Context, principal: CallerPrincipal, request: Request) -> Response:
    """For admins. 409 when there is no other node to lead.

    Ask `/cluster/status` what became of it: when another node leads, it is done; when the same one leads again, in a newer
    epoch, nobody took over in time. To repeat the request does no harm when it says which epoch is meant.
    """
    require(principal, Role.ADMIN)
    wish = await body_as(request, HandOverRequest)
    epoch = context.node.epoch
    others = await context.node.others_wait()
    content: HandOverAnswer = {"leader": {"address": context.address, "epoch": epoch}, "others": others}
    if wish.epoch is not None and wish.epoch < epoch:
        return answer(content, 202)  # another leads already
    if wish.epoch is not None and wish.epoch > epoch:
        raise HttpError(409, f"Epoch {wish.epoch} has not begun; the leader is of epoch {epoch}.")
    if others is False and not wish.force:
        raise HttpError(
            409,
            f"No other node of the cluster could lead in place of {context.address}: "
            "start one, or force it, and this node leads again after a few seconds if none comes.",
        )
    context.node.begin_hand_over()
    return answer(content, 202)


@router.get(
    "/cluster/configuration",
    response_model=ConfigurationAnswer,
    summary="Every option of the leader with its value, and where that was set",
)
async def configuration(context: Context, principal: CallerPrincipal) -> Response:
    """For admins: values and origins tell where files of the node are. Secrets are masked."""
    require(principal, Role.ADMIN)
    options = [
        {"key": row.key, "value": str(row.value), "origin": row.origin, "description": row.description}
        for row in context.configuration.rows()
    ]
    return answer({"options": [{**o, "value": m["value"]} for o, m in zip(options, mask(options), strict=True)]})


def _known_leader(context: RestContext) -> LeaderInformation | None:
    try:
        # A node knows of itself a moment before it reads of itself.
        return LeaderInformation(context.node.epoch, context.address)
    except NotLeadingError:
        return context.node.leader()


def _leader(leader: LeaderInformation | None) -> Leader | None:
    return None if leader is None else {"address": leader.address, "epoch": leader.epoch}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


@jobs.get("/jobs/{jobid}/story", response_model=StoryAnswer, summary="Each state that a job entered, and why")
async def story(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """In order and across leaders, whose epochs it names. `left_out` counts chapters that were before the first one."""
    job = await context.gateway.request_job(caller.read(job_id))
    return answer({"job_id": job_id, **job.get("story", {"chapters": [], "left_out": 0})})


@jobs.get("/jobs/{jobid}/execution-graph", response_model=dict[str, Any], summary="All that is known of a job")
async def execution_graph(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """Its graph, its state, its failures and its progress. Times are seconds since 1970."""
    job = await context.gateway.request_job(caller.read(job_id))
    return encoded(await asyncio.to_thread(lambda: encode(mask(job))))
