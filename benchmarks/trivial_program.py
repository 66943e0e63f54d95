"""The trivial job as a program for spark-submit."""

from __future__ import annotations

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("trivial").getOrCreate()
spark.sql("SELECT id FROM range(1)").write.format("noop").mode("overwrite").save()
spark.stop()
