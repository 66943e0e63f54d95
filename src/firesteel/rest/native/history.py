"""`GET /history`: jobs that have ended, a page at a time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.dispatcher.gateway import JobOverview
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.overview import OverviewRow, render_row
from firesteel.rest.states import ms

router = APIRouter(tags=["jobs"])

MOST_ROWS = 1000


class EndedJobsPage(TypedDict):
    jobs: list[OverviewRow]
    next: int | None
    """`before` of the next page; null on the last one."""


@router.get("/history", response_model=EndedJobsPage, summary="Jobs that have ended, most recent first")
async def show_history(
    context: Context,
    caller: CallerParam,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Rows per page; a page may have a few more.")] = 100,
    before: Annotated[
        int | None,
        Query(ge=0, le=2**53, description="Only jobs that ended before this time, in milliseconds since 1970."),
    ] = None,
) -> Response:
    seen = [j for j in await context.gateway.list_jobs() if j.ended_at is not None and caller.sees(j.owner)]
    rows, follows = page(seen, limit, before)
    now = time.time()
    content: EndedJobsPage = {"jobs": [render_row(j, now) for j in rows], "next": follows}
    return answer(content)


def page(ended: Sequence[JobOverview], limit: int, before: int | None) -> tuple[list[JobOverview], int | None]:
    """A page, and the start of the next one.

    Jobs that ended in the same millisecond stay on one page, which may become longer, as the next page starts at a time.
    """
    older = [j for j in ended if before is None or _end(j) < before]
    newest = heapq.nlargest(limit, older, key=_order)
    if len(newest) == len(older):
        return newest, None
    last = _end(newest[-1])
    rows = sorted((j for j in older if _end(j) >= last), key=_order, reverse=True)
    return rows, last if len(rows) < len(older) else None


def _order(job: JobOverview) -> tuple[int, str]:
    return _end(job), job.job_id


def _end(job: JobOverview) -> int:
    assert job.ended_at is not None
    return ms(job.ended_at)
