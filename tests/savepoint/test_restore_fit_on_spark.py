"""A restore has state that fits the new graph, or does not start (I31), with real queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import Cluster

from firesteel.errors import InvalidRequestError
from firesteel.failure import FailureKind
from firesteel.jobgraph import parse_graph
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.savepoint.take import prepare, take
from firesteel.status import JobStatus
from firesteel.types import new_job_id

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = "SELECT window.start AS at, KEY AS who, count(*) AS n FROM events GROUP BY window(ts, '1 minute'), KEY"


def events(directory: Path, minute: int) -> None:
    directory.mkdir(exist_ok=True)
    rows = [{"ts": f"2026-01-01T00:{minute:02}:00Z", "page": "p", "user": f"u{n}"} for n in range(3)]
    (directory / f"{minute}.json").write_text("\n".join(json.dumps(r) for r in rows))


def counting(root: Path, key: str, out: str, **settings: Any) -> dict[str, Any]:
    return {
        "name": "counting",
        "mode": "streaming",
        "settings": {"spark": {"spark.sql.shuffle.partitions": "1"}, **settings},
        "vertices": [
            {
                "kind": "source",
                "name": "events",
                "format": "json",
                "path": str(root / "in"),
                "schema": "ts TIMESTAMP, page STRING, user STRING",
                "watermark": {"column": "ts", "delay": "1 minute"},
            },
            {"kind": "sql", "name": "counts", "query": QUERY.replace("KEY", key)},
            {
                "kind": "sink",
                "name": "out",
                "input": "counts",
                "format": "parquet",
                "path": str(root / out),
                "trigger": "available-now",
                "options": {"checkpointLocation": str(root / f"progress-{out}")},
            },
        ],
    }


CODE = """
from pyspark.sql import functions as F


def by(events, key):
    counts = events.groupBy(F.window("ts", "1 minute"), F.col(key)).count()
    return counts.select(F.col("window.start").alias("at"), F.col(key).alias("who"), F.col("count").alias("n"))
"""


def by_code(root: Path, key: str, out: str, **settings: Any) -> dict[str, Any]:
    (root / "counting_code.py").write_text(CODE)
    graph = counting(root, key, out, artifacts={"py_files": [str(root / "counting_code.py")]}, **settings)
    function = {"function": "counting_code:by", "inputs": ["events"], "args": {"key": key}}
    graph["vertices"][1] = {"kind": "python", "name": "counts", **function}
    return graph


def test_code_that_groups_by_another_key_is_refused_by_its_plan(cluster: Cluster, tmp_path: Path) -> None:
    events(tmp_path / "in", 0)
    first = parse_graph(by_code(tmp_path, "page", "first"))
    assert cluster.run_graph(first).result.status is JobStatus.FINISHED
    place = str(tmp_path / "savepoint")
    prepare(place, SavepointRequest.of(first, new_job_id(), "t", {"out": str(tmp_path / "progress-first")}))
    take(place, alive=None)
    refused = cluster.run_graph(parse_graph(by_code(tmp_path, "user", "refused", restore={"path": place})))
    assert refused.result.status is JobStatus.FAILED
    assert refused.result.failure is not None
    assert refused.result.failure.kind is FailureKind.INVALID_PIPELINE
    assert (
        "it goes by window, user, and its state in the savepoint goes by window, page" in refused.result.failure.message
    )
    events(tmp_path / "in", 10)
    again = cluster.run_graph(parse_graph(by_code(tmp_path, "page", "again", restore={"path": place})))
    assert again.result.status is JobStatus.FINISHED, again.result.failure
    assert keys_in(tmp_path / "again") == {"p"}


def keys_in(directory: Path) -> set[str]:
    # Spark's own files; its log is beside them.
    return {row for file in directory.glob("*.parquet") for row in pq.read_table(file).column("who").to_pylist()}


def test_another_grouping_key_of_the_same_type_is_refused_before_anything_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    events(tmp_path / "in", 0)
    first = parse_graph(counting(tmp_path, "page", "first"))
    assert cluster.run_graph(first).result.status is JobStatus.FINISHED
    place = str(tmp_path / "savepoint")
    prepare(place, SavepointRequest.of(first, new_job_id(), "t", {"out": str(tmp_path / "progress-first")}))
    take(place, alive=None)
    events(tmp_path / "in", 10)  # the window of minute 0 is over

    with pytest.raises(InvalidRequestError) as refused:
        cluster.start_graph(parse_graph(counting(tmp_path, "user", "refused", restore={"path": place})))
    [problem] = refused.value.problems
    assert problem.message.startswith("vertex 'counts': it cannot start from the state")
    assert "it goes by window(ts, '1 minute'), user" in problem.message
    assert "--allow-incompatible-state" in problem.message
    assert len(problem.message.splitlines()) == 1
    assert not (tmp_path / "refused").exists()
    assert not (tmp_path / "progress-refused").exists()

    again = cluster.run_graph(parse_graph(counting(tmp_path, "page", "again", restore={"path": place})))
    assert again.result.status is JobStatus.FINISHED, again.result.failure
    assert keys_in(tmp_path / "again") == {"p"}

    allowed = {"path": place, "allow_incompatible_state": True}
    wrong = cluster.run_graph(parse_graph(counting(tmp_path, "user", "wrong", restore=allowed)))
    assert wrong.result.status is JobStatus.FINISHED, wrong.result.failure
    assert "p" in keys_in(tmp_path / "wrong")  # a page, as a user: Spark does not notice
