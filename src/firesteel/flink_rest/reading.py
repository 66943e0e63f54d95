"""Reading a job, for all resources that show one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firesteel.errors import JobNotFoundError
from firesteel.flink_rest.checkpoint_stats import CheckpointHistory, checkpoint_history, has_checkpoints
from firesteel.flink_rest.contract import no_job, no_vertex
from firesteel.flink_rest.view import SUBTASK, Execution, JobView, VertexView
from firesteel.jobmaster.kept_checkpoints import checkpoint_directory
from firesteel.rest.context import Caller, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.logs import OPERATORS, RESULT, json_object
from firesteel.status import JobStatus
from firesteel.types import JobID

MOST_ROWS = 2**53
"""A program may have written the files, and sums of such numbers must still be valid in JSON."""


async def read_job(context: RestContext, caller: Caller, job_id: JobID) -> JobView:
    """The job, if the caller may see it.

    Raises HttpError 404 with the contract's message.
    """
    try:
        data = await context.gateway.request_job(caller.read(job_id))
    except JobNotFoundError:
        raise no_job(job_id) from None
    return JobView(data, time.time(), await _counted(context, data))


async def read_vertex(context: RestContext, caller: Caller, job_id: JobID, vertex: str) -> VertexView:
    found = (await read_job(context, caller, job_id)).vertex(vertex)
    if found is None:
        raise no_vertex(vertex)
    return found


async def read_subtask(context: RestContext, caller: Caller, job_id: JobID, vertex: str, subtask: int) -> VertexView:
    """The vertex of the subtask."""
    found = await read_vertex(context, caller, job_id, vertex)
    if subtask != SUBTASK:
        raise HttpError(404, f"Invalid subtask index for vertex {vertex}; every vertex has only subtask {SUBTASK}")
    return found


def attempt_of(vertex: VertexView, attempt: int) -> Execution:
    execution = next((e for e in vertex.executions if e.attempt == attempt), None)
    if execution is None:
        raise HttpError(404, f"Invalid attempt num {attempt}")
    return execution


async def read_history(context: RestContext, job: JobView) -> CheckpointHistory | None:
    """The job's checkpoints; None for a job that has none."""
    if not has_checkpoints(job):
        return None
    operations = await context.gateway.list_operations(job.job_id)
    return checkpoint_history(job, operations, checkpoint_directory(context.configuration, job.owner, job.job_id))


async def _counted(context: RestContext, data: Mapping[str, Any]) -> Mapping[str, int]:
    """The row counts of a batch job that has succeeded."""
    if data["status"] != JobStatus.FINISHED or data["mode"] != "batch" or not data["attempt"]:
        return {}
    found = await asyncio.to_thread(_rows, context.logs.directory(JobID(data["job_id"]), data["attempt"]))
    return found or _whole(data.get("progress", {}).get("rows"))  # the files may be gone, and the job be archived


def _rows(directory: Path) -> dict[str, int]:
    """Exact counts, with those of Spark's operators as a fallback; empty when the files are missing or damaged."""
    operators, result = json_object(directory / OPERATORS), json_object(directory / RESULT)
    if operators is None or result is None:
        return {}
    found = [rows for rows in (operators.get("rows"), result.get("rows")) if isinstance(rows, dict)]
    return {n: count for rows in found for n, count in _whole(rows).items()}


def _whole(rows: object) -> dict[str, int]:
    """The counts among them that are counts."""
    told = rows if isinstance(rows, dict) else {}
    return {n: count for n, count in told.items() if type(count) is int and abs(count) <= MOST_ROWS}
