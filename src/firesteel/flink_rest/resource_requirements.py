"""The parallelism of a job, which cannot change while it runs: it is shown, and changes are refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from firesteel.config.sections import Role
from firesteel.flink_rest.contract import ERRORS, LARGEST_INT
from firesteel.flink_rest.reading import read_job
from firesteel.flink_rest.view import JobView
from firesteel.rest.answers import Json, answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.params import HEX_ID, JobIdParam, body_as, body_schema
from firesteel.rest.security.principals import require

router = APIRouter(prefix="/jobs/{jobid}", tags=["rescaling"], responses=ERRORS)


class ParallelismBounds(BaseModel):
    lower: int = Field(alias="lowerBound", ge=1, le=LARGEST_INT)
    upper: int = Field(alias="upperBound", ge=1, le=LARGEST_INT)


class VertexRequirements(BaseModel):
    parallelism: ParallelismBounds


class JobResourceRequirementsBody(RootModel[dict[Annotated[str, Field(pattern=HEX_ID)], VertexRequirements]]):
    """Requirements by vertex id."""


def render_requirements(job: JobView) -> Json:
    """The current parallelism is also the required one, as it cannot change."""
    return {v.id: {"parallelism": {"lowerBound": v.parallelism, "upperBound": v.parallelism}} for v in job.vertices}


@router.get("/resource-requirements", summary="The parallelism of all vertices")
async def show_requirements(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    return answer(render_requirements(await read_job(context, caller, job_id)))


@router.put(
    "/resource-requirements",
    openapi_extra=body_schema(JobResourceRequirementsBody, required=True),
    summary="Set the parallelism; accepted if it changes nothing",
)
async def update_requirements(context: Context, caller: CallerParam, job_id: JobIdParam, request: Request) -> Response:
    require(caller.principal, Role.OPERATOR)
    body = await body_as(request, JobResourceRequirementsBody)
    job = await read_job(context, caller, job_id)
    caller.write(job_id)
    check_requirements(job, {vertex.lower(): r.parallelism for vertex, r in body.root.items()})
    return answer({})


def check_requirements(job: JobView, wanted: dict[str, ParallelismBounds]) -> None:
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
