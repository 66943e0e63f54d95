"""`/jobs` and one job as a whole: lists, details, state, result, and its cancelling."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.config.sections import Role
from firesteel.errors import JobNotFoundError, JobStateError
from firesteel.rest.answers import answer, encoded
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.flink.contract import ERRORS, Empty, Errors, no_job
from firesteel.rest.flink.details import (
    ConfigMessage,
    ExecutionResultMessage,
    JobMessage,
    render_config,
    render_execution_result,
    render_job,
)
from firesteel.rest.flink.overview import OverviewMessage
from firesteel.rest.flink.plan import PlanMessage, render_plan
from firesteel.rest.flink.reading import read_job
from firesteel.rest.params import JobIdParam, body_as, body_schema
from firesteel.rest.security.principals import require
from firesteel.status import JobStatus
from firesteel.types import JobID

router = APIRouter(prefix="/jobs", tags=["jobs"], responses=ERRORS)


class JobIdWithStatus(TypedDict):
    id: str
    status: str


class JobIdsMessage(TypedDict):
    jobs: list[JobIdWithStatus]


class StatusMessage(TypedDict):
    status: str


AccumulatorsMessage = TypedDict(
    "AccumulatorsMessage",
    {
        "job-accumulators": list[Any],
        "user-task-accumulators": list[Any],
        "serialized-user-task-accumulators": dict[str, Any],
    },
)


class JobClientHeartbeatRequestBody(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    expires_at: int | None = Field(None, alias="expiredTimestamp", ge=-(2**63), le=2**63 - 1)
    """ms; what counts is the timeout with which the job was submitted."""


@router.get("", response_model=JobIdsMessage, summary="All jobs with their states")
async def list_jobs(context: Context, caller: CallerParam) -> Response:
    jobs = await context.gateway.list_jobs()
    return answer({"jobs": [{"id": j.job_id, "status": j.status.value} for j in jobs if caller.sees(j.owner)]})


@router.get("/overview", response_model=OverviewMessage, summary="All jobs, a line each")
async def show_overview(context: Context, caller: CallerParam) -> Response:
    return encoded(context.overview.answer(await context.gateway.list_jobs(), caller.sees, time.time()))


NO_STOP_MODE: dict[int | str, dict[str, Any]] = {308: {"model": Errors, "description": "`stop` is no mode any more."}}

job_router = APIRouter(prefix="/jobs/{jobid}", tags=["jobs"], responses=ERRORS)
"""Tried after everything that has a word where this has a job's id."""


@job_router.get("", response_model=JobMessage, summary="A job with its vertices and its plan")
async def show_job(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer(render_job(await read_job(context, caller, job_id)))


@job_router.get("/status", response_model=StatusMessage, summary="The state of a job")
async def show_status(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    try:
        status = await context.gateway.request_job_status(caller.read(job_id))
    except JobNotFoundError:
        raise no_job(job_id) from None
    return answer({"status": status.value})


@job_router.get("/plan", response_model=PlanMessage, summary="The graph of a job")
async def show_plan(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer({"plan": render_plan(await read_job(context, caller, job_id))})


@job_router.get("/config", response_model=ConfigMessage, summary="How a job is run")
async def show_config(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer(render_config(await read_job(context, caller, job_id)))


@job_router.get("/execution-result", response_model=ExecutionResultMessage, summary="How a job ended, once it has")
async def show_result(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    try:
        job = await read_job(context, caller, job_id)
    except HttpError:
        raise HttpError(404, f"Could not find Flink job ({job_id})") from None
    return answer(render_execution_result(job))


@job_router.get("/accumulators", response_model=AccumulatorsMessage, summary="Accumulators: none")
async def show_accumulators(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    serialized: Annotated[bool, Query(alias="includeSerializedValue")] = False,
) -> Response:
    """Spark's accumulators stay within Spark."""
    await read_job(context, caller, job_id)
    return answer({"job-accumulators": [], "user-task-accumulators": [], "serialized-user-task-accumulators": {}})


@job_router.patch("", status_code=202, response_model=Empty, responses=NO_STOP_MODE, summary="Cancel a job")
async def cancel(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    mode: Annotated[str, Query(pattern="^(cancel|CANCEL|stop|STOP)$")] = "cancel",
    checkpoint: Annotated[
        Literal["keep", "discard"] | None,
        Query(description="What becomes of the checkpoint of a stream; without it, what is configured"),
    ] = None,
) -> Response:
    if mode.lower() == "stop":
        raise no_stop_mode()
    return await _cancel(context, caller, job_id, keep_checkpoint=None if checkpoint is None else checkpoint == "keep")


@job_router.get("/yarn-cancel", status_code=202, response_model=Empty, summary="Cancel a job, by GET")
async def cancel_by_get(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """For Flink's dashboard. To the door it is the change that it is."""
    return await _cancel(context, caller, job_id)


@job_router.get("/yarn-stop", status_code=308, response_model=Errors, summary="There is no such mode any more")
async def stop_by_get(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    raise no_stop_mode()


def no_stop_mode() -> HttpError:
    return HttpError(
        308,
        'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel" instead. '
        'For a graceful shutdown, please use "jobs/:jobId/stop" instead.',
    )


async def _cancel(
    context: RestContext, caller: Caller, job_id: JobID, *, keep_checkpoint: bool | None = None
) -> Response:
    require(caller.principal, Role.OPERATOR)
    try:
        await context.gateway.cancel_job(caller.write(job_id), keep_checkpoint=keep_checkpoint)
    except JobNotFoundError:
        raise HttpError(404, "Job could not be found.") from None
    except JobStateError:
        status = await context.gateway.request_job_status(job_id)
        if not status.terminal:
            raise
        if status is not JobStatus.CANCELED:
            message = "Job cancellation failed because the job has already reached another terminal state"
            raise HttpError(409, f"{message} ({status.value}).") from None
    return answer({}, 202)


@job_router.patch(
    "/clientHeartbeat",
    status_code=202,
    response_model=Empty,
    openapi_extra=body_schema(JobClientHeartbeatRequestBody, required=True),
    summary="The client that submitted the job is there",
)
async def report_heartbeat(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    require(caller.principal, Role.OPERATOR)
    body = await body_as(request, JobClientHeartbeatRequestBody)
    if body.expires_at is None:
        raise HttpError(400, "Request did not match expected format JobClientHeartbeatRequestBody.")
    try:
        await context.gateway.report_client_heartbeat(caller.write(job_id))
    except (JobNotFoundError, JobStateError):
        pass  # a heartbeat that nobody waits for; the contract takes it all the same
    return answer({}, 202)


@job_router.post("/coordinators/{operatorUid}", response_model=Empty, summary="Flink's operator coordinators: none")
async def ask_coordinator(context: Context, caller: CallerParam, job_id: JobIdParam, operatorUid: str) -> Response:  # noqa: N803
    """Flink's clients fetch rows of an SQL query through these. There are none here, and no rows to fetch."""
    require(caller.principal, Role.OPERATOR)
    try:
        caller.write(job_id)
    except JobNotFoundError:
        raise no_job(job_id) from None
    raise HttpError(
        400, f"Job {job_id} has no operator coordinators: it runs on Spark; write what you want to read to a sink"
    )
