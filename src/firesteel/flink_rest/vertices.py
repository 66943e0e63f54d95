"""`/jobs/:job/vertices/:vertex` and its sub-resources."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from firesteel.flink_rest.busyness import busy_share_of
from firesteel.flink_rest.contract import ERRORS, AttemptParam, SubtaskParam, VertexIdParam
from firesteel.flink_rest.reading import attempt_of, read_job, read_subtask, read_vertex
from firesteel.flink_rest.subtasks import (
    render_execution,
    render_task_managers,
    render_times,
    render_vertex,
)
from firesteel.flink_rest.view import SUBTASK
from firesteel.rest.answers import Json, answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.params import JobIdParam
from firesteel.rest.states import NAN

router = APIRouter(prefix="/jobs/{jobid}/vertices/{vertexid}", tags=["vertices"], responses=ERRORS)


@router.get("", summary="A vertex and its subtask")
async def show_vertex(context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam) -> Response:
    return answer(render_vertex(await read_vertex(context, caller, job_id, vertex)))


@router.get("/subtasktimes", summary="The time at which the subtask entered each state")
async def show_times(context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam) -> Response:
    return answer(render_times(await read_vertex(context, caller, job_id, vertex)))


@router.get("/taskmanagers", summary="The engine that the vertex runs on")
async def show_task_managers(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam
) -> Response:
    job = await read_job(context, caller, job_id)
    found = job.vertex(vertex)
    if found is None:
        raise HttpError(404, f"JobVertex {vertex} not found")
    return answer(render_task_managers(found))


@router.get("/backpressure", summary="How busy a vertex is; there is no back pressure")
async def show_back_pressure(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam
) -> Response:
    """Structured Streaming starts a batch when the last one is done, so there is no back pressure: a vertex is busy or idle."""
    job = await read_job(context, caller, job_id)
    found = job.vertex(vertex)
    if found is None or found.state != "RUNNING":
        return answer({"status": "deprecated"})
    share = busy_share_of(found)
    level: Json = {"backpressureLevel": "ok", "backpressure-level": "ok"}
    subtask: Json = {
        "subtask": SUBTASK,
        **level,
        "ratio": 0.0,
        "idleRatio": 0.0 if share is None else round(1 - share, 3),
        "busyRatio": NAN if share is None else round(share, 3),
    }
    return answer({"status": "ok", **level, "end-timestamp": job.now, "subtasks": [subtask]})


attempts = APIRouter(
    prefix="/jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}", tags=["vertices"], responses=ERRORS
)
"""Tried after all paths that have a word where this has a number."""


@attempts.get("", summary="The subtask's current attempt")
async def show_subtask(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam, subtask: SubtaskParam
) -> Response:
    found = await read_subtask(context, caller, job_id, vertex, subtask)
    return answer(render_execution(found, found.execution))


@attempts.get("/attempts/{attempt}", summary="One attempt; the first is 0")
async def show_attempt(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    vertex: VertexIdParam,
    subtask: SubtaskParam,
    attempt: AttemptParam,
) -> Response:
    found = await read_subtask(context, caller, job_id, vertex, subtask)
    return answer(render_execution(found, attempt_of(found, attempt)))
