"""The queries, each written twice: as a graph, and as a PySpark programmer would write it by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import pipeline_functions
from benchmarks.dataset import Dataset
from benchmarks.harness import HERE

from firesteel.jobgraph.model import JobGraph

Vertex = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    what: str
    graph: Callable[[Dataset, str], JobGraph]
    """Dataset and output folder to the graph."""
    by_hand: Callable[[Any, Dataset, str], None]
    """Runs the same on a Spark session."""
    outputs: tuple[str, ...] = ("out",)


def source(name: str, path: str, **more: Any) -> Vertex:
    return {"kind": "source", "name": name, "format": "parquet", "path": path, **more}


def sql(name: str, query: str, *inputs: str) -> Vertex:
    return {"kind": "sql", "name": name, "query": query, "inputs": inputs}


def python(name: str, function: str, /, *inputs: str, **args: Any) -> Vertex:
    return {
        "kind": "python",
        "name": name,
        "function": f"pipeline_functions:{function}",
        "inputs": inputs,
        "args": args,
    }


def sink(name: str, reads: str, out: str) -> Vertex:
    return {
        "kind": "sink",
        "name": f"to_{name}",
        "input": reads,
        "format": "parquet",
        "path": f"{out}/{name}",
        "mode": "overwrite",
    }


def graph(name: str, *vertices: Vertex) -> JobGraph:
    modules = [str(HERE / "pipeline_functions.py")] if any(v["kind"] == "python" for v in vertices) else []
    return JobGraph.model_validate(
        {"name": name, "vertices": vertices, "settings": {"artifacts": {"py_files": modules}}}
    )


# -- scan, filter, aggregate ------------------------------------------------------------------------------------------

_HOURLY = """
    SELECT country, kind, date_trunc('hour', ts) AS hour, count(*) AS events, sum(cents * quantity) AS cents,
           max(cents) AS largest, approx_count_distinct(customer_id) AS customers
    FROM events WHERE kind <> 'cart' AND quantity < 9 GROUP BY country, kind, date_trunc('hour', ts)
"""


def _aggregate_graph(data: Dataset, out: str) -> JobGraph:
    return graph(
        "scan-filter-aggregate",
        source("events", data.path("events")),
        sql("hourly", _HOURLY, "events"),
        sink("out", "hourly", out),
    )


def _aggregate_by_hand(spark: Any, data: Dataset, out: str) -> None:
    spark.read.parquet(data.path("events")).createOrReplaceTempView("events")
    spark.sql(_HOURLY).write.mode("overwrite").parquet(f"{out}/out")


# -- join with dimensions -----------------------------------------------------------------------------------------------

_JOINED = """
    SELECT c.segment, p.category, year(c.since) AS since, count(*) AS orders, sum(e.cents * e.quantity) AS cents,
           sum((e.cents - p.cost) * e.quantity) AS margin
    FROM events e JOIN products p USING (product_id) JOIN customers c USING (customer_id)
    WHERE e.kind <> 'view' GROUP BY c.segment, p.category, year(c.since)
"""


def _join_graph(data: Dataset, out: str) -> JobGraph:
    return graph(
        "join-dimensions",
        source("events", data.path("events")),
        source("products", data.path("products")),
        source("customers", data.path("customers")),
        sql("margins", _JOINED, "events", "products", "customers"),
        sink("out", "margins", out),
    )


def _join_by_hand(spark: Any, data: Dataset, out: str) -> None:
    from pyspark.sql import functions as f

    events = spark.read.parquet(data.path("events")).where("kind <> 'view'")
    joined = events.join(spark.read.parquet(data.path("products")), "product_id").join(
        spark.read.parquet(data.path("customers")), "customer_id"
    )
    margins = joined.groupBy("segment", "category", f.year("since").alias("since")).agg(
        f.count(f.lit(1)).alias("orders"),
        f.sum(f.col("cents") * f.col("quantity")).alias("cents"),
        f.sum((f.col("cents") - f.col("cost")) * f.col("quantity")).alias("margin"),
    )
    margins.write.mode("overwrite").parquet(f"{out}/out")


# -- window ---------------------------------------------------------------------------------------------------------

_TOP = """
    SELECT * FROM (
      SELECT customer_id, event_id, product_id, cents,
             row_number() OVER (PARTITION BY customer_id ORDER BY cents DESC, event_id) AS place FROM events
    ) WHERE place <= 3
"""


def _window_graph(data: Dataset, out: str) -> JobGraph:
    return graph(
        "window-rank", source("events", data.path("events")), sql("top", _TOP, "events"), sink("out", "top", out)
    )


def _window_by_hand(spark: Any, data: Dataset, out: str) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("customer_id").orderBy(f.desc("cents"), "event_id")
    events = spark.read.parquet(data.path("events")).select("customer_id", "event_id", "product_id", "cents")
    top = events.withColumn("place", f.row_number().over(order)).where("place <= 3")
    top.write.mode("overwrite").parquet(f"{out}/out")


# -- many small files -----------------------------------------------------------------------------------------------------

_SMALL = """
    SELECT country, to_date(ts) AS day, count(*) AS events, sum(cents) AS cents FROM small GROUP BY country, to_date(ts)
