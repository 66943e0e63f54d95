"""`GET /jobs/list`: a short row for every job that the caller may see, with its owner, for lists of many thousands."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.rest.answers import encoded
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.job_rows import JobRow

router = APIRouter(tags=["jobs"])


class JobListAnswer(TypedDict):
    jobs: list[JobRow]


@router.get("/jobs/list", response_model=JobListAnswer, summary="All jobs with their owners, a short row each")
async def list_rows(context: Context, caller: CallerParam) -> Response:
    return encoded(context.job_rows.answer(await context.gateway.list_jobs(), caller.sees, time.time()))
