"""Programs from the installed pyspark package run as script jobs, unchanged: with a session on the shared engine, or with a
classic driver of their own where they use RDDs or MLlib."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conftest import Cluster
from tests.spark_connect.pyspark_examples import EXAMPLES, Example, link_data

from firesteel.jobgraph.load import load_pipeline
from firesteel.jobmaster.plan import RunPlan
from firesteel.status import JobStatus

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CHOSEN = [
    e
    for e in EXAMPLES
    if e.program
    in {
        "pi.py",
        "sort.py",
        "wordcount.py",
        "als.py",
        "pagerank.py",
        "kmeans.py",
        "sql/udtf.py",
        "sql/arrow.py",
        "sql/jdbc.py",
        "streaming/queue_stream.py",
        "mllib/summary_statistics_example.py",
        "mllib/kernel_density_estimation_example.py",
        "mllib/fpgrowth_example.py",
        "mllib/correlations_example.py",
        "ml/binarizer_example.py",
        "ml/chi_square_test_example.py",
    }
]
"""A spread over what programs use: DataFrames, RDDs, MLlib old and new, DStreams. The table holds more."""
SAMPLES = {"pi.py", "sql/arrow.py"}


def test_enough_programs_are_run() -> None:
    assert len(CHOSEN) >= 15
    assert sum(e.rdd for e in CHOSEN) >= 5
    assert sum(e.api == "connect" for e in CHOSEN) >= 3


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.program, marks=[pytest.mark.sample] * (e.program in SAMPLES)) for e in CHOSEN],
)
def test_program_runs_unchanged(cluster: Cluster, tmp_path: Path, example: Example) -> None:
    link_data(tmp_path)
    plan = RunPlan.of(load_pipeline(example.path).graph, cluster.configuration)
    assert plan.classic == (example.api == "classic")
    run = cluster.run(example.path, args=example.args, cwd=tmp_path, timeout=150)
    assert run.result.status is JobStatus.FINISHED, f"{run.result.failure}\n{run.stderr[-3000:]}"
    assert re.search(example.prints, run.stdout), run.stdout[-3000:]
