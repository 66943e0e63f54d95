"""The node that answers: its configuration, environment, metrics and logs."""

from __future__ import annotations

import asyncio
import platform
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from firesteel.config import Configuration
from firesteel.config.sections import Role
from firesteel.flink_rest.aggregation import MetricsParam, metrics_of
from firesteel.flink_rest.cluster import count_jobs, sees_all
from firesteel.flink_rest.contract import ERRORS
from firesteel.flink_rest.debugging import dump_node, require_debugging
from firesteel.flink_rest.log_files import LogFiles, empty_text, listed, require_all, text_of
from firesteel.flink_rest.metric_values import named, node_values
from firesteel.layout import NODE_LOG, NODE_OUTPUT
from firesteel.masking import mask
from firesteel.metrics.declarations import RESIDENT, UNFINISHED_JOBS
from firesteel.metrics.process import own_measures, physical_memory
from firesteel.resourcemanager.measures import resource_measures
from firesteel.rest.answers import Json, answer
from firesteel.rest.context import CallerParam, CallerPrincipal, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.params import JobIdParam
from firesteel.rest.security.principals import Principal

router = APIRouter(tags=["jobmanager"], responses=ERRORS)


@router.get("/jobmanager/config", summary="The configuration of this node")
async def show_configuration(context: Context, principal: CallerPrincipal) -> Response:
    return answer(render_configuration(context.configuration, principal))


@router.get("/jobmanager/environment", summary="The environment of this node")
async def show_environment() -> Response:
    return answer(render_environment())


@router.get("/jobmanager/metrics", summary="Metrics of this node, or their names")
async def show_metrics(context: Context, caller: CallerParam, get: MetricsParam = None) -> Response:
    """Metrics of the leader. Callers that may see everything also get those of its registry."""
    overview = await context.gateway.request_cluster_overview()
    own = await asyncio.to_thread(own_measures)
    values: dict[str, object] = {
        **named(resource_measures(overview.resources)),
        UNFINISHED_JOBS.flink: (await count_jobs(context, caller))["running"],
        **named(own),
        # Dashboards show the resident memory as the node's heap: Python has no other measure.
        "Status.JVM.Memory.Heap.Used": own.get(RESIDENT, 0),
        "Status.JVM.Memory.Heap.Committed": own.get(RESIDENT, 0),
        "Status.JVM.Memory.Heap.Max": physical_memory(),
    }
    if sees_all(caller.principal):
        await context.metrics.collect()
        values |= node_values(context.metrics)
    return answer(metrics_of(values, get))


@router.get("/jobmanager/logs", summary="Log files of this node")
async def list_logs(context: Context, principal: CallerPrincipal) -> Response:
    require_all(principal)
    return answer(await listed(files_of(context)))


@router.get("/jobmanager/logs/{filename}", response_class=Response, summary="A log file of this node")
async def show_log_file(
    context: Context, principal: CallerPrincipal, filename: Annotated[str, Path(max_length=255)]
) -> Response:
    require_all(principal)
    found = await text_of(files_of(context).get(filename))
    if found is None:
        raise HttpError(404, "This file does not exist in JobManager log dir.")
    return found


@router.get("/jobmanager/log", response_class=Response, summary="The log of this node")
async def show_log(context: Context, principal: CallerPrincipal) -> Response:
    require_all(principal)
    return await text_of(files_of(context)[NODE_LOG]) or empty_text()


@router.get("/jobmanager/stdout", response_class=Response, summary="The standard output of this node")
async def show_stdout(context: Context, principal: CallerPrincipal) -> Response:
    require_all(principal)
    return await text_of(files_of(context)[NODE_OUTPUT]) or empty_text()


@router.get("/jobmanager/thread-dump", summary="Threads and tasks of this node; for admins")
async def show_threads(context: Context, principal: CallerPrincipal) -> Response:
    require_debugging(context.configuration, principal)
    return answer(dump_node())


def files_of(context: RestContext) -> LogFiles:
    return {name: context.directory / name for name in (NODE_LOG, NODE_OUTPUT)}


def render_configuration(configuration: Configuration, principal: Principal) -> list[Json]:
    """Every effective setting. Masked twice: what is declared a secret, and what looks like one (S27).

    Only admins see paths of the node: a path is the first thing that an attacker needs to get at a file (S39).
    """
    rows: list[Json] = [{"key": row.key, "value": row.value} for row in configuration.rows()]
    if principal.role is not Role.ADMIN:
        rows = [row for row in rows if not _tells_a_place(row["value"], str(configuration.data.dir))]
    return mask(rows)


def _tells_a_place(value: str, data: str) -> bool:
    return value.startswith(("/", "~", "file:")) or data in value


def render_environment() -> Json:
    """No environment variables and no arguments: both may hold secrets."""
    return {
        "jvm": {
            "version": f"{platform.python_implementation()} {platform.python_version()}",
            "arch": platform.machine(),
            "options": [],
        },
        "classpath": [],
    }


# -- below a job: copies that Flink's history server has. They also answer for unknown jobs ---------------------------------

of_job = APIRouter(prefix="/jobs/{jobid}", tags=["jobs"], responses=ERRORS)


@of_job.get("/jobmanager/config", summary="The configuration of this node")
async def show_configuration_of_job(context: Context, principal: CallerPrincipal, job_id: JobIdParam) -> Response:
    return answer(render_configuration(context.configuration, principal))


@of_job.get("/jobmanager/environment", summary="The environment of this node")
async def show_environment_of_job(job_id: JobIdParam) -> Response:
    return answer(render_environment())


@of_job.get("/jobmanager/log-url", summary="The URL of the node's logs in a dashboard")
async def show_log_url(request: Request, context: Context, job_id: JobIdParam) -> Response:
    return answer({"url": f"{_base(request, context.address)}/#/job-manager/logs"})


@of_job.get(
    "/taskmanagers/{taskmanagerid}/log-url",
    summary="The URL of an engine's logs in a dashboard",
)
async def show_engine_log_url(
    request: Request,
    context: Context,
    job_id: JobIdParam,
    engine: Annotated[str, Path(alias="taskmanagerid", max_length=200)],
) -> Response:
    # The contract keeps ids unchanged, including colons; only characters that could end the URL are escaped.
    return answer({"url": f"{_base(request, context.address)}/#/task-manager/{quote(engine, safe=':-_.')}/logs"})


def _base(request: Request, address: str) -> str:
    """The public address of this node, or, before it has one, the address of the request."""
    return (address or str(request.base_url)).rstrip("/")
