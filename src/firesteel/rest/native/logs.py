"""Logs of jobs: the list of them, and their text by range or from the end. The names are a fixed set (S4)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import PlainTextResponse, Response
from typing_extensions import TypedDict

from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.logs import FILES, LogFile, read_range, regular, start_of_tail
from firesteel.rest.native.ranges import Part, part_answer, part_of, unsatisfiable
from firesteel.rest.params import JobIdParam
from firesteel.types import JobID

router = APIRouter(tags=["logs"])

TEXT = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
MOST_LINES = 1_000_000

AttemptNumber = Annotated[int, Path(ge=1, le=999_999_999, description="Attempts count from 1.")]
LogName = Annotated[str, Path(description=f"One of {', '.join(FILES)}.", json_schema_extra={"enum": list(FILES)})]
TailLines = Annotated[int | None, Query(ge=0, le=MOST_LINES, description="Only the last lines, up to this number.")]
RangeHeader = Annotated[str | None, Header(alias="Range", description="A single range of bytes.", max_length=200)]

TEXT_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
}
_PART_ANSWERS: dict[int | str, dict[str, Any]] = {
    **TEXT_ANSWERS,
    206: {"description": "A part of the text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    416: {"description": "The range is not in the file."},
}


class LogMessage(TypedDict):
    name: str
    size: int
    modified: int
    """Milliseconds since 1970."""


class AttemptMessage(TypedDict):
    attempt: int
    logs: list[LogMessage]


class AttemptList(TypedDict):
    attempts: list[AttemptMessage]


@router.get("/jobs/{jobid}/attempts", response_model=AttemptList, summary="Attempts of a job, and their logs")
async def list_attempts(context: Context, caller: CallerParam, job_id: JobIdParam) -> Response:
    """Attempts whose files are still kept, oldest first."""
    caller.read(job_id)
    found: list[AttemptMessage] = [
        {"attempt": number, "logs": [_shown(f) for f in await context.logs.files(job_id, number)]}
        for number in await context.logs.attempts(job_id)
    ]
    content: AttemptList = {"attempts": found}
    return answer(content)


@router.get(
    "/jobs/{jobid}/attempts/{attempt}/logs/{name}",
    response_class=PlainTextResponse,
    responses=_PART_ANSWERS,
    summary="A log of an attempt",
)
async def attempt_log(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    attempt: AttemptNumber,
    name: LogName,
    tail: TailLines = None,
    range_: RangeHeader = None,
) -> Response:
    caller.read(job_id)
    return await _log(context, job_id, attempt, name, tail, range_)


@router.get(
    "/jobs/{jobid}/logs/{name}",
    response_class=PlainTextResponse,
    responses=_PART_ANSWERS,
    summary="A log of the last attempt",
)
async def last_log(
    context: Context,
    caller: CallerParam,
    job_id: JobIdParam,
    name: LogName,
    tail: TailLines = None,
    range_: RangeHeader = None,
) -> Response:
    return await _log(context, job_id, await last_attempt(context, caller.read(job_id)), name, tail, range_)


async def last_attempt(context: RestContext, job_id: JobID) -> int:
    """The number of the last attempt. Raises HttpError 404 for a job that has none."""
    numbers = await context.logs.attempts(job_id)
    if not numbers:
        raise HttpError(404, f"Job {job_id} has no attempt yet, or its files were removed.")
    return numbers[-1]


async def _log(
    context: RestContext, job_id: JobID, attempt: int, name: str, tail: int | None, range_: str | None
) -> Response:
    await context.logs.refresh(job_id)
    path = context.logs.path(job_id, attempt, name)
    there = None if path is None else await asyncio.to_thread(regular, path)
    if path is None or there is None:
        raise HttpError(
            404, f"Attempt {attempt} of job {job_id} has no log of that name; possible names are {', '.join(FILES)}."
        )
    size = there.st_size
    if tail is not None:
        start = min(await start_of_tail(path, tail), size)
        return part_answer(read_range(path, start, size), Part(start, size, size), TEXT)
    part = part_of(range_, size)
    if part is None:
        return unsatisfiable(size)
    return part_answer(read_range(path, part.start, part.end), part, TEXT)


def _shown(file: LogFile) -> LogMessage:
    return {"name": file.name, "size": file.size, "modified": round(file.modified * 1000)}
