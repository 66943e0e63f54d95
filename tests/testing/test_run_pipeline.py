"""Pipelines in a test: other inputs, other places for their rows, and the rows."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, graph_of

from firesteel.client.errors import JobFailedError
from firesteel.failure import FailureKind
from firesteel.jobgraph.model import JobGraph, Sink, Source
from firesteel.testing import run_pipeline
from firesteel.testing.pipelines import redirected, with_inputs

PIPELINE = """\
name: revenue
variables: {least: "0"}
vertices:
  - kind: source
    name: orders
    format: csv
    path: /no/such/place/orders
    schema: id BIGINT, country STRING, amount DECIMAL(10,2), at TIMESTAMP
    options: {header: true}
  - {kind: source, name: countries, format: parquet, path: /no/such/place/countries}
  - kind: sql
    name: revenue
    query: >
      SELECT name, sum(amount) AS total, max(at) AS newest
      FROM orders JOIN countries USING (country) WHERE amount >= ${least} GROUP BY name
  - {kind: sink, name: report, input: revenue, format: csv, path: /no/such/place/report, mode: overwrite}
  - {kind: sink, name: all, input: orders, format: parquet, table: lake.orders, delivery: at-least-once}
"""
STREAM = """\
name: late
mode: streaming
vertices:
  - {kind: source, name: clicks, format: rate, options: {rowsPerSecond: 5}}
  - {kind: sql, name: pages, query: "SELECT page FROM clicks"}
  - {kind: sink, name: out, input: pages, format: json, path: /no/such/place, trigger: 10 seconds}
"""
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def order(number: int, country: str, amount: str) -> dict[str, Any]:
    return {"id": number, "country": country, "amount": Decimal(amount), "at": NOON}


def graph(**source: Any) -> JobGraph:
    return graph_of(
        {"kind": "source", "name": "s", "format": "csv", "path": "/in", "cache": True, **source},
        {"kind": "sink", "name": "o", "input": "s", "format": "csv", "path": "/out", "mode": "overwrite"},
    )


def test_rows_take_the_place_of_a_source_and_keep_the_rest_of_it(tmp_path: Path) -> None:
    source = with_inputs(graph(schema="id INT"), {"s": [{"id": 1}]}, tmp_path).by_name["s"]
    assert isinstance(source, Source)
    assert (source.format, source.path, source.schema_, source.cache) == ("json", str(tmp_path / "s"), "id INT", True)
    assert (tmp_path / "s" / "rows.json").read_text() == '{"id": 1}\n'


def test_files_take_the_place_of_a_source_s_own(tmp_path: Path) -> None:
    source = with_inputs(graph(options={"header": "true"}), {"s": tmp_path / "a.csv"}, tmp_path).by_name["s"]
    assert isinstance(source, Source)
    assert (source.format, source.path, source.options) == ("csv", str(tmp_path / "a.csv"), {"header": "true"})


def test_input_of_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no source 'orders'; its sources are: s"):
        with_inputs(graph(), {"orders": []}, tmp_path)


def test_no_rows_need_a_schema(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="source 's' has no schema"):
        with_inputs(graph(), {"s": []}, tmp_path)


def test_every_sink_is_redirected(tmp_path: Path) -> None:
    [sink] = redirected(graph(), tmp_path).sinks
    assert sink == Sink(name="o", input="s", format="parquet", path=str(tmp_path / "o"))


def test_output_mode_that_cannot_be_read_back_is_refused(tmp_path: Path) -> None:
    streaming = graph_of(
        {"kind": "source", "name": "s", "format": "rate"},
        {"kind": "sink", "name": "o", "input": "s", "format": "console", "output_mode": "complete"},
        mode="streaming",
    )
    with pytest.raises(ValueError, match="sink 'o' has the output mode 'complete'"):
        redirected(streaming, tmp_path)


@pytest.mark.spark
def test_values_of_a_batch_pipeline(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    inputs = {
        "orders": [order(1, "FR", "10.50"), order(2, "FR", "4.50"), order(3, "DE", "1.00")],
        "countries": [{"country": "FR", "name": "France"}, {"country": "DE", "name": "Germany"}],
    }
    run = run_pipeline(cluster.node, path, inputs=inputs, variables={"least": "2"})
    assert run.rows["report"] == [{"name": "France", "total": Decimal("15.00"), "newest": NOON.replace(tzinfo=None)}]
    assert sorted(row["id"] for row in run.rows["all"]) == [1, 2, 3]


@pytest.mark.spark
def test_value_that_does_not_fit_its_column_fails_the_run(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    inputs = {
        "orders": [{**order(1, "FR", "1.00"), "id": "one"}],
        "countries": [{"country": "FR", "name": "France"}],
    }
    with pytest.raises(JobFailedError) as raised:
        run_pipeline(cluster.node, path, inputs=inputs)
    assert raised.value.failure is not None
    assert raised.value.failure.kind is FailureKind.DATA


@pytest.mark.spark
def test_stream_takes_the_rows_that_are_given_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(STREAM)
    run = run_pipeline(cluster.node, path, inputs={"clicks": [{"page": "shop"}, {"page": "home"}]})
    assert sorted(row["page"] for row in run.rows["out"]) == ["home", "shop"]


@pytest.mark.spark
def test_script_is_given_its_arguments_and_its_output_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "report.py"
    path.write_text("import sys\nprint('of', *sys.argv[1:])\n")
    run = run_pipeline(cluster.node, path, args=["2026-03-01"])
    assert (run.stdout, run.rows) == ("of 2026-03-01\n", {})
