"""Checks of the Spark settings of a job: some belong to the engine alone."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from firesteel.jobgraph.model import Mode

from .context import Context

RESERVED: Mapping[str, str] = {
    "spark.master": "the engine decides where Spark runs",
    "spark.remote": "the engine decides where Spark runs",
    "spark.submit.*": "the engine decides how Spark is started",
    "spark.connect.*": "Firesteel manages the connection to the engine",
    "spark.app.id": "Firesteel identifies applications by this id",
    "spark.ui.*": "the user interface belongs to the engine",
    "spark.driver.host": "the engine decides where Spark listens",
    "spark.driver.bindAddress": "the engine decides where Spark listens",
    "spark.driver.extraClassPath": "other jobs share the driver; list jars in settings.artifacts.jars",
    "spark.driver.extraJavaOptions": "other jobs share the driver",
    "spark.executor.extraClassPath": "other jobs share the executors; list jars in settings.artifacts.jars",
    "spark.plugins": "plugins are loaded when the engine starts",
    "spark.extraListeners": "listeners are loaded when the engine starts",
    "spark.sql.streaming.checkpointLocation": "Firesteel keeps the checkpoints of a job",
    "spark.sql.streaming.stopActiveRunOnRestart": "Firesteel decides which run of a query may live",
    "spark.authenticate*": "the engine's secrets are not for jobs",
}


def check(c: Context) -> None:
    if c.graph.settings.restore is not None and (c.graph.mode is not Mode.STREAMING or c.graph.is_program):
        message = "only a streaming job can start from a savepoint"
        c.add_top(("settings", "restore"), message, "remove it, or set 'mode: streaming' for the job")
    for key in c.graph.settings.spark:
        field = ("settings", "spark", key)
        if not key.startswith("spark."):
            c.add_top(field, "a Spark setting begins with 'spark.'", f"write spark.{key}, or put it into options")
            continue
        if reason := reserved(key):
            c.add_top(field, f"cannot be set by a job: {reason}", "remove it")


def reserved(key: str) -> str | None:
    """Why a job cannot have this Spark setting; None if it can."""
    return next((why for pattern, why in RESERVED.items() if fnmatchcase(key, pattern)), None)