"""


def _small_graph(data: Dataset, out: str) -> JobGraph:
    return graph(
        "small-files", source("small", data.path("small")), sql("daily", _SMALL, "small"), sink("out", "daily", out)
    )


def _small_by_hand(spark: Any, data: Dataset, out: str) -> None:
    spark.read.parquet(data.path("small")).createOrReplaceTempView("small")
    spark.sql(_SMALL).write.mode("overwrite").parquet(f"{out}/out")


# -- a graph of twenty vertices ---------------------------------------------------------------------------------------------

_ENRICHED = """
    SELECT s.*, p.category, p.brand, p.cost * s.quantity AS spent_on_goods FROM sales s JOIN products p USING (product_id)
"""
_DAILY = "SELECT category, day, sum(revenue) AS revenue, count(*) AS sales FROM enriched GROUP BY category, day"
_BRANDS = """
    SELECT category, brand, sum(revenue) AS revenue, sum(revenue - spent_on_goods) AS margin
    FROM enriched GROUP BY category, brand
"""
_BRAND_SIZES = "SELECT brand, count(*) AS products, min(cost) AS cheapest FROM products GROUP BY brand"
_BRAND_REPORT = "SELECT r.*, z.products, z.cheapest FROM ranked r JOIN brand_sizes z USING (brand) WHERE r.place <= 10"
_BANDS = "SELECT segment, band, count(*) AS customers, sum(spent) AS spent FROM banded GROUP BY segment, band"
_LOYAL = """
    SELECT segment, band, min(year(since)) AS oldest, sum(events) AS events FROM banded WHERE events > 3
    GROUP BY segment, band
"""
_SEGMENTS = "SELECT b.*, l.oldest, l.events FROM bands b LEFT JOIN loyal l USING (segment, band)"


def _twenty_graph(data: Dataset, out: str) -> JobGraph:
    return graph(
        "twenty-vertices",
        source("events", data.path("events")),
        source("products", data.path("products")),
        source("customers", data.path("customers")),
        sql("orders", "SELECT * FROM events WHERE kind IN ('order', 'return')", "events"),
        python("sales", "with_revenue", "orders"),
        sql("enriched", _ENRICHED, "sales", "products"),
        sql("daily", _DAILY, "enriched"),
        python("totals", "running_total", "daily"),
        sql("brands", _BRANDS, "enriched"),
        python("ranked", "rank_within", "brands", key="category", by="margin", name="place"),
        sql("brand_sizes", _BRAND_SIZES, "products"),
        sql("brand_report", _BRAND_REPORT, "ranked", "brand_sizes"),
        python("spend", "spend_per_customer", "sales"),
        python("banded", "spend_band", "spend", "customers", width=100_000),
        sql("bands", _BANDS, "banded"),
        sql("loyal", _LOYAL, "banded"),
        sql("segments", _SEGMENTS, "bands", "loyal"),
        sink("totals", "totals", out),
        sink("brand_report", "brand_report", out),
        sink("segments", "segments", out),
    )


def _twenty_by_hand(spark: Any, data: Dataset, out: str) -> None:
    events = spark.read.parquet(data.path("events"))
    products = spark.read.parquet(data.path("products"))
    customers = spark.read.parquet(data.path("customers"))
    sales = pipeline_functions.with_revenue(events.where("kind IN ('order', 'return')"))
    sales.createOrReplaceTempView("sales")
    products.createOrReplaceTempView("products")
    spark.sql(_ENRICHED).createOrReplaceTempView("enriched")
    totals = pipeline_functions.running_total(spark.sql(_DAILY))
    totals.write.mode("overwrite").parquet(f"{out}/totals")
    ranked = pipeline_functions.rank_within(spark.sql(_BRANDS), "category", "margin", "place")
    ranked.createOrReplaceTempView("ranked")
    spark.sql(_BRAND_SIZES).createOrReplaceTempView("brand_sizes")
    spark.sql(_BRAND_REPORT).write.mode("overwrite").parquet(f"{out}/brand_report")
    spend = pipeline_functions.spend_per_customer(sales)
    banded = pipeline_functions.spend_band(spend, customers, 100_000)
    banded.createOrReplaceTempView("banded")
    spark.sql(_BANDS).createOrReplaceTempView("bands")
    spark.sql(_LOYAL).createOrReplaceTempView("loyal")
    spark.sql(_SEGMENTS).write.mode("overwrite").parquet(f"{out}/segments")


PIPELINES = (
    Pipeline("scan-filter-aggregate", "hourly totals per country and kind", _aggregate_graph, _aggregate_by_hand),
    Pipeline("join-dimensions", "a broadcast and a shuffled join, then totals", _join_graph, _join_by_hand),
    Pipeline("window-rank", "the three largest events of every customer", _window_graph, _window_by_hand),
    Pipeline("small-files", "totals over many small files", _small_graph, _small_by_hand),
    Pipeline(
        "twenty-vertices",
        "SQL and Python vertices, four of them shared, three sinks",
        _twenty_graph,
        _twenty_by_hand,
        ("totals", "brand_report", "segments"),
    ),
)
