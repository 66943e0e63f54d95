"""The batch examples, run on a real engine, give what plain Python computes."""

from __future__ import annotations

import csv
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.marks import samples

from firesteel.status import JobStatus

if TYPE_CHECKING:
    from tests.conftest import Cluster, Run
    from tests.examples.example_files import EXAMPLES, module, read_parquet
else:
    from example_files import EXAMPLES, module, read_parquet

pytestmark = pytest.mark.spark


def _finished(run: Run) -> None:
    assert run.result.status is JobStatus.FINISHED, f"{run.result.failure}\n{run.stderr}"


def _check_orders(data: Path, out: Path) -> None:
    expected = module("orders", "expected")
    revenue = [tuple(row.values()) for row in read_parquet(out / "revenue")]
    assert revenue == expected.revenue(data)
    with next((out / "best_customers").glob("*.csv")).open(newline="") as f:
        best = [
            (int(r["customer_id"]), r["name"], r["country"], int(r["orders"]), Decimal(r["revenue"]))
            for r in csv.DictReader(f)
        ]
    assert best == expected.best_customers(data)


@pytest.mark.parametrize("suffix", samples(["yaml", "sql", "py"]))
def test_orders(cluster: Cluster, tmp_path: Path, suffix: str) -> None:
    _finished(cluster.run(EXAMPLES / "orders" / f"pipeline.{suffix}", {"out": str(tmp_path)}))
    _check_orders(EXAMPLES / "orders" / "data", tmp_path)


@pytest.mark.slow
def test_orders_run_again_on_the_same_engine_sees_the_files_of_today(cluster: Cluster, tmp_path: Path) -> None:
    """What a job caches is its own: the cache of an engine is shared by all its sessions and knows nothing of files."""
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(EXAMPLES / "orders" / "data", data)
    variables = {"data": str(data), "out": str(out)}
    _finished(cluster.run(EXAMPLES / "orders" / "pipeline.yaml", variables))
    _check_orders(data, out)
    module("orders", "generate").generate(data, seed=1)
    _finished(cluster.run(EXAMPLES / "orders" / "pipeline.yaml", variables))
    _check_orders(data, out)


@pytest.mark.slow
@pytest.mark.parametrize("gap_minutes", [30, 5])
def test_weblogs(cluster: Cluster, tmp_path: Path, gap_minutes: int) -> None:
    variables = {"out": str(tmp_path), "gap_minutes": str(gap_minutes)}
    _finished(cluster.run(EXAMPLES / "weblogs" / "pipeline.yaml", variables))
    expected = module("weblogs", "expected").visits(EXAMPLES / "weblogs" / "data", gap_minutes)
    rows = [{**r, "day": datetime.fromisoformat(r["day"]).date()} for r in read_parquet(tmp_path / "visits")]
    assert sorted(tuple(r[name] for name in expected[0]._fields) for r in rows) == expected
    assert {d.name for d in (tmp_path / "visits").glob("day=*")} == {f"day={v.day}" for v in expected}


@pytest.mark.parametrize(
    "as_of", samples([None, datetime(2026, 2, 15, tzinfo=UTC), datetime(2026, 1, 1, 7, 12, tzinfo=UTC)]), ids=str
)
def test_cdc(cluster: Cluster, tmp_path: Path, as_of: datetime | None) -> None:
    variables = {"out": str(tmp_path)} | ({"as_of": as_of.strftime("%Y-%m-%dT%H:%M:%SZ")} if as_of else {})
    _finished(cluster.run(EXAMPLES / "cdc" / "pipeline.yaml", variables))
    expected = module("cdc", "expected")
    data = EXAMPLES / "cdc" / "data"
    wanted = expected.accounts(data, as_of) if as_of else expected.accounts(data)
    assert wanted
    assert [tuple(row.values()) for row in read_parquet(tmp_path / "accounts")] == wanted
