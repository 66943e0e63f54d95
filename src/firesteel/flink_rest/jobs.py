"""`/jobs` and one job as a whole: lists, details, state, result and cancellation."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from firesteel.config.sections import Role
from firesteel.errors import JobNotFoundError, JobStateError
from firesteel.flink_rest.contract import ERRORS, Errors, no_job
from firesteel.flink_rest.coverage import NO_STOP_MODE
from firesteel.flink_rest.details import render_config, render_execution_result, render_job
from firesteel.flink_rest.exceptions import DEFAULT_MOST, parse_labels, render_exceptions
from firesteel.flink_rest.plan import render_plan
from firesteel.flink_rest.reading import read_job
from firesteel.rest.answers import answer, encoded
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.params import JobIdParam, body_as, body_schema
from firesteel.rest.security.principals import require
from firesteel.status import JobStatus
from firesteel.types import JobID

router = APIRouter(prefix="/jobs", tags=["jobs"], responses=ERRORS)


class JobClientHeartbeatRequestBody(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    expires_at: int | None = Field(None, alias="expiredTimestamp", ge=-(2**63), le=2**63 - 1)
    """Milliseconds; ignored in favour of the timeout that the job was submitted with."""


@router.get("", summary="All jobs with their states")
async def list_jobs(context: Context, caller: CallerParam) -> Response:
    jobs = await context.gateway.list_jobs()
    return answer({"jobs": [{"id": j.job_id, "status": j.status.value} for j in jobs if caller.sees(j.owner)]})


@router.get("/overview", summary="All jobs, one row each")
async def show_overview(context: Context, caller: CallerParam) -> Response:
    return encoded(context.overview.answer(await context.gateway.list_jobs(), caller.sees, time.time()))


_STOP_MODE: dict[int | str, dict[str, Any]] = {308: {"model": Errors, "description": "The mode `stop` was removed."}}

job_router = APIRouter(prefix="/jobs/{jobid}", tags=["jobs"], responses=ERRORS)
"""Tried after all paths that have a word in place of a job's id."""


@job_router.get("", summary="A job with its vertices and its plan")
async def show_job(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer(render_job(await read_job(context, caller, job_id)))


@job_router.get("/status", summary="The state of a job")
async def show_status(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    try:
        status = await context.gateway.request_job_status(caller.read(job_id))
    except JobNotFoundError:
        raise no_job(job_id) from None
    return answer({"status": status.value})


@job_router.get("/plan", summary="The graph of a job")
async def show_plan(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer({"plan": render_plan(await read_job(context, caller, job_id))})


@job_router.get("/config", summary="The execution settings of a job")
async def show_config(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer(render_config(await read_job(context, caller, job_id)))


@job_router.get("/execution-result", summary="How a job ended")
async def show_result(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    try:
        job = await read_job(context, caller, job_id)
    except HttpError:
        raise HttpError(404, f"Could not find Flink job ({job_id})") from None
    return answer(render_execution_result(job))


@job_router.get("/exceptions", summary="Why attempts of a job failed")
async def show_exceptions(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    most: Annotated[int, Query(alias="maxExceptions", ge=0, le=2**31 - 1)] = DEFAULT_MOST,
    labels: Annotated[
        str | None, Query(alias="failureLabelFilter", description="`key:value` pairs, separated by commas")
    ] = None,
) -> Response:
    """Failures of the job's attempts, newest first, with the labels of the enrichers."""
    wanted = parse_labels(labels)
    job = await read_job(context, caller, job_id)
    return answer(render_exceptions(job, most, wanted))


@job_router.patch("", status_code=202, responses=_STOP_MODE, summary="Cancel a job")
async def cancel(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    mode: Annotated[str, Query(pattern="^(cancel|CANCEL|stop|STOP)$")] = "cancel",
    checkpoint: Annotated[
        Literal["keep", "discard"] | None,
        Query(description="Whether to keep the checkpoint of a stream; by default as configured"),
    ] = None,
) -> Response:
    if mode.lower() == "stop":
        raise HttpError(308, NO_STOP_MODE)
    return await _cancel(context, caller, job_id, keep_checkpoint=None if checkpoint is None else checkpoint == "keep")


@job_router.get("/yarn-cancel", status_code=202, summary="Cancel a job, by GET")
async def cancel_by_get(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """For Flink's dashboard. The door treats it as a change although it is a GET."""
    return await _cancel(context, caller, job_id)


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
    openapi_extra=body_schema(JobClientHeartbeatRequestBody, required=True),
    summary="Report that the client of a job is alive",
)
async def report_heartbeat(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    require(caller.principal, Role.OPERATOR)
    body = await body_as(request, JobClientHeartbeatRequestBody)
    if body.expires_at is None:
        raise HttpError(400, "Request did not match expected format JobClientHeartbeatRequestBody.")
    try:
        await context.gateway.report_client_heartbeat(caller.write(job_id))
    except (JobNotFoundError, JobStateError):
        pass  # a heartbeat that has no effect; the contract accepts it all the same
    return answer({}, 202)
