"""Applications: that of an application cluster, with all jobs of its program; in a session cluster one for each job, under the
job's id, as for a Flink job that is submitted alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from firesteel.config.sections import Role
from firesteel.dispatcher.gateway import JobOverview
from firesteel.errors import JobNotFoundError, JobStateError
from firesteel.flink_rest.contract import ERRORS
from firesteel.flink_rest.details import failure_words
from firesteel.flink_rest.jobmanager import render_configuration
from firesteel.flink_rest.view import JobView
from firesteel.masking import mask_text
from firesteel.rest.answers import Json, answer, encode, encoded
from firesteel.rest.context import CallerParam, CallerPrincipal, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.overview import render_row
from firesteel.rest.params import HEX_ID
from firesteel.rest.security.principals import require
from firesteel.rest.states import ms, ms_or
from firesteel.status import JobStatus
from firesteel.stores.applications import ApplicationRecord
from firesteel.types import JobID

router = APIRouter(tags=["applications"], responses=ERRORS)

_OF_JOB: Mapping[JobStatus, str] = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.RESTARTING: "RUNNING",
    JobStatus.RECONCILING: "RUNNING",
    JobStatus.SUSPENDED: "RUNNING",
    JobStatus.FAILING: "FAILING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
}
_STAMPED_BY: Mapping[str, str] = {
    "CREATED": "INITIALIZING",
    "FAILING": "FAILING",
    "FAILED": "FAILED",
    "RUNNING": "RUNNING",
    "CANCELED": "CANCELED",
    "CANCELING": "CANCELLING",
    "FINISHED": "FINISHED",
}
"""For each state of an application, the job state with which it begins."""


async def _application_id(applicationid: Annotated[str, Path(pattern=HEX_ID, description="32 hex digits")]) -> JobID:
    return JobID(applicationid.lower())


ApplicationIdParam = Annotated[JobID, Depends(_application_id)]


@router.get("/applications/overview", summary="All applications")
async def list_applications(context: Context, caller: CallerParam) -> Response:
    now = time.time()
    if (own := await context.gateway.request_application()) is not None:
        jobs = [job for job in await context.gateway.list_jobs() if caller.sees(job.owner)]
        shown = [render_own(own, jobs, now)] if caller.sees(own.program.owner) else []
        return answer({"applications": shown})
    lines = [_line(job, now) for job in await context.gateway.list_jobs() if caller.sees(job.owner)]
    return encoded(b'{"applications":[' + b",".join(lines) + b"]}")


@router.get("/applications/{applicationid}", summary="One application and its job")
async def show_application(context: Context, caller: CallerParam, application_id: ApplicationIdParam) -> Response:
    if (own := await _own(context, caller, application_id)) is not None:
        jobs = [job for job in await context.gateway.list_jobs() if caller.sees(job.owner)]
        return answer(render_own_details(own, jobs, time.time()))
    return answer(render_details(await _job(context, caller, application_id), time.time()))


@router.post("/applications/{applicationid}/cancel", status_code=202, summary="Cancel its job")
async def cancel_application(context: Context, caller: CallerParam, application_id: ApplicationIdParam) -> Response:
    try:
        caller.read(application_id)
        require(caller.principal, Role.OPERATOR)
        if await _own(context, caller, application_id) is not None:
            caller.write(application_id)
            await context.gateway.cancel_application()
        else:
            await context.gateway.cancel_job(caller.write(application_id))
    except (JobNotFoundError, JobStateError) as error:  # an ended application counts as missing
        raise HttpError(404, "Application could not be found.") from error
    return answer({}, 202)


@router.get("/applications/{applicationid}/exceptions", summary="The failures of an application")
async def show_exceptions(context: Context, caller: CallerParam, application_id: ApplicationIdParam) -> Response:
    if (own := await _own(context, caller, application_id)) is not None:
        jobs = [job.job_id for job in await context.gateway.list_jobs() if caller.sees(job.owner)]
        return answer(render_own_exceptions(own, [await _job(context, caller, job_id) for job_id in jobs]))
    return answer(render_exceptions(await _job(context, caller, application_id)))


@router.get(
    "/applications/{applicationid}/jobmanager/config",
    summary="The configuration of this node",
)
async def show_configuration(
    context: Context, principal: CallerPrincipal, application_id: ApplicationIdParam
) -> Response:
    return answer(render_configuration(context.configuration, principal))


async def _own(context: Context, caller: CallerParam, application_id: JobID) -> ApplicationRecord | None:
    """The application of an application cluster, if it is the one asked for and the caller may see it."""
    own = await context.gateway.request_application()
    if own is None or own.application_id != application_id or not caller.sees(own.program.owner):
        return None
    return own


async def _job(context: Context, caller: CallerParam, application_id: JobID) -> dict[str, Any]:
    try:
        return await context.gateway.request_job(caller.read(application_id))
    except JobNotFoundError as error:
        raise HttpError(404, f"Could not find Flink application ({application_id})") from error


def _line(job: JobOverview, now: float) -> bytes:
    return encode(render_application(job, now)) if job.ended_at is None else _ended_line(job)


@lru_cache(20_000)
def _ended_line(job: JobOverview) -> bytes:
    """Cached: an ended job never changes, there may be many, and dashboards request all of them every few seconds."""
    return encode(render_application(job, job.ended_at or 0.0))


def render_application(job: JobOverview, now: float) -> Json:
    return {
        "id": job.job_id,
        "name": f"SingleJobApplication({mask_text(job.name)})",
        "start-time": ms(job.submitted_at),
        "end-time": ms_or(job.ended_at),
        "duration": ms((now if job.ended_at is None else job.ended_at) - job.submitted_at),
        "status": _OF_JOB[job.status],
        "jobs": {job.status.value: 1},
    }


def render_own(own: ApplicationRecord, jobs: Sequence[JobOverview], now: float) -> Json:
    """The application of an application cluster, as its record has it."""
    began, ended = own.program.submitted_at, own.ended_at
    return {
        "id": own.application_id,
        "name": mask_text(own.program.graph.name),
        "start-time": ms(began),
        "end-time": ms_or(ended),
        "duration": ms((now if ended is None else ended) - began),
        "status": own.state.value,
        "jobs": dict(Counter(job.status.value for job in jobs)),
    }


def render_own_details(own: ApplicationRecord, jobs: Sequence[JobOverview], now: float) -> Json:
    return {
        **render_own(own, jobs, now),
        "timestamps": {state: ms(own.timestamps.get(state, 0.0)) for state in _STAMPED_BY},
        "jobs": [render_row(job, now) for job in jobs],
    }


def render_own_exceptions(own: ApplicationRecord, jobs: Sequence[Mapping[str, Any]]) -> Json:
    """Newest first: what the application says itself, then what its jobs say."""
    entries: list[Json] = []
    for job in jobs:
        entries += render_exceptions(job)["exceptionHistory"]["entries"]
    entries.sort(key=lambda e: -e["timestamp"])
    if own.failure:
        said: Json = {
            "exceptionName": "ApplicationFailure",
            "stacktrace": mask_text(own.failure),
            "timestamp": ms(own.ended_at or 0.0),
            "jobId": own.application_id,
        }
        entries.insert(0, said)
    return {"exceptionHistory": {"entries": entries}}


def render_details(job: Mapping[str, Any], now: float) -> Json:
    overview = _overview(job)
    stamps: Mapping[str, float] = {"INITIALIZING": job["submitted_at"], **job["timestamps"]}
    if overview.ended_at is not None:
        stamps = {**stamps, overview.status.value: overview.ended_at}
    shown = render_application(overview, now)
    return {
        "id": shown["id"],
        "name": shown["name"],
        "status": shown["status"],
        "start-time": shown["start-time"],
        "end-time": shown["end-time"],
        "duration": shown["duration"],
        "timestamps": {state: ms(stamps.get(of_job, 0.0)) for state, of_job in _STAMPED_BY.items()},
        "jobs": [render_row(overview, now)],
    }


def render_exceptions(job: Mapping[str, Any]) -> Json:
    """Newest first, as the job has them."""
    entries: list[Json] = []
    for failure in JobView(job, 0.0).exceptions:
        name, _, stack_trace = failure_words(failure)
        entries.append(
            {
                "exceptionName": name,
                "stacktrace": stack_trace,
                "timestamp": ms(failure["at"]),
                "jobId": job["job_id"],
            }
        )
    return {"exceptionHistory": {"entries": entries}}


def _overview(job: Mapping[str, Any]) -> JobOverview:
    status = JobStatus(job["status"])
    ended = job["ended_at"]
    changed = ended if ended is not None else job["timestamps"].get(status.value, job["submitted_at"])
    return JobOverview(
        JobID(job["job_id"]),
        job["name"],
        status,
        job["submitted_at"],
        ended,
        job["attempt"],
        job["restarts"],
        changed,
        job["owner"],
        job["mode"],
        len(job["vertices"]),
    )
