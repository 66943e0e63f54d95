"""A script's own metrics are told with its progress, from a driver on a real engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conftest import Cluster, graph_of
from tests.jobmaster.local_attempts import leading

from firesteel.attempts.attempt import AttemptState
from firesteel.jobmaster.executor import Deployment
from firesteel.types import AttemptId, new_job_id

PROGRAM = """
from pyspark.sql import SparkSession

from firesteel.metrics import counter, gauge

spark = SparkSession.builder.getOrCreate()
counter("rows.seen").add(spark.range(7).count())
counter("rows.seen").add(1)
gauge("share").set(0.5)
"""


@pytest.mark.spark
def test_what_a_script_counts_is_told_with_its_progress(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    async def main() -> None:
        graph = graph_of({"kind": "script", "name": "script", "file": str(program), "api": "connect"})
        engine = cluster.engine()
        async with leading(cluster.configuration, tmp_path / "jobs", cluster.pool) as leader:
            attempt = AttemptId(new_job_id(), 1)
            await leader.executor.start(Deployment(attempt, graph, engine))
            assert (await leader.executor.wait(attempt)).state is AttemptState.FINISHED
            assert (await leader.executor.progress(attempt))["metrics"] == {"rows.seen": 8, "share": 0.5}

    asyncio.run(main())
