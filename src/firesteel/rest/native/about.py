"""Small questions: who am I, is anybody there, who leads; and a job as the control plane knows it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel import __version__
from firesteel.rest.answers import answer, encode, encoded
from firesteel.rest.context import CallerParam, CallerPrincipal, Context
from firesteel.rest.params import JobIdParam
from firesteel.rest.security.masking import mask

router = APIRouter(tags=["cluster"])
jobs = APIRouter(tags=["jobs"])


class WhoAmI(TypedDict):
    name: str
    role: str
    owner: str


class Health(TypedDict):
    status: str


class Leader(TypedDict):
    address: str
    epoch: int


class NodeMessage(TypedDict):
    address: str
    pid: int
    host: str
    started: int
    """Milliseconds since 1970."""


ClusterStatus = TypedDict(
    "ClusterStatus",
    {
        "cluster_id": str,
        "leader": Leader | None,
        "version": str,
        "node": NodeMessage,
        "high-availability": str,
    },
)


@router.get("/whoami", response_model=WhoAmI, summary="Who the caller is to this cluster")
async def who_am_i(principal: CallerPrincipal) -> Response:
    content: WhoAmI = {"name": principal.name, "role": principal.role.value, "owner": principal.owner}
    return answer(content)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=Health, summary="Whether this node serves")
async def health() -> Response:
    """For load balancers; says nothing about the cluster."""
    content: Health = {"status": "ok"}
    return answer(content)


@router.get("/cluster/status", response_model=ClusterStatus, summary="Who leads, and which node answers")
async def cluster_status(context: Context, principal: CallerPrincipal) -> Response:
    leader = context.leader()
    options = context.configuration.high_availability
    content: ClusterStatus = {
        "cluster_id": options.cluster_id,
        "leader": None if leader is None else {"address": leader.address, "epoch": leader.epoch},
        "version": __version__,
        "node": {
            "address": context.address,
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "started": round(context.started_at * 1000),
        },
        "high-availability": str(options.type),
    }
    return answer(content)


@jobs.get("/jobs/{jobid}/execution-graph", response_model=dict[str, Any], summary="All that is known of a job")
async def execution_graph(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """Its graph, its state, its failures and its progress. Times are seconds since 1970."""
    job = await context.gateway.request_job(caller.read(job_id))
    return encoded(await asyncio.to_thread(lambda: encode(mask(job))))
