"""What a streaming attempt tells before its queries start: what they go on from, and what keeps their state.

Nothing depends on it but what is shown: the queries find all of this by themselves.
"""

from __future__ import annotations

import contextlib
from typing import Any

from firesteel.driver import checkpoints
from firesteel.driver.attempt import AttemptSpec, EventLog
from firesteel.errors import FiresteelError
from firesteel.savepoint.manifest import MANIFEST
from firesteel.savepoint.naming import plain
from firesteel.savepoint.take import find

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
DEFAULT_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DEFAULT_CHANGELOG = "true"
"""Of Spark 4.3, which keeps this one to itself unless it was set."""


def tell_origins(spec: AttemptSpec, log: EventLog, *, restored: bool) -> None:
    """`restored`: this attempt has made the checkpoints from the savepoint that the job names."""
    wanted = spec.graph.settings.restore
    savepoint = {"savepoint": wanted.path, "trigger": _trigger_id(wanted.path)} if wanted and restored else {}
    for sink in spec.graph.sinks:
        # Not where only Spark can look into the checkpoint: there, the first batch that is reported tells.
        with contextlib.suppress(FiresteelError, OSError):
            batch = checkpoints.batches(sink, spec).committed
            if batch != checkpoints.NONE or savepoint:
                log.emit("origin", vertex=sink.name, batch=batch, **savepoint)


def _trigger_id(savepoint: str) -> str:
    try:
        return find(plain(savepoint).removesuffix(f"/{MANIFEST}")).trigger_id
    except (FiresteelError, OSError):
        return ""


def tell_state_store(spark: Any, log: EventLog) -> None:
    """As the session has it: the job's own settings over the engine's over Spark's."""
    from pyspark.errors import PySparkException

    with contextlib.suppress(PySparkException):
        provider: str = spark.conf.get(STATE_STORE, None) or DEFAULT_STATE_STORE
        changelog: str = spark.conf.get(CHANGELOG, None) or DEFAULT_CHANGELOG
        log.emit("state-store", provider=provider, changelog="RocksDB" in provider and changelog.lower() == "true")
