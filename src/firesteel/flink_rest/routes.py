"""The routers of this package, in the order in which they are tried: words before ids."""

from __future__ import annotations

from fastapi import APIRouter

from firesteel.flink_rest import (
    applications,
    checkpoints,
    cluster,
    fixed,
    jars,
    jobmanager,
    jobs,
    metrics,
    operations,
    resource_requirements,
    taskmanagers,
    vertices,
)
from firesteel.flink_rest.schemas import describe
from firesteel.rest.app import Facade

ROUTERS: tuple[APIRouter, ...] = (
    fixed.router,
    jobs.router,
    metrics.router,
    checkpoints.router,
    operations.router,
    resource_requirements.router,
    jobmanager.of_job,
    vertices.router,
    metrics.vertices,
    vertices.attempts,
    jobs.job_router,
    cluster.router,
    applications.router,
    jars.router,
    jobmanager.router,
    taskmanagers.router,
)

FLINK = Facade(ROUTERS, describe)
