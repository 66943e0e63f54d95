"""The node that answers: its configuration, environment, metrics and logs."""

from __future__ import annotations

import asyncio
import platform
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.config import Configuration
from firesteel.config.sections import Role
from firesteel.resourcemanager.overview import ResourceOverview
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, CallerPrincipal, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.flink.aggregation import MetricMessage, MetricsParam, metrics_of
from firesteel.rest.flink.cluster import JobCounts, count_jobs, usable
from firesteel.rest.flink.contract import ERRORS
from firesteel.rest.flink.debugging import ThreadDump, dump_node, require_debugging
from firesteel.rest.flink.log_files import LogFiles, LogList, empty_text, listed, require_all, text_of
from firesteel.rest.flink.process_metrics import own_metrics
from firesteel.rest.security.masking import mask
from firesteel.rest.security.principals import Principal

router = APIRouter(tags=["jobmanager"], responses=ERRORS)

LOG, STDOUT = "node.log", "node.out"


class ConfigurationEntry(TypedDict):
    key: str
    value: str


class Runtime(TypedDict):
    version: str
    arch: str
    options: list[str]


class Environment(TypedDict):
    jvm: Runtime
    classpath: list[str]


@router.get("/jobmanager/config", response_model=list[ConfigurationEntry], summary="The configuration of this node")
async def show_configuration(context: Context, principal: CallerPrincipal) -> Response:
    return answer(render_configuration(context.configuration, principal))


@router.get("/jobmanager/environment", response_model=Environment, summary="What this node runs on")
async def show_environment() -> Response:
    return answer(render_environment())


@router.get("/jobmanager/metrics", response_model=list[MetricMessage], summary="Metrics of this node, or their names")
async def show_metrics(context: Context, caller: CallerParam, get: MetricsParam = None) -> Response:
    overview = await context.gateway.request_cluster_overview()
    jobs = await count_jobs(context, caller)
    own = await asyncio.to_thread(own_metrics)
    return answer(metrics_of({**cluster_metrics(overview.resources, jobs), **own}, get))


@router.get("/jobmanager/logs", response_model=LogList, summary="Log files of this node")
async def list_logs(context: Context, principal: CallerPrincipal) -> Response:
    require_all(principal)
    return answer(await listed(files_of(context)))


@router.get("/jobmanager/logs/{filename}", response_class=Response, summary="One of them")
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
    return await text_of(files_of(context)[LOG]) or empty_text()


@router.get("/jobmanager/stdout", response_class=Response, summary="What this node printed")
async def show_stdout(context: Context, principal: CallerPrincipal) -> Response:
    require_all(principal)
    return await text_of(files_of(context)[STDOUT]) or empty_text()


@router.get("/jobmanager/thread-dump", response_model=ThreadDump, summary="Threads and tasks of this node; for admins")
async def show_threads(context: Context, principal: CallerPrincipal) -> Response:
    require_debugging(context.configuration, principal)
    return answer(dump_node())


def files_of(context: RestContext) -> LogFiles:
    return {name: context.directory / name for name in (LOG, STDOUT)}


def render_configuration(configuration: Configuration, principal: Principal) -> list[ConfigurationEntry]:
    """Every setting as it is in force. Masked twice: by what is declared a secret, and by what looks like one (S27).

    Where files of the node are, admins only are told: a path is the first thing that one needs to get at a file (S39).
    """
    rows: list[ConfigurationEntry] = [{"key": row.key, "value": row.value} for row in configuration.rows()]
    if principal.role is not Role.ADMIN:
        rows = [row for row in rows if not _tells_a_place(row["value"], str(configuration.data.dir))]
    return mask(rows)


def _tells_a_place(value: str, data: str) -> bool:
    return value.startswith(("/", "~", "file:")) or data in value


def render_environment() -> Environment:
    """No environment variables and no arguments: both may hold secrets."""
    return {
        "jvm": {
            "version": f"{platform.python_implementation()} {platform.python_version()}",
            "arch": platform.machine(),
            "options": [],
        },
        "classpath": [],
    }


def cluster_metrics(resources: ResourceOverview, jobs: JobCounts) -> dict[str, int]:
    engines = usable(resources)
    return {
        "taskSlotsAvailable": sum(e.free for e in engines),
        "taskSlotsTotal": sum(e.slots for e in engines),
        "numRegisteredTaskManagers": len(engines),
        "numRunningJobs": jobs["running"],
        "numWaitingJobs": resources.waiting,
    }
