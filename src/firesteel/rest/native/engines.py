"""Engines, and jobs that wait for one."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.dispatcher.gateway import JobOverview
from firesteel.masking import mask_text
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context
from firesteel.status import JobStatus

router = APIRouter(tags=["engines"])


class EngineMessage(TypedDict):
    id: str
    master: str
    memory: str
    cores: int
    """0 if unknown."""
    slots: int
    free: int
    state: str
    since: int
    """Milliseconds since 1970; 0 for an attached engine."""
    address: str
    foreign: bool
    """Whether it was started, and will be stopped, outside of the cluster."""
    owner: str | None
    """The owner whose jobs may use it; null if all may, or none is assigned yet."""
    worker: str
    """The id of the worker that has it."""
    worker_name: str


class EngineList(TypedDict):
    engines: list[EngineMessage]


class WaitingJob(TypedDict):
    job_id: str
    name: str
    since: int
    """Milliseconds since 1970."""
    waits_for: str | None
    """The workers without which it cannot run; null if it waits for a slot, or for room for an engine."""


class QueueView(TypedDict):
    waiting: int
    """The number of waiting jobs of all owners."""
    jobs: list[WaitingJob]
    """The waiting jobs that the caller may see, longest wait first."""


@router.get("/engines", response_model=EngineList, summary="Engines that jobs run on")
async def list_engines(context: Context, caller: CallerParam) -> Response:
    overview = await context.gateway.request_cluster_overview()
    engines = [e for e in overview.resources.engines if caller.sees_engine(e.owner)]
    content: EngineList = {"engines": [render_engine(e) for e in engines]}
    return answer(content)


@router.get("/queue", response_model=QueueView, summary="Jobs that wait for an engine")
async def show_queue(context: Context, caller: CallerParam) -> Response:
    overview = await context.gateway.request_cluster_overview()
    jobs = [j for j in await context.gateway.list_jobs() if caller.sees(j.owner)]
    return answer(render_queue(overview.resources, jobs))


def render_engine(engine: EngineOverview) -> EngineMessage:
    return {
        "id": engine.engine_id,
        "master": mask_text(engine.master),  # the master of an attached engine is a URL, which may hold a token
        "memory": engine.memory,
        "cores": engine.cores,
        "slots": engine.slots,
        "free": engine.free,
        "state": engine.state.value,
        "since": round(engine.since * 1000),
        "address": mask_text(engine.address),
        "foreign": engine.foreign,
        "owner": engine.owner,
        "worker": engine.worker,
        "worker_name": engine.worker_name,
    }


def render_queue(resources: ResourceOverview, jobs: Iterable[JobOverview]) -> QueueView:
    created = sorted((j for j in jobs if j.status is JobStatus.CREATED), key=lambda j: (j.changed_at, j.job_id))
    return {
        "waiting": resources.waiting,
        "jobs": [
            {
                "job_id": j.job_id,
                "name": j.name,
                "since": round(j.changed_at * 1000),
                "waits_for": resources.waits_for.get(j.job_id),
            }
            for j in created
        ],
    }
