"""How rows get from vertex to vertex, read from Spark's plans."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import graph_of

from firesteel.jobgraph.model import JobGraph, Sink
from firesteel.spark_connect.exchanges import parse_plan, ship_strategies, ship_strategies_of_query

SOURCE = """== Physical Plan ==
StreamingRelation rate, [timestamp#0, value#1L]
"""
FILTERED = """== Physical Plan ==
*(1) Filter (value#7L > 2)
+- StreamingRelation rate, [timestamp#6, value#7L]
"""
COUNTED = """== Physical Plan ==
*(4) HashAggregate(keys=[_groupingexpression#31L], functions=[count(1)])
+- StateStoreSave [_groupingexpression#31L], state info [ checkpoint = <unknown>], Append, 0, 0, 2
   +- *(3) HashAggregate(keys=[_groupingexpression#31L], functions=[merge_count(1)])
      +- StateStoreRestore [_groupingexpression#31L], state info [ checkpoint = <unknown>], 2
         +- *(2) HashAggregate(keys=[_groupingexpression#31L], functions=[merge_count(1)])
            +- Exchange hashpartitioning(_groupingexpression#31L, 4), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=92]
               +- *(1) HashAggregate(keys=[_groupingexpression#31L], functions=[partial_count(1)])
                  +- *(1) Project [(value#1L % 3) AS _groupingexpression#31L]
                     +- StreamingRelation rate, [timestamp#0, value#1L]
"""
LARGE = COUNTED.replace("== Physical Plan ==\n", "== Physical Plan ==\n*(5) Filter (n#3L > 1)\n").replace(
    "\n+-", "\n+-"
)
STATIC = """== Physical Plan ==
LocalTableScan [k#10, n#11]
"""
JOINED = """== Physical Plan ==
*(2) Project [value#1L, n#11]
+- *(2) BroadcastHashJoin [value#1L], [cast(k#10 as bigint)], Inner, BuildRight, false
   :- *(2) Filter isnotnull(value#1L)
   :  +- StreamingRelation rate, [timestamp#0, value#1L]
   +- BroadcastExchange HashedRelationBroadcastMode(List(cast(input[0, int, false] as bigint)),false), [plan_id=120]
      +- LocalTableScan [k#10, n#11]
"""
SORTED = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=false
+- Sort [k#1L ASC NULLS FIRST], true, 0
   +- Exchange rangepartitioning(k#1L ASC NULLS FIRST, 4), ENSURE_REQUIREMENTS, [plan_id=33]
      +- StreamingRelation rate, [timestamp#0, value#1L]
"""


ADAPTED = """== Physical Plan ==
AdaptiveSparkPlan isFinalPlan=true
+- == Final Plan ==
   ResultQueryStage 3
   +- *(3) Project [value#1L, n#3]
      +- *(3) BroadcastHashJoin [value#1L], [cast(k#2 as bigint)], Inner, BuildRight, false, false
         :- *(3) Filter isnotnull(value#1L)
         :  +- MicroBatchScan[timestamp#0, value#1L] class org.apache.spark.RateStreamTable$$anon$1
         +- BroadcastQueryStage 2
            +- BroadcastExchange HashedRelationBroadcastMode(List(cast(input[0, int, false] as bigint)),false), [plan_id=455]
               +- *(2) Scan ExistingRDD[k#2,n#3]
+- == Initial Plan ==
   Project [value#1L, n#3]
   +- SortMergeJoin [value#1L], [cast(k#2 as bigint)], Inner
      :- Exchange hashpartitioning(value#1L, 1), ENSURE_REQUIREMENTS, [plan_id=399]
      :  +- MicroBatchScan[timestamp#0, value#1L] class org.apache.spark.RateStreamTable$$anon$1
      +- Exchange hashpartitioning(cast(k#2 as bigint), 1), ENSURE_REQUIREMENTS, [plan_id=400]
         +- Scan ExistingRDD[k#2,n#3]
"""


def graph(query_inputs: tuple[str, ...] = ("s",), **sink: Any) -> JobGraph:
    return graph_of(
        {"kind": "source", "name": "s", "format": "rate"},
        {"kind": "source", "name": "d", "format": "csv", "path": "/d", "static": True, "schema": "k INT, n STRING"},
        {"kind": "sql", "name": "q", "query": "SELECT 1", "inputs": list(query_inputs)},
        {"kind": "sql", "name": "r", "query": "SELECT * FROM q", "inputs": ["q"]},
        {"kind": "sink", "name": "o", "input": "r", "format": "noop", **sink},
        {"kind": "sink", "name": "p", "input": "d", "format": "noop"},
        mode="streaming",
    )


def words(plan: str, inputs: tuple[str, ...] = ("s",), after: str | None = None) -> dict[str, dict[str, str]]:
    plans = {"s": SOURCE, "d": STATIC, "q": plan, "r": after or plan}
    return ship_strategies(graph(inputs), plans)


def test_a_filter_moves_nothing() -> None:
    assert words(FILTERED)["q"] == {"s": "FORWARD"}


def test_an_aggregation_hashes_its_input_and_not_what_reads_it() -> None:
    found = words(COUNTED, after=LARGE)
    assert found["q"] == {"s": "HASH"}
    assert found["r"] == {"q": "FORWARD"}, "the exchange is that of the vertex before"


def test_the_small_side_of_a_join_is_broadcast_and_the_other_stays() -> None:
    assert words(JOINED, ("s", "d"))["q"] == {"s": "FORWARD", "d": "BROADCAST"}


def test_a_side_that_cannot_be_told_is_not_guessed() -> None:
    plans = {"s": STATIC, "d": STATIC, "q": JOINED, "r": JOINED}
    assert ship_strategies(graph(("s", "d")), plans)["q"] == {}


def test_a_global_sort_is_a_range() -> None:
    assert words(SORTED)["q"] == {"s": "RANGE"}


def test_parallelism_of_a_sink_spreads_rows() -> None:
    plans = {"s": SOURCE, "d": STATIC, "q": FILTERED, "r": FILTERED}
    assert ship_strategies(graph(), plans)["o"] == {"r": "FORWARD"}
    assert ship_strategies(graph(parallelism=3), plans)["o"] == {"r": "REBALANCE"}


def test_without_plans_only_the_edges_of_sinks_are_known() -> None:
    assert ship_strategies(graph(), {}) == {"o": {"r": "FORWARD"}, "p": {"d": "FORWARD"}}


def of_query(plan: str, made: JobGraph) -> dict[str, dict[str, str]]:
    sink = made.by_name["o"]
    assert isinstance(sink, Sink)
    return ship_strategies_of_query(made, sink, plan)


def stream(*inputs: str) -> JobGraph:
    return graph_of(
        {"kind": "source", "name": "s", "format": "rate"},
        {"kind": "source", "name": "d", "format": "csv", "path": "/data/d", "static": True, "schema": "k INT"},
        {"kind": "sql", "name": "q", "query": "SELECT 1", "inputs": list(inputs)},
        {"kind": "sink", "name": "o", "input": "q", "format": "noop"},
        {"kind": "sink", "name": "p", "input": "d" if "d" not in inputs else "s", "format": "noop"},
        mode="streaming",
    )


def test_the_plan_of_a_stream_with_one_vertex_between_is_that_vertexs() -> None:
    assert of_query(COUNTED, stream("s")) == {"o": {"q": "FORWARD"}, "q": {"s": "HASH"}}
    assert of_query(FILTERED, stream("s")) == {"o": {"q": "FORWARD"}, "q": {"s": "FORWARD"}}


def test_the_broadcast_side_of_a_stream_is_known_by_its_files() -> None:
    scan = "FileScan csv [k#10] Batched: false, Location: InMemoryFileIndex(1 paths)[file:/data/d], ReadSchema: struct<k:int>"
    plan = JOINED.replace("LocalTableScan [k#10, n#11]", scan)
    assert of_query(plan, stream("s", "d"))["q"] == {"s": "FORWARD", "d": "BROADCAST"}


def test_of_an_adaptive_plan_what_was_done_counts_and_not_what_was_meant() -> None:
    assert of_query(ADAPTED, stream("s", "d"))["q"] == {"s": "FORWARD", "d": "BROADCAST"}


def test_of_two_vertices_that_share_a_plan_neither_is_blamed() -> None:
    made = graph()
    assert of_query(COUNTED, made) == {"o": {"r": "FORWARD"}}
    assert of_query(FILTERED, made) == {"o": {"r": "FORWARD"}, "r": {"q": "FORWARD"}, "q": {"s": "FORWARD"}}


@pytest.mark.parametrize("text", ["", "\n\n", "no plan at all", ":  :  +- x", "+- " * 400])
def test_any_text_can_be_read(text: str) -> None:
    parse_plan(text)
