"""The part of the weblogs pipeline that is easier to say in Python than in SQL."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it


def number_visits(requests: DataFrame, gap_minutes: int = 30) -> DataFrame:
    """Add `visit`, counting from 1 for each visitor: one more whenever nothing came for longer than the gap."""
    by_visitor = Window.partitionBy("ip", "agent").orderBy("at")
    silence = F.unix_timestamp("at") - F.lag(F.unix_timestamp("at")).over(by_visitor)
    begins = F.when(silence > gap_minutes * 60, 1).otherwise(0)
    return (
        requests.withColumn("begins", begins).withColumn("visit", F.sum("begins").over(by_visitor) + 1).drop("begins")
    )
