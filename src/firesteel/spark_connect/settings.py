"""Which Spark settings belong to an engine and which to a session on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from firesteel.jobgraph.model import JobGraph, Mode

# Spark SQL settings that are fixed when the application starts.
_STATIC_SQL = (
    "spark.sql.warehouse.dir",
    "spark.sql.catalogImplementation",
    "spark.sql.globalTempDatabase",
    "spark.sql.extensions",
    "spark.sql.catalog.",
    "spark.sql.cache.serializer",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.streaming.ui.",
    "spark.sql.ui.",
    "spark.sql.hive.metastore",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.defaultCatalog",
    "spark.sql.restrictedMode.",
    "spark.sql.reflect.",
)

# Sessions of jobs whose submitter is not an admin: FROM text.`/some/file` would read any file that the engine can
# (S39).
RESTRICTIONS = {"spark.sql.runSQLOnFiles": "false"}

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
DEFAULT_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DEFAULT_CHANGELOG = "true"
"""Of Spark 4.3, which keeps this one to itself unless it was set."""


class SplitSettings(NamedTuple):
    engine: dict[str, str]
    session: dict[str, str]


def split_settings(settings: Mapping[str, str]) -> SplitSettings:
    """Settings that an engine must be started with, and those that a session can be given."""
    session = {k: v for k, v in settings.items() if k.startswith("spark.sql.") and not k.startswith(_STATIC_SQL)}
    return SplitSettings({k: v for k, v in settings.items() if k not in session}, session)


def session_settings(
    graph: JobGraph, *, cores: int, default_parallelism: int | None, spark: Mapping[str, str]
) -> dict[str, str]:
    """Settings of the job's session. Parallelism is Spark's number of shuffle partitions; a streaming job that names none
    gets one per core, because 200 state stores per batch are rarely intended."""
    settings: dict[str, str] = {}
    parallelism = graph.parallelism or default_parallelism
    if parallelism is None and graph.mode is Mode.STREAMING:
        parallelism = max(cores, 1)
    if parallelism:
        settings["spark.sql.shuffle.partitions"] = str(parallelism)
    return split_settings(settings | dict(spark) | dict(graph.settings.spark)).session
