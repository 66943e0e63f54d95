"""`/jobs/:job/vertices/:vertex` and what is below it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NotRequired

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.flink.busyness import busy_share_of
from firesteel.rest.flink.contract import ERRORS, LARGEST_INT, AttemptParam, SubtaskParam, VertexIdParam
from firesteel.rest.flink.reading import read_job, read_vertex
from firesteel.rest.flink.states import NAN
from firesteel.rest.flink.subtasks import (
    AttemptAccumulators,
    SubtaskMessage,
    SubtasksAccumulators,
    SubtaskTimesMessage,
    VertexAccumulators,
    VertexMessage,
    VertexTaskManagersMessage,
    render_accumulators,
    render_attempt_accumulators,
    render_execution,
    render_subtasks_accumulators,
    render_task_managers,
    render_times,
    render_vertex,
)
from firesteel.rest.flink.view import SUBTASK, Execution, VertexView
from firesteel.rest.params import JobIdParam
from firesteel.types import JobID

router = APIRouter(prefix="/jobs/{jobid}/vertices/{vertexid}", tags=["vertices"], responses=ERRORS)

FLAME_GRAPHS_DISABLED = -2


BackPressureLevel = TypedDict("BackPressureLevel", {"backpressureLevel": str, "backpressure-level": str})
SubtaskBackPressure = TypedDict(
    "SubtaskBackPressure",
    {
        "subtask": int,
        "backpressureLevel": str,
        "backpressure-level": str,
        "ratio": float,
        "idleRatio": float,
        "busyRatio": float | str,
    },
)
BackPressureMessage = TypedDict(
    "BackPressureMessage",
    {
        "status": str,
        "backpressureLevel": NotRequired[str],
        "backpressure-level": NotRequired[str],
        "end-timestamp": NotRequired[int],
        "subtasks": NotRequired[list[SubtaskBackPressure]],
    },
)


class FlameGraphMessage(TypedDict):
    endTimestamp: int


class FlameGraphType(StrEnum):
    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"
    # Flink reads them in upper case too.
    FULL_UPPER = "FULL"
    ON_CPU_UPPER = "ON_CPU"
    OFF_CPU_UPPER = "OFF_CPU"


@router.get("", response_model=VertexMessage, summary="A vertex and its subtask")
async def show_vertex(context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam) -> Response:
    return answer(render_vertex(await read_vertex(context, caller, job_id, vertex)))


@router.get("/subtasktimes", response_model=SubtaskTimesMessage, summary="When the subtask entered which state")
async def show_times(context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam) -> Response:
    return answer(render_times(await read_vertex(context, caller, job_id, vertex)))


@router.get("/taskmanagers", response_model=VertexTaskManagersMessage, summary="The engine that the vertex runs on")
async def show_task_managers(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam
) -> Response:
    job = await read_job(context, caller, job_id)
    found = job.vertex(vertex)
    if found is None:
        raise HttpError(404, f"JobVertex {vertex} not found")
    return answer(render_task_managers(found))


@router.get("/accumulators", response_model=VertexAccumulators, summary="Accumulators of the vertex: none")
async def show_accumulators(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam
) -> Response:
    return answer(render_accumulators(await read_vertex(context, caller, job_id, vertex)))


@router.get(
    "/backpressure", response_model=BackPressureMessage, summary="How busy a vertex is; there is no back pressure"
)
async def show_back_pressure(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam
) -> Response:
    """Structured Streaming takes a batch when the last one is done, so nothing presses back: a vertex is busy or idle."""
    job = await read_job(context, caller, job_id)
    found = job.vertex(vertex)
    if found is None or found.state != "RUNNING":
        return answer({"status": "deprecated"})
    share = busy_share_of(found)
    level: BackPressureLevel = {"backpressureLevel": "ok", "backpressure-level": "ok"}
    subtask: SubtaskBackPressure = {
        "subtask": SUBTASK,
        **level,
        "ratio": 0.0,
        "idleRatio": 0.0 if share is None else round(1 - share, 3),
        "busyRatio": NAN if share is None else round(share, 3),
    }
    return answer({"status": "ok", **level, "end-timestamp": job.now, "subtasks": [subtask]})


@router.get("/flamegraph", response_model=FlameGraphMessage, summary="Flame graphs: there are none")
async def show_flame_graph(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    vertex: VertexIdParam,
    kind: Annotated[FlameGraphType, Query(alias="type")] = FlameGraphType.FULL,
    subtask: Annotated[int | None, Query(alias="subtaskindex", ge=0, le=LARGEST_INT)] = None,
) -> Response:
    await read_job(context, caller, job_id)
    return answer({"endTimestamp": FLAME_GRAPHS_DISABLED})


@router.get("/subtasks/accumulators", response_model=SubtasksAccumulators, summary="Accumulators by subtask: none")
async def show_subtasks_accumulators(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam
) -> Response:
    return answer(render_subtasks_accumulators(await read_vertex(context, caller, job_id, vertex)))


attempts = APIRouter(
    prefix="/jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}", tags=["vertices"], responses=ERRORS
)
"""Tried after everything whose last part is a word where this has a number."""


@attempts.get("", response_model=SubtaskMessage, summary="The subtask's current attempt")
async def show_subtask(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam, subtask: SubtaskParam
) -> Response:
    found = await _subtask(context, caller, job_id, vertex, subtask)
    return answer(render_execution(found, found.execution))


@attempts.get("/attempts/{attempt}", response_model=SubtaskMessage, summary="One attempt, the first is 0")
async def show_attempt(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    vertex: VertexIdParam,
    subtask: SubtaskParam,
    attempt: AttemptParam,
) -> Response:
    found = await _subtask(context, caller, job_id, vertex, subtask)
    return answer(render_execution(found, _attempt(found, attempt)))


@attempts.get(
    "/attempts/{attempt}/accumulators", response_model=AttemptAccumulators, summary="Accumulators of an attempt: none"
)
async def show_attempt_accumulators(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    vertex: VertexIdParam,
    subtask: SubtaskParam,
    attempt: AttemptParam,
) -> Response:
    found = await _subtask(context, caller, job_id, vertex, subtask)
    return answer(render_attempt_accumulators(found, _attempt(found, attempt)))


async def _subtask(context: RestContext, caller: Caller, job_id: JobID, vertex: str, subtask: int) -> VertexView:
    found = await read_vertex(context, caller, job_id, vertex)
    if subtask != SUBTASK:
        raise HttpError(404, f"Invalid subtask index for vertex {vertex}; every vertex has one, which is {SUBTASK}")
    return found


def _attempt(vertex: VertexView, attempt: int) -> Execution:
    found = next((e for e in vertex.executions if e.attempt == attempt), None)
    if found is None:
        raise HttpError(404, f"Invalid attempt num {attempt}")
    return found
