"""Metrics of jobs, vertices and subtasks. An unknown job or vertex has none, which is not an error."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from firesteel.flink_rest.aggregation import AggregationParam, MetricsParam, aggregates_of, metrics_of, words
from firesteel.flink_rest.checkpoint_stats import CheckpointHistory
from firesteel.flink_rest.contract import ERRORS, SubtaskParam, VertexIdParam, bad_query
from firesteel.flink_rest.metric_values import WATERMARK, job_metrics, overview_metrics, subtask_metrics, watermark_of
from firesteel.flink_rest.reading import read_history, read_job, read_vertex
from firesteel.flink_rest.view import SUBTASK
from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.params import HEX_ID, JobIdParam
from firesteel.types import JobID

router = APIRouter(tags=["metrics"], responses=ERRORS)

_JOB_ID = re.compile(HEX_ID)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@router.get("/jobs/metrics", summary="Metrics over running jobs")
async def show_jobs_metrics(
    context: Context,
    caller: CallerParam,
    get: MetricsParam = None,
    agg: AggregationParam = None,
    jobs: Annotated[
        str | None, Query(max_length=20_000, description="Ids of jobs, separated by commas; by default all")
    ] = None,
) -> Response:
    wanted = _job_ids(jobs)
    now = time.time()
    holders = [
        overview_metrics(job, now)
        for job in await context.gateway.list_jobs()
        if job.ended_at is None and (not wanted or job.job_id in wanted) and caller.sees(job.owner)
    ]
    return answer(aggregates_of(holders, get, agg))


@router.get("/jobs/{jobid}/metrics", summary="Metrics of a job, or their names")
async def show_job_metrics(
    context: Context, caller: CallerParam, job_id: JobIdParam, get: MetricsParam = None
) -> Response:
    try:
        job = await read_job(context, caller, job_id)
    except HttpError:
        return answer([])
    history: CheckpointHistory | None = await read_history(context, job)
    return answer(metrics_of(job_metrics(job, history), get))


vertices = APIRouter(prefix="/jobs/{jobid}/vertices/{vertexid}", tags=["metrics"], responses=ERRORS)


@vertices.get("/metrics", summary="Metrics of all subtasks, or their names")
async def show_vertex_metrics(
    context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam, get: MetricsParam = None
) -> Response:
    values = await _values(context, caller, job_id, vertex)
    return answer(metrics_of({f"{SUBTASK}.{name}": value for name, value in values.items()}, get))


@vertices.get("/watermarks", summary="The watermark of a stream")
async def show_watermarks(context: Context, caller: CallerParam, job_id: JobIdParam, vertex: VertexIdParam) -> Response:
    watermark = watermark_of(await read_vertex(context, caller, job_id, vertex))
    return answer([] if watermark is None else [{"id": f"{SUBTASK}.{WATERMARK}", "value": str(watermark)}])


@vertices.get("/subtasks/metrics", summary="Metrics over the subtasks of a vertex")
async def show_subtasks_metrics(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    vertex: VertexIdParam,
    get: MetricsParam = None,
    agg: AggregationParam = None,
    subtasks: Annotated[str | None, Query(max_length=2000, description="`0` or `0-3`, separated by commas")] = None,
) -> Response:
    holders = [await _values(context, caller, job_id, vertex)] if _has_ours(subtasks) else []
    return answer(aggregates_of(holders, get, agg))


@vertices.get("/subtasks/{subtaskindex}/metrics", summary="Metrics of a subtask")
async def show_subtask_metrics(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    vertex: VertexIdParam,
    subtask: SubtaskParam,
    get: MetricsParam = None,
) -> Response:
    values = await _values(context, caller, job_id, vertex) if subtask == SUBTASK else {}
    return answer(metrics_of(values, get))


async def _values(context: RestContext, caller: Caller, job_id: JobID, vertex: str) -> Mapping[str, float]:
    """The known metrics; empty for an unknown job or vertex."""
    try:
        return subtask_metrics(await read_vertex(context, caller, job_id, vertex))
    except HttpError:
        return {}


def _job_ids(text: str | None) -> set[JobID]:
    ids = words(text)
    for word in ids:
        if not _JOB_ID.fullmatch(word):
            raise bad_query("jobs", word)
    return {JobID(word.lower()) for word in ids}


def _has_ours(text: str | None) -> bool:
    """Whether the request includes the one subtask."""
    found = not words(text)
    for word in words(text):
        match = _RANGE.fullmatch(word)
        if match is None:
            raise bad_query("subtasks", word)
        first = int(match[1])
        found = found or first <= SUBTASK <= int(match[2] or first)
    return found
