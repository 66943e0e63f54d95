"""The routers of this part, in the order in which they are tried."""

from __future__ import annotations

from fastapi import APIRouter

from firesteel.rest.native import (
    about,
    blobs,
    documentation,
    engines,
    events,
    history,
    lineage,
    logs,
    metrics,
    resume,
    sessions,
    submit,
    vertex_log,
)

ROUTERS: tuple[APIRouter, ...] = (
    submit.router,
    resume.router,
    about.jobs,
    sessions.router,
    events.router,
    logs.router,
    vertex_log.router,
    lineage.router,
    history.router,
    engines.router,
    blobs.router,
    about.router,
    metrics.router,
    documentation.router,
)
