"""User code of the driver tests: functions that vertices name."""

from __future__ import annotations

import os
from typing import Any


def numbers(spark: Any, rows: int = 10, partitions: int = 2) -> Any:
    return spark.range(0, rows, 1, partitions)


def slow(spark: Any, rows: int, marker: str, partitions: int = 2) -> Any:
    """Rows that take 50 ms each, without a Python worker. The marker file says that it was compiled."""
    with open(marker, "a") as f:
        f.write("x")
    sleep = "coalesce(reflect('java.lang.Thread', 'sleep', 50L), 'slept') <> ''"
    return spark.range(0, rows, 1, partitions).where(sleep)


def slow_at_first(spark: Any, rows: int, marker: str) -> Any:
    """Rows of which the first attempt would never see the last; a later attempt has them at once."""
    with open(marker, "a") as f:
        f.write("x")
        first = f.tell() == 1
    frame = spark.range(0, rows, 1, 2)
    return frame.where("coalesce(reflect('java.lang.Thread', 'sleep', 5000L), 'slept') <> ''") if first else frame


def doubled(frame: Any) -> Any:
    from pyspark.sql.functions import udf

    return frame.select(udf(_double, "bigint")(frame.id).alias("id"))


def _double(value: int) -> int:
    import job_helpers  # type: ignore[import-not-found]

    doubled_value: int = job_helpers.twice(value)
    return doubled_value


def fails(frame: Any) -> Any:
    raise ValueError(f"no good: {frame.columns}")


def not_a_frame(frame: Any) -> Any:
    return 42


def dies(frame: Any) -> Any:
    os.kill(os.getpid(), 9)


def broken_udf(frame: Any) -> Any:
    from pyspark.sql.functions import udf

    return frame.select(udf(lambda v: 1 // (v - v), "bigint")(frame.id).alias("id"))


def fails_once(frame: Any, marker: str) -> Any:
    if not os.path.exists(marker):
        with open(marker, "w"):
            pass
        raise RuntimeError("only the first time")
    return frame


def __getattr__(name: str) -> Any:
    """The data source needs PySpark, which the tests' own process does not import."""
    if name != "Countdown":
        raise AttributeError(name)
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Countdown(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "countdown"

        def schema(self) -> str:
            return "id BIGINT"

        def reader(self, schema: Any) -> Any:
            first = int(self.options["from"])

            class Reader(DataSourceReader):  # type: ignore[misc]
                def read(self, partition: Any) -> Any:
                    yield from ((n,) for n in range(first, 0, -1))

            return Reader()

    return Countdown


def keep_batch(batch: Any, batch_id: int) -> None:
    """A foreachBatch function: runs beside the engine, so it needs its modules there."""
    import job_helpers

    target = batch.sparkSession.conf.get("spark.sql.test.target")
    batch.selectExpr(f"id + {job_helpers.twice(0)} AS id").write.mode("overwrite").parquet(f"{target}/{batch_id}")
