"""`GET /history`: jobs that have ended, a page at a time."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable, Sequence
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


class EndedJobRow(OverviewRow):
    """A line of `/jobs/overview`, with what Flink has no word for."""

    kind: str
    """The mode, or `script` or `interactive`."""


class EndedJobsPage(TypedDict):
    jobs: list[EndedJobRow]
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
    search: Annotated[
        str | None, Query(max_length=200, description="Words of the name, or beginnings of the id; all of them count.")
    ] = None,
    state: Annotated[
        str | None,
        Query(max_length=100, description="Only jobs that ended so: FINISHED, FAILED, CANCELED, with commas."),
    ] = None,
) -> Response:
    ended = await context.gateway.list_ended()
    rows, follows = await asyncio.to_thread(page, ended, limit, before, wishes(caller.sees, search, state))
    now = time.time()
    content: EndedJobsPage = {"jobs": [{**render_row(j, now), "kind": j.kind} for j in rows], "next": follows}
    return answer(content)


def wishes(
    sees: Callable[[str], bool], search: str | None = None, state: str | None = None
) -> Callable[[JobOverview], bool]:
    """Which jobs are wanted: those that the caller sees, with all words of `search` in the name or at the beginning of
    the id."""
    words = (search or "").lower().split()
    states = None if state is None else {word.strip().upper() for word in state.split(",")}
    seen: dict[str, bool] = {}

    def wanted(job: JobOverview) -> bool:
        visible = seen.get(job.owner)
        if visible is None:
            visible = seen[job.owner] = sees(job.owner)
        if not visible or (states is not None and job.status.value not in states):
            return False
        name = job.name.lower() if words else ""
        return all(word in name or job.job_id.startswith(word) for word in words)

    return wanted


def page(
    ended: Sequence[JobOverview], limit: int, before: int | None, wanted: Callable[[JobOverview], bool] = lambda _: True
) -> tuple[list[JobOverview], int | None]:
    """A page, and where the next one begins. `ended` has the last one first.

    Jobs that ended in the same millisecond stay on one page, which may become longer, as the next page starts at a time.
    """
    first = 0 if before is None else bisect.bisect_right(ended, -before, key=lambda job: -_end(job))
    rows: list[JobOverview] = []
    last = 0
    for number in range(first, len(ended)):
        job = ended[number]
        if not wanted(job):
            continue
        end = _end(job)
        if len(rows) >= limit and end != last:
            return rows, last
        rows.append(job)
        last = end
    return rows, None


def _end(job: JobOverview) -> int:
    assert job.ended_at is not None
    return ms(job.ended_at)
