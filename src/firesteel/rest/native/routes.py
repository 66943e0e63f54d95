"""The routers of this package, in the order in which they are tried."""

from __future__ import annotations

from fastapi import APIRouter

from firesteel.rest.native import (
    about,
    blobs,
    documentation,
    engines,
    events,
    fleet,
    graph_check,
    history,
    job_list,
    lineage,
    logs,
    metrics,
    resume,
    sessions,
    submit,
    vertex_log,
    worker_sessions,
)

ROUTERS: tuple[APIRouter, ...] = (
    submit.router,
    job_list.router,
    graph_check.router,
    resume.router,
    about.jobs,
    sessions.router,
    events.router,
    logs.router,
    vertex_log.router,
    lineage.router,
    history.router,
    engines.router,
    fleet.router,
    blobs.router,
    about.router,
    metrics.router,
    documentation.router,
    worker_sessions.router,
)
