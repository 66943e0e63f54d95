"""The caller's identity, the health of a node, the leader, and the control plane's view of a job."""

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
from firesteel.masking import mask
from firesteel.rest.answers import answer, encode, encoded
from firesteel.rest.context import CallerParam, CallerPrincipal, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.forwarding import ABSENCE
from firesteel.rest.params import JobIdParam, body_as, body_schema
from firesteel.rest.security.principals import require

router = APIRouter(tags=["cluster"])
jobs = APIRouter(tags=["jobs"])


class WhoAmI(TypedDict):
    name: str
    role: str
    owner: str
    serves: str
    """`cluster`, or `history` for a server that only shows jobs that have ended."""


class Health(TypedDict):
    status: str
    """`ok`, or `degraded`."""
    since: NotRequired[int]
    """Since when it is degraded; milliseconds since 1970."""


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
    """The current leader, which hands leadership over."""
    others: bool | None
    """Whether another node is known to wait; null if that is unknown."""


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

    epoch: int | None = Field(
        None, description="The epoch of the leader that should hand over; nothing is done if another leads."
    )
    force: bool = Field(False, description="Hand over even if no other node is known.")


@router.get("/whoami", response_model=WhoAmI, summary="The caller's identity and role")
async def who_am_i(context: Context, principal: CallerPrincipal) -> Response:
    content: WhoAmI = {
        "name": principal.name,
        "role": principal.role.value,
        "owner": principal.owner,
        "serves": "history" if context.read_only else "cluster",
    }
    return answer(content)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=Health, summary="Whether this node serves")
async def health(context: Context, ready: str | None = None) -> Response:
    """For load balancers and probes, which send no credential and get no details.

    200 while the process lives. With `?ready`, 503 while the node knows no leader, as it could not serve requests.
    """
    absence = context.node.absence
    if absence is None:
        content: Health = {"status": "ok"}
        return answer(content)
    content = {"status": "degraded", "since": _milliseconds(absence.since)}
    return answer(content, 200 if ready is None else 503)


@router.get("/cluster/status", response_model=ClusterStatusAnswer, summary="The leader, and the node that answers")
async def cluster_status(context: Context, principal: CallerPrincipal, request: Request) -> Response:
    """The leader answers. Without a leader each node answers for itself: `degraded`, why, since when, and the last leader."""
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
    summary="Hand leadership over to another node",
)
async def hand_over(context: Context, principal: CallerPrincipal, request: Request) -> Response:
    """For admins. 409 if no other node could lead.

    `/cluster/status` shows the outcome: when another node leads, it is done; when the same node leads again in a newer
    epoch, no other took over in time. Repeating the request does no harm if it names the epoch.
    """
    require(principal, Role.ADMIN)
    wish = await body_as(request, HandOverRequest)
    epoch = context.node.epoch
    others = await context.node.others_wait()
    content: HandOverAnswer = {"leader": {"address": context.address, "epoch": epoch}, "others": others}
    if wish.epoch is not None and wish.epoch < epoch:
        return answer(content, 202)  # another node already leads
    if wish.epoch is not None and wish.epoch > epoch:
        raise HttpError(409, f"Epoch {wish.epoch} has not begun; the current epoch is {epoch}.")
    if others is False and not wish.force:
        raise HttpError(
            409,
            f"No other node of the cluster could lead in place of {context.address}: "
            "start one, or use force; then this node leads again after a few seconds if there is still none.",
        )
    context.node.begin_hand_over()
    return answer(content, 202)


@router.get(
    "/cluster/configuration",
    response_model=ConfigurationAnswer,
    summary="The options of the leader with their values and origins",
)
async def configuration(context: Context, principal: CallerPrincipal) -> Response:
    """For admins, as values and origins reveal paths of the node. Secrets are masked."""
    require(principal, Role.ADMIN)
    options = [
        {"key": row.key, "value": str(row.value), "origin": row.origin, "description": row.description}
        for row in context.configuration.rows()
    ]
    return answer({"options": [{**o, "value": m["value"]} for o, m in zip(options, mask(options), strict=True)]})


def _known_leader(context: RestContext) -> LeaderInformation | None:
    try:
        # A node knows that it leads a moment before the store says so.
        return LeaderInformation(context.node.epoch, context.address)
    except NotLeadingError:
        return context.node.leader()


def _leader(leader: LeaderInformation | None) -> Leader | None:
    return None if leader is None else {"address": leader.address, "epoch": leader.epoch}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


@jobs.get("/jobs/{jobid}/story", response_model=StoryAnswer, summary="Each state that a job entered, with the cause")
async def story(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """In order, across leaders, with their epochs. `left_out` is the number of chapters before the first one."""
    job = await context.gateway.request_job(caller.read(job_id))
    return answer({"job_id": job_id, **job.get("story", {"chapters": [], "left_out": 0})})


@jobs.get(
    "/jobs/{jobid}/execution-graph", response_model=dict[str, Any], summary="Everything that is known about a job"
)
async def execution_graph(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """Its graph, its state, its failures and its progress. Times are seconds since 1970."""
    job = await context.gateway.request_job(caller.read(job_id))
    return encoded(await asyncio.to_thread(lambda: encode(mask(job))))
