"""Engines, which take the place of the contract's task managers."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from firesteel.engines.api import EngineApi
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.errors import JobNotFoundError
from firesteel.flink_rest.aggregation import AggregationParam, MetricsParam, aggregates_of, metrics_of, words
from firesteel.flink_rest.cluster import visible
from firesteel.flink_rest.contract import ERRORS
from firesteel.flink_rest.debugging import dump_engine, require_debugging
from firesteel.flink_rest.engine_views import render_details, render_engine
from firesteel.flink_rest.log_files import LogFiles, empty_text, listed, require_all, text_of
from firesteel.flink_rest.metric_values import named
from firesteel.resourcemanager.measures import engine_measures
from firesteel.resourcemanager.overview import EngineOverview
from firesteel.rest.answers import answer
from firesteel.rest.context import Caller, CallerParam, Context, RestContext
from firesteel.rest.errors import HttpError
from firesteel.types import JobID

router = APIRouter(tags=["taskmanagers"], responses=ERRORS)

LOG = "engine.log"

EngineIdParam = Annotated[str, Path(alias="taskmanagerid", max_length=255, description="The id of an engine")]


@router.get("/taskmanagers", summary="The engines that are available to jobs")
async def list_engines(context: Context, caller: CallerParam) -> Response:
    now = time.time()
    return answer({"taskmanagers": [render_engine(e, now) for e in await _engines(context, caller)]})


@router.get(
    "/taskmanagers/metrics",
    summary="Metrics over all engines, or over the named ones",
)
async def show_aggregated_metrics(
    context: Context,
    caller: CallerParam,
    get: MetricsParam = None,
    agg: AggregationParam = None,
    taskmanagers: Annotated[str | None, Query(max_length=20_000)] = None,
) -> Response:
    wanted = set(words(taskmanagers))
    engines = [e for e in await _engines(context, caller) if not wanted or e.engine_id in wanted]
    holders = [await asyncio.to_thread(_metrics, context, e) for e in engines]
    return answer(aggregates_of(holders, get, agg))


@router.get("/taskmanagers/{taskmanagerid}", summary="One engine")
async def show_engine(context: Context, caller: CallerParam, engine_id: EngineIdParam) -> Response:
    engine = await _engine(context, caller, engine_id)
    if engine is None:
        raise _unknown(f"No TaskExecutor registered under {engine_id}.")
    metrics = await asyncio.to_thread(_metrics, context, engine)
    visible = [job_id for job_id in engine.jobs if _sees(caller, context, job_id)]
    return answer(render_details(engine, visible, metrics, time.time()))


@router.get("/taskmanagers/{taskmanagerid}/metrics", summary="Metrics of an engine")
async def show_metrics(
    context: Context, caller: CallerParam, engine_id: EngineIdParam, get: MetricsParam = None
) -> Response:
    engine = await _engine(context, caller, engine_id)
    if engine is None:
        return answer([])
    return answer(metrics_of(await asyncio.to_thread(_metrics, context, engine), get))


@router.get("/taskmanagers/{taskmanagerid}/logs", summary="Log files of an engine")
async def list_logs(context: Context, caller: CallerParam, engine_id: EngineIdParam) -> Response:
    engine = await _engine(context, caller, engine_id)
    if engine is None:
        raise _unknown(f"Could not find TaskExecutor {engine_id}")
    _require_log(caller, engine)
    return answer(await listed(await _files(context, engine)))


@router.get("/taskmanagers/{taskmanagerid}/logs/{filename}", response_class=Response, summary="A log file of an engine")
async def show_log_file(
    context: Context,
    caller: CallerParam,
    engine_id: EngineIdParam,
    filename: Annotated[str, Path(max_length=255)],
) -> Response:
    found = await text_of((await _files(context, await engine_with_files(context, caller, engine_id))).get(filename))
    if found is None:
        raise HttpError(404, f"The engine {engine_id} has no log file of that name.")
    return found


@router.get("/taskmanagers/{taskmanagerid}/log", response_class=Response, summary="The log of an engine")
async def show_log(context: Context, caller: CallerParam, engine_id: EngineIdParam) -> Response:
    return (
        await text_of((await _files(context, await engine_with_files(context, caller, engine_id)))[LOG]) or empty_text()
    )


@router.get("/taskmanagers/{taskmanagerid}/thread-dump", summary="Threads of an engine; for admins")
async def show_threads(context: Context, caller: CallerParam, engine_id: EngineIdParam) -> Response:
    require_debugging(context.configuration, caller.principal)
    engine = await _engine(context, caller, engine_id)
    if engine is None:
        raise _unknown(f"Could not find TaskExecutor {engine_id}")
    return answer(dump_engine(await asyncio.to_thread(_threads_of, context, engine)))


# -- engines -----------------------------------------------------------------------------------------------------------


async def _engines(context: RestContext, caller: Caller) -> list[EngineOverview]:
    return visible((await context.gateway.request_cluster_overview()).resources, caller)


async def _engine(context: RestContext, caller: Caller, engine_id: str) -> EngineOverview | None:
    """The engine of that id, if there is one; from here on only the id in its record is used (S4)."""
    return next((e for e in await _engines(context, caller) if e.engine_id == engine_id), None)


async def engine_with_files(context: RestContext, caller: Caller, engine_id: str) -> EngineOverview:
    """The engine, if the caller may read its logs. Raises HttpError 404 or ForbiddenError."""
    engine = await _engine(context, caller, engine_id)
    if engine is None:
        raise _unknown(f"Failed to transfer file from TaskExecutor {engine_id} because it was unknown.")
    _require_log(caller, engine)
    return engine


def _require_log(caller: Caller, engine: EngineOverview) -> None:
    if engine.owner is None:  # the log of a shared engine mentions all its users
        require_all(caller.principal)


def _unknown(message: str) -> HttpError:
    return HttpError(404, message)


def _sees(caller: Caller, context: RestContext, job_id: JobID) -> bool:
    try:
        return caller.sees(context.gateway.owner_of(job_id))
    except JobNotFoundError:  # it has just ended
        return False


def _directory(context: RestContext, engine: EngineOverview) -> EngineDirectory:
    return EngineDirectory(context.configuration.data.dir if engine.foreign else context.directory)


async def _files(context: RestContext, engine: EngineOverview) -> LogFiles:
    return {LOG: await asyncio.to_thread(lambda: _directory(context, engine).log(engine.engine_id))}


def _metrics(context: RestContext, engine: EngineOverview) -> dict[str, float]:
    return named(engine_measures(engine, _record(context, engine)))


def _record(context: RestContext, engine: EngineOverview) -> EngineRecord | None:
    return _directory(context, engine).load(engine.engine_id)


def _threads_of(context: RestContext, engine: EngineOverview) -> list[Mapping[str, Any]]:
    record = _record(context, engine)
    if record is None or not record.ui_port:
        raise HttpError(404, f"The engine {engine.engine_id} has no monitoring API that could list its threads.")
    try:
        threads = EngineApi(record).get("executors/driver/threads")
    except (OSError, urllib.error.URLError, json.JSONDecodeError, LookupError) as error:
        raise HttpError(404, f"The engine {engine.engine_id} did not list its threads: {error}") from error
    return [t for t in threads or [] if isinstance(t, Mapping)]
