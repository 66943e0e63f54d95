"""The tables that the queries read: made once by Spark from a number sequence, the same on every machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import HERE, say

VERSION = 1
"""Raise it when the tables change; those of other versions are made anew."""

PRODUCTS = 100_000
ROWS_PER_SMALL_FILE = 2_000

# hash() is Murmur3 with a fixed seed, so each column is a function of the row number alone. Money is in whole cents:
# sums of integers do not depend on the order of the rows, which lets outputs be compared exactly.
_EVENTS = """
    id AS event_id,
    pmod(hash(id, 1), {customers}) AS customer_id,
    pmod(hash(id, 2), {products}) AS product_id,
    timestamp_seconds(1735689600 + pmod(hash(id, 3), 7776000)) AS ts,
    100 + pmod(hash(id, 4), 50000) AS cents,
    1 + pmod(hash(id, 5), 9) AS quantity,
    element_at(array('view', 'cart', 'order', 'order', 'return'), 1 + pmod(hash(id, 6), 5)) AS kind,
    concat('C', lpad(pmod(hash(id, 7), 40), 2, '0')) AS country
"""
_PRODUCTS = """
    cast(id AS int) AS product_id,
    concat('category ', pmod(hash(id, 11), 60)) AS category,
    concat('brand ', pmod(hash(id, 12), 3000)) AS brand,
    50 + pmod(hash(id, 13), 9000) AS cost
"""
_CUSTOMERS = """
    cast(id AS int) AS customer_id,
    concat('customer ', sha1(cast(id AS string))) AS name,
    element_at(array('consumer', 'small business', 'enterprise', 'public'), 1 + pmod(hash(id, 21), 4)) AS segment,
    date_add(date'2015-01-01', pmod(hash(id, 22), 3650)) AS since
"""


@dataclass(frozen=True, slots=True)
class Dataset:
    root: Path
    rows: int
    """Rows of `events`, about 90 days of them."""
    customers: int
    small_files: int

    def path(self, name: str) -> str:
        return str(self.root / name)

    def describe(self) -> str:
        return (
            f"events {self.rows:,} rows, customers {self.customers:,}, products {PRODUCTS:,}, "
            f"{self.small_files:,} small files of {ROWS_PER_SMALL_FILE:,} rows"
        )


def dataset(rows: int, small_files: int) -> Dataset:
    return Dataset(
        HERE / "data" / f"v{VERSION}-{rows}-{small_files}",
        rows=rows,
        # Twelve events a customer: a join that has to shuffle at full size, because the table is too big to broadcast.
        customers=max(rows // 12, 1),
        small_files=small_files,
    )


def ensure(data: Dataset, spark: Any) -> None:
    """Make what is not there. The mark is written last, so an interrupted run begins again."""
    mark = data.root / "dataset.json"
    if mark.exists():
        return
    shutil.rmtree(data.root, ignore_errors=True)
    say(f"making the data once: {data.describe()}")
    events = _EVENTS.format(customers=data.customers, products=PRODUCTS)
    files = max(2, data.rows // 1_000_000)
    _write(spark.range(0, data.rows, 1, files), events, data.path("events"))
    _write(spark.range(0, PRODUCTS, 1, 1), _PRODUCTS, data.path("products"))
    _write(spark.range(0, data.customers, 1, 2), _CUSTOMERS, data.path("customers"))
    small = spark.range(0, data.small_files * ROWS_PER_SMALL_FILE, 1, 4)
    _write(small, events, data.path("small"), maxRecordsPerFile=ROWS_PER_SMALL_FILE)
    mark.write_text(json.dumps({"version": VERSION, "rows": data.rows, "small_files": data.small_files}) + "\n")


def _write(numbers: Any, columns: str, path: str, **options: Any) -> None:
    view = f"numbers_{Path(path).name}"
    numbers.createOrReplaceTempView(view)
    numbers.sparkSession.sql(f"SELECT {columns} FROM {view}").write.options(**options).mode("overwrite").parquet(path)
