"""The routers of this part, in the order in which they are tried."""

from __future__ import annotations

from fastapi import APIRouter

from firesteel.rest.flink import applications, cluster, datasets, jars, jobmanager, taskmanagers

ROUTERS: tuple[APIRouter, ...] = (
    cluster.router,
    applications.router,
    datasets.router,
    jars.router,
    jobmanager.router,
    taskmanagers.router,
)
