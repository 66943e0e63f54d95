"""The cluster as a whole: settings for dashboards, counts, and shutdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel import __version__
from firesteel.config.sections import Role
from firesteel.flink_rest.contract import ERRORS
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.rest.answers import Json, answer
from firesteel.rest.context import Caller, CallerParam, CallerPrincipal, Context
from firesteel.rest.security.principals import EVERYBODY, require
from firesteel.status import JobStatus

router = APIRouter(tags=["cluster"], responses=ERRORS)

FLINK_VERSION = "2.3.0"
"""The implemented version of the contract. Clients use it to find out which resources exist, so it is the version of the API
and not Firesteel's, which is sent in addition."""
BUILD = f"firesteel-{__version__}"


class JobCounts(TypedDict):
    running: int
    finished: int
    cancelled: int
    failed: int


@router.get("/config", summary="Settings for dashboards")
async def show_config(context: Context) -> Response:
    return answer(render_config(context.configuration.rest.refresh_interval, datetime.now().astimezone()))


@router.get("/overview", summary="Slots, engines and the number of jobs")
async def show_overview(context: Context, caller: CallerParam) -> Response:
    overview = await context.gateway.request_cluster_overview()
    return answer(render_overview(visible(overview.resources, caller), await count_jobs(context, caller)))


@router.delete("/cluster", summary="End the leading node; jobs and engines keep running")
async def shut_down(context: Context, principal: CallerPrincipal) -> Response:
    require(principal, Role.ADMIN)
    await context.gateway.shut_down()
    context.withdraw()
    return answer({})


async def count_jobs(context: Context, caller: CallerParam) -> JobCounts:
    """The numbers of jobs that the caller may see."""
    if sees_all(caller.principal):
        overview = await context.gateway.request_cluster_overview()
        return counted((status, n) for status, n in overview.jobs.items())
    return counted((job.status, 1) for job in await context.gateway.list_jobs() if caller.sees(job.owner))


def sees_all(principal: CallerPrincipal) -> bool:
    """Whether the caller may see the jobs of all tenants (S19)."""
    return principal.role is Role.ADMIN or principal.owner == EVERYBODY


def counted(jobs: Iterable[tuple[JobStatus, int]]) -> JobCounts:
    counts: JobCounts = {"running": 0, "finished": 0, "cancelled": 0, "failed": 0}
    for status, number in jobs:
        match status:
            case JobStatus.FINISHED:
                counts["finished"] += number
            case JobStatus.CANCELED:
                counts["cancelled"] += number
            case JobStatus.FAILED:
                counts["failed"] += number
            case _:  # everything that has not ended
                counts["running"] += number
    return counts


def visible(resources: ResourceOverview, caller: Caller) -> list[EngineOverview]:
    """The contract's task managers: engines that are available to jobs and visible to the caller."""
    return [e for e in resources.ready if caller.sees_engine(e.owner)]


def render_config(refresh_interval: float, now: datetime) -> Json:
    offset = now.utcoffset()
    return {
        "refresh-interval": round(refresh_interval * 1000),
        "timezone-name": now.tzname() or "UTC",
        "timezone-offset": round(offset.total_seconds() * 1000) if offset else 0,
        "flink-version": FLINK_VERSION,
        "flink-revision": BUILD,
        "features": {"web-submit": True, "web-cancel": True, "web-rescale": False, "web-history": False},
        "firesteel-version": __version__,
    }


def render_overview(engines: Sequence[EngineOverview], jobs: JobCounts) -> Json:
    return {
        "taskmanagers": len(engines),
        "slots-total": sum(e.slots for e in engines),
        "slots-available": sum(e.free for e in engines),
        "jobs-running": jobs["running"],
        "jobs-finished": jobs["finished"],
        "jobs-cancelled": jobs["cancelled"],
        "jobs-failed": jobs["failed"],
        "flink-version": FLINK_VERSION,
        "flink-commit": BUILD,
        "firesteel-version": __version__,
    }
