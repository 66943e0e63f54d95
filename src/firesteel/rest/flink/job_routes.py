"""The routers of this part, in the order in which they are tried: words before ids."""

from __future__ import annotations

from fastapi import APIRouter

from firesteel.rest.flink import (
    checkpoints,
    disposal,
    exceptions,
    jobs,
    metrics,
    operations,
    per_job_jobmanager,
    rescales,
    vertices,
)

ROUTERS: tuple[APIRouter, ...] = (
    jobs.router,
    metrics.router,
    exceptions.router,
    checkpoints.router,
    operations.router,
    rescales.router,
    per_job_jobmanager.router,
    vertices.router,
    metrics.vertices,
    vertices.attempts,
    jobs.job_router,
    disposal.router,
)
