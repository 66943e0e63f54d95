"""What the Python vertices of the benchmark graphs call. The hand-written programs call the same functions."""

from __future__ import annotations

from typing import Any


def with_revenue(events: Any) -> Any:
    from pyspark.sql import functions as f

    signed = f.when(f.col("kind") == "return", -f.col("cents")).otherwise(f.col("cents"))
    return events.withColumn("revenue", signed * f.col("quantity")).withColumn("day", f.to_date("ts"))


def spend_per_customer(events: Any) -> Any:
    from pyspark.sql import functions as f

    return events.groupBy("customer_id").agg(f.sum("revenue").alias("spent"), f.count(f.lit(1)).alias("events"))


def spend_band(spend: Any, customers: Any, width: int) -> Any:
    """Each customer with the segment and a band of spending, `width` cents wide."""
    from pyspark.sql import functions as f

    joined = spend.join(customers.select("customer_id", "segment", "since"), "customer_id")
    return joined.withColumn("band", f.least(f.floor(f.col("spent") / width), f.lit(50)).cast("int"))


def rank_within(frame: Any, key: str, by: str, name: str) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    return frame.withColumn(name, f.rank().over(Window.partitionBy(key).orderBy(f.desc(by))))


def running_total(daily: Any) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    days = Window.partitionBy("category").orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return daily.withColumn("so_far", f.sum("revenue").over(days))


def keep(frame: Any, step: int) -> Any:
    """One link of a chain: cheap to run, a node in the plan."""
    from pyspark.sql import functions as f

    return frame.where(f.col("cents") > step).withColumn("cents", f.col("cents") + f.lit(1))
