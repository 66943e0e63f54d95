"""Changing the parallelism of a job while it runs, which Spark cannot: what can be asked is answered, the rest refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field, RootModel
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.config.sections import Role
from firesteel.errors import JobNotFoundError
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.flink.contract import ERRORS, LARGEST_INT, Empty, no_job
from firesteel.rest.flink.reading import read_job
from firesteel.rest.flink.view import JobView
from firesteel.rest.params import HEX_ID, JobIdParam, TriggerIdParam, body_as, body_schema
from firesteel.rest.security.principals import require

router = APIRouter(prefix="/jobs/{jobid}", tags=["rescaling"], responses=ERRORS)


class ParallelismBounds(TypedDict):
    lowerBound: int
    upperBound: int


class VertexRequirements(TypedDict):
    parallelism: ParallelismBounds


ResourceRequirementsMessage = dict[str, VertexRequirements]


class Bounds(BaseModel):
    lower: int = Field(alias="lowerBound", ge=1, le=LARGEST_INT)
    upper: int = Field(alias="upperBound", ge=1, le=LARGEST_INT)


class Requirements(BaseModel):
    parallelism: Bounds


class JobResourceRequirementsBody(RootModel[dict[Annotated[str, Field(pattern=HEX_ID)], Requirements]]):
    """By vertex id."""


def render_requirements(job: JobView) -> ResourceRequirementsMessage:
    """What a vertex has is what it needs: it cannot change."""
    return {v.id: {"parallelism": {"lowerBound": v.parallelism, "upperBound": v.parallelism}} for v in job.vertices}


@router.get(
    "/resource-requirements", response_model=ResourceRequirementsMessage, summary="The parallelism of all vertices"
)
async def show_requirements(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer(render_requirements(await read_job(context, caller, job_id)))


@router.put(
    "/resource-requirements",
    response_model=Empty,
    openapi_extra=body_schema(JobResourceRequirementsBody, required=True),
    summary="Accepted if it changes nothing",
)
async def update_requirements(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    require(caller.principal, Role.OPERATOR)
    body = await body_as(request, JobResourceRequirementsBody)
    job = await read_job(context, caller, job_id)
    caller.write(job_id)
    check_requirements(job, {vertex.lower(): r.parallelism for vertex, r in body.root.items()})
    return answer({})


def check_requirements(job: JobView, wanted: dict[str, Bounds]) -> None:
    """Raises HttpError unless `wanted` is what the job has."""
    problems = [
        f"The request is incomplete, missing job vertex [{v.id}] resource requirements."
        for v in job.vertices
        if v.id not in wanted
    ]
    known = {v.id for v in job.vertices}
    problems += [
        f"No corresponding vertex was found in the job graph for vertex [{vertex}]."
        for vertex in wanted
        if vertex not in known
    ]
    problems += [
        f"The lower bound of vertex [{vertex}] is above its upper bound."
        for vertex, bounds in wanted.items()
        if bounds.lower > bounds.upper
    ]
    if problems:
        raise HttpError(400, *problems)
    for vertex in job.vertices:
        bounds = wanted[vertex.id]
        if not bounds.lower <= vertex.parallelism <= bounds.upper:
            raise HttpError(
                409,
                f"The parallelism of vertex '{vertex.name}' is {vertex.parallelism} and cannot change while the job runs; "
                "stop the job with a savepoint and submit it from there with another parallelism",
            )


# -- what the Adaptive scheduler of Flink has ------------------------------------------------------------------------


@router.get("/rescales/config", response_model=Empty, summary="Settings of the Adaptive scheduler: it is not here")
async def show_rescale_config(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    await read_job(context, caller, job_id)
    raise HttpError(404, f"AdaptiveScheduler is not enabled for this job ({job_id}).")


@router.get("/rescales/overview", response_model=Empty, summary="Rescales: there are none")
async def show_rescales(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    await read_job(context, caller, job_id)
    raise _no_rescales(job_id)


@router.get("/rescales/summary", response_model=Empty, summary="Rescales: there are none")
async def show_rescale_summary(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    await read_job(context, caller, job_id)
    raise _no_rescales(job_id)


@router.get("/rescales/history", response_model=Empty, summary="Rescales: there are none")
async def show_rescale_history(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    await read_job(context, caller, job_id)
    raise _no_rescales(job_id)


@router.get("/rescales/details/{rescaleuuid}", response_model=Empty, summary="Rescales: there are none")
async def show_rescale(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    rescale: Annotated[str, Path(alias="rescaleuuid", pattern=HEX_ID)],
) -> Response:
    await read_job(context, caller, job_id)
    raise HttpError(404, f"Could not find rescale details of specified rescaleUuid {rescale.lower()}.")


def _no_rescales(job_id: str) -> HttpError:
    return HttpError(
        404,
        f"The job `{job_id}` has not enabled the `Adaptive` scheduler, or it has been enabled but the value of "
        "configuration option `web.adaptive-scheduler.rescale-history.size` has not been set to greater than `0`.",
    )


# -- rescaling by trigger, which Flink has disabled too --------------------------------------------------------------


@router.patch("/rescaling", response_model=Empty, summary="Refused: the parallelism of a running job is fixed")
async def rescale(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    parallelism: Annotated[int, Query(ge=1, le=LARGEST_INT)],
) -> Response:
    require(caller.principal, Role.OPERATOR)
    try:
        caller.write(job_id)
    except JobNotFoundError:
        raise no_job(job_id) from None
    raise HttpError(
        409,
        "Rescaling is disabled: the parallelism of a running job is fixed; stop the job with a savepoint and submit it "
        "from there with another parallelism",
    )


@router.get("/rescaling/{triggerid}", response_model=Empty, summary="There are no such operations")
async def poll_rescaling(
    context: Context, caller: CallerParam, job_id: JobIdParam, trigger_id: TriggerIdParam
) -> Response:
    await read_job(context, caller, job_id)
    raise HttpError(404, f"There is no rescaling operation with triggerId={trigger_id} for job {job_id}.")
