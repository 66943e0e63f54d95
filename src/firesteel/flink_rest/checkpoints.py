"""`/jobs/:job/checkpoints`: the batches that a stream has committed, and its savepoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from firesteel.flink_rest.checkpoint_messages import (
    render_checkpoint,
    render_checkpoint_config,
    render_checkpoints,
    render_subtasks,
)
from firesteel.flink_rest.checkpoint_stats import Checkpoint, has_checkpoints
from firesteel.flink_rest.contract import ERRORS, VertexIdParam
from firesteel.flink_rest.reading import read_history, read_job
from firesteel.flink_rest.view import JobView
from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.params import JobIdParam
from firesteel.types import JobID

router = APIRouter(prefix="/jobs/{jobid}/checkpoints", tags=["checkpoints"], responses=ERRORS)

CheckpointParam = Annotated[int, Path(alias="checkpointid", ge=-(2**63), le=2**63 - 1)]


@router.get("", summary="Batches and savepoints of a stream")
async def show_checkpoints(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    job = await read_job(context, caller, job_id)
    history = await read_history(context, job)
    if history is None:
        raise HttpError(404, "Checkpointing has not been enabled.")
    return answer(render_checkpoints(job, history, context.configuration.web.checkpoints_history))


@router.get("/config", summary="How a stream makes checkpoints")
async def show_config(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    job = await read_job(context, caller, job_id)
    if not has_checkpoints(job):
        raise HttpError(404, f"Checkpointing is not enabled for this job ({job_id}).")
    return answer(
        render_checkpoint_config(job, context.configuration.spark, context.configuration.checkpointing.retention)
    )


@router.get("/details/{checkpointid}", summary="A checkpoint of a stream")
async def show_checkpoint(
    context: Context, caller: CallerParam, job_id: JobIdParam, checkpoint: CheckpointParam
) -> Response:
    job, found = await _find(context, caller, job_id, checkpoint)
    return answer(render_checkpoint(job, found, tasks=True))


@router.get(
    "/details/{checkpointid}/subtasks/{vertexid}",
    summary="A checkpoint of a stream, for one vertex",
)
async def show_subtasks(
    context: Context, caller: CallerParam, job_id: JobIdParam, checkpoint: CheckpointParam, vertex: VertexIdParam
) -> Response:
    job, found = await _find(context, caller, job_id, checkpoint)
    if (task := job.vertex(vertex)) is None:
        raise HttpError(404, f"There is no checkpoint statistics for task {vertex}.")
    return answer(render_subtasks(found, task))


async def _find(context: RestContext, caller: Caller, job_id: JobID, number: int) -> tuple[JobView, Checkpoint]:
    job = await read_job(context, caller, job_id)
    history = await read_history(context, job)
    found = None if history is None else history.find(number)
    if found is None:
        raise HttpError(404, f"Could not find checkpointing statistics for checkpoint {number}.")
    return job, found
