"""The node and the engines, below a job: copies that Flink's history server has. They answer for jobs that are unknown too."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.rest.answers import answer
from firesteel.rest.context import CallerPrincipal, Context
from firesteel.rest.flink.contract import ERRORS
from firesteel.rest.flink.jobmanager import (
    ConfigurationEntry,
    Environment,
    render_configuration,
    render_environment,
)
from firesteel.rest.params import JobIdParam

router = APIRouter(prefix="/jobs/{jobid}", tags=["jobs"], responses=ERRORS)


class LogUrlMessage(TypedDict):
    url: str


@router.get("/jobmanager/config", response_model=list[ConfigurationEntry], summary="The configuration of this node")
async def show_configuration(context: Context, principal: CallerPrincipal, job_id: JobIdParam) -> Response:
    return answer(render_configuration(context.configuration, principal))


@router.get("/jobmanager/environment", response_model=Environment, summary="What this node runs on")
async def show_environment(job_id: JobIdParam) -> Response:
    return answer(render_environment())


@router.get("/jobmanager/log-url", response_model=LogUrlMessage, summary="Where a dashboard shows the node's logs")
async def show_log_url(request: Request, context: Context, job_id: JobIdParam) -> Response:
    return answer({"url": f"{_base(request, context.address)}/#/job-manager/logs"})


@router.get(
    "/taskmanagers/{taskmanagerid}/log-url",
    response_model=LogUrlMessage,
    summary="Where a dashboard shows an engine's logs",
)
async def show_engine_log_url(
    request: Request,
    context: Context,
    job_id: JobIdParam,
    engine: Annotated[str, Path(alias="taskmanagerid", max_length=200)],
) -> Response:
    # The contract leaves ids as they are, colons too; what could end the address is escaped.
    return answer({"url": f"{_base(request, context.address)}/#/task-manager/{quote(engine, safe=':-_.')}/logs"})


def _base(request: Request, address: str) -> str:
    """Under the address that this node has for others; before it has one, the one that it was asked under."""
    return (address or str(request.base_url)).rstrip("/")
