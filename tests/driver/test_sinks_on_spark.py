"""What a sink may ask for, on a real engine: partitions, parallelism, dynamic overwrite, tables, foreachBatch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster
from tests.driver.test_attempts import files, ids, job, python

from firesteel.failure import FailureKind
from firesteel.status import JobStatus

pytestmark = pytest.mark.spark


def sql(name: str, query: str, *inputs: str) -> dict[str, Any]:
    return {"kind": "sql", "name": name, "query": query, "inputs": inputs}


def finished(cluster: Cluster, *vertices: dict[str, Any], **top: Any) -> None:
    run = cluster.run_graph(job(*vertices, **top))
    assert run.result.status is JobStatus.FINISHED, run.result.failure


def test_parallelism_of_a_sink_is_the_number_of_its_files(cluster: Cluster, tmp_path: Path) -> None:
    finished(cluster, python("a", "numbers", rows=30), files("o", "a", tmp_path / "o", parallelism=3))
    assert len(list((tmp_path / "o").glob("part-*"))) == 3
    assert ids(tmp_path / "o") == list(range(30))


def test_dynamic_overwrite_replaces_only_the_partitions_that_get_rows(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "o"
    first = sql("b", "SELECT id, id % 2 AS p FROM a", "a")
    finished(cluster, python("a", "numbers", rows=4), first, files("o", "b", out, partition_by=["p"]))
    second = sql("b", "SELECT id + 100 AS id, 1L AS p FROM a", "a")
    dynamic = {"partitionOverwriteMode": "dynamic"}
    finished(
        cluster,
        python("a", "numbers", rows=2),
        second,
        files("o", "b", out, partition_by=["p"], mode="overwrite", options=dynamic),
    )
    assert ids(out / "p=0") == [0, 2]
    assert ids(out / "p=1") == [100, 101]
    everything = files("o", "b", out, partition_by=["p"], mode="overwrite", overwrite="all")
    finished(cluster, python("a", "numbers", rows=1), second, everything)
    assert ids(out) == [100]
    assert not (out / "p=0").exists()


@pytest.mark.slow
def test_second_run_without_a_mode_is_refused_and_doubles_nothing(cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "o"
    finished(cluster, python("a", "numbers", rows=3), files("o", "a", out))
    again = cluster.run_graph(job(python("a", "numbers", rows=3), files("o", "a", out)))
    assert again.result.status is JobStatus.FAILED
    assert again.result.failure is not None
    assert again.result.failure.kind is FailureKind.INVALID_PIPELINE
    assert "mode: append" in again.result.failure.message
    assert ids(out) == [0, 1, 2]
    finished(cluster, python("a", "numbers", rows=5), files("o", "a", out, mode="ignore"))
    assert ids(out) == [0, 1, 2]


@pytest.mark.slow
def test_error_and_ignore_of_a_table_mean_what_they_mean_to_spark(cluster: Cluster, tmp_path: Path) -> None:
    table = {"kind": "sink", "name": "o", "input": "a", "format": "parquet", "table": "modes_table"}
    table |= {"delivery": "at-least-once"}
    finished(cluster, python("a", "numbers", rows=2), {**table, "mode": "error"})
    again = cluster.run_graph(job(python("a", "numbers", rows=2), {**table, "mode": "error"}))
    assert again.result.status is JobStatus.FAILED
    finished(cluster, python("a", "numbers", rows=5), {**table, "mode": "ignore"})
    source = {"kind": "source", "name": "s", "format": "parquet", "table": "modes_table"}
    finished(cluster, source, files("o", "s", tmp_path / "o"))
    assert ids(tmp_path / "o") == [0, 1]


def test_at_least_once_writes_straight_to_the_path(cluster: Cluster, tmp_path: Path) -> None:
    finished(cluster, python("a", "numbers", rows=3), files("o", "a", tmp_path / "o", delivery="at-least-once"))
    assert ids(tmp_path / "o") == [0, 1, 2]
    assert not list((tmp_path / "o").glob("*-o-1.*"))  # Spark's own names, not ours


def test_table_of_the_catalogue_is_written_and_read(cluster: Cluster, tmp_path: Path) -> None:
    table = {"kind": "sink", "name": "o", "input": "a", "format": "parquet", "table": "numbers_table"}
    finished(cluster, python("a", "numbers", rows=3), {**table, "delivery": "at-least-once", "mode": "overwrite"})
    source = {"kind": "source", "name": "s", "format": "parquet", "table": "numbers_table"}
    finished(cluster, source, files("o", "s", tmp_path / "o"))
    assert ids(tmp_path / "o") == [0, 1, 2]


@pytest.mark.slow
def test_foreach_batch_gets_every_batch_with_its_modules(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / "in" / f"{n}.json").write_text(f'{{"id": {n}}}')
    source = {
        "kind": "source",
        "name": "s",
        "format": "json",
        "path": str(tmp_path / "in"),
        "schema": "id BIGINT",
        "options": {"maxFilesPerTrigger": 1},
    }
    sink = {
        "kind": "sink",
        "name": "o",
        "input": "s",
        "foreach_batch": "job_functions:keep_batch",
        "trigger": "available-now",
    }
    finished(
        cluster, source, sink, mode="streaming", settings={"spark": {"spark.sql.test.target": str(tmp_path / "out")}}
    )
    assert sorted(d.name for d in (tmp_path / "out").iterdir()) == ["0", "1", "2"]
    assert ids(tmp_path / "out") == [0, 1, 2]


@pytest.mark.slow
def test_jdbc_asks_for_at_least_once_and_then_works(cluster: Cluster, tmp_path: Path) -> None:
    """Derby comes with Spark: a real database, for the write and for the read."""
    options = {
        "url": f"jdbc:derby:{tmp_path / 'db'};create=true",
        "dbtable": "numbers",
        "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    }
    jdbc = {
        "kind": "sink",
        "name": "o",
        "input": "a",
        "format": "jdbc",
        "options": options,
        "delivery": "at-least-once",
    }
    finished(cluster, python("a", "numbers", rows=3), jdbc)
    source = {"kind": "source", "name": "s", "format": "jdbc", "options": options}
    finished(cluster, source, sql("b", "SELECT id FROM s", "s"), files("o", "b", tmp_path / "o"))
    assert ids(tmp_path / "o") == [0, 1, 2]
