"""Whether state fits a graph: verdicts by table. Operators and columns are named as Spark 4.3 named them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from firesteel.jobgraph import parse_graph
from firesteel.jobgraph.state_sql import StateKind
from firesteel.savepoint.compatibility import judge
from firesteel.savepoint.evidence import SavedOperator, SavedState, SavedStore, StateColumn, parse_schema, saved_state
from firesteel.savepoint.plan_text import kept_by_plan
from firesteel.savepoint.verdict import Level, Verdict

COUNTED = "SELECT window.start, page, count(*) AS c, sum(n) AS s FROM events GROUP BY window(ts, '1 minute'), page"
WINDOW = StateColumn("window", "struct")
PAGE = StateColumn("page", "string")
LONG = (StateColumn("count", "long"), StateColumn("sum", "long"))
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def operator(name: str, keys: tuple[StateColumn, ...], values: tuple[StateColumn, ...] = ()) -> SavedOperator:
    return SavedOperator(0, name, {"default": SavedStore(keys, values)})


AGGREGATION = operator("stateStoreSave", (WINDOW, PAGE), LONG)
BY_PAGE = operator("stateStoreSave", (PAGE,), (StateColumn("count", "long"),))
DEDUPED = operator("dedupe", (PAGE, StateColumn("user", "string")))
JOIN = SavedOperator(0, "symmetricHashJoin")
CODE = SavedOperator(0, "applyInPandasWithState")


def pipeline(query: str | None = COUNTED, **more: Any) -> dict[str, Any]:
    """A stream of events through `query` to a sink; `more` is laid over vertices by name, and over the graph as `top`."""
    schema = "ts TIMESTAMP, page STRING, user STRING, n BIGINT"
    vertices: list[dict[str, Any]] = [
        {"kind": "source", "name": "events", "format": "json", "path": "/in", "schema": schema},
        {"kind": "source", "name": "clicks", "format": "json", "path": "/clicks", "schema": schema},
        {"kind": "source", "name": "names", "format": "json", "path": "/names", "schema": schema, "static": True},
        {"kind": "sql", "name": "counts", "query": query or "SELECT page FROM events"},
        {"kind": "sink", "name": "out", "input": "counts", "format": "noop"},
    ]
    top = more.pop("top", {})
    vertices += more.pop("extra", [])
    laid = [{**vertex, **more.get(vertex["name"], {})} for vertex in vertices]
    return {"name": "job", "mode": "streaming", "vertices": laid, **copy.deepcopy(top)}


def verdict(
    old: dict[str, Any], new: dict[str, Any], *operators: SavedOperator, allow: bool = False, complete: bool = True
) -> Verdict:
    states: dict[str, SavedState | None] = {
        v["name"]: SavedState(operators, complete, CONF) for v in old["vertices"] if v["kind"] == "sink"
    }
    before = parse_graph(old).model_dump(mode="json", by_alias=True, exclude_none=True)
    return judge(before, parse_graph(new), states, allow_non_restored_state=allow)


BY_PAGE_TEXT = "SELECT page AS p, count(*) c FROM events GROUP BY page"
SAME: Mapping[str, tuple[str, str]] = {
    "to the letter": (COUNTED, COUNTED),
    "another alias": (BY_PAGE_TEXT, "SELECT page, COUNT(*) d FROM events e GROUP BY e.page"),
    "by position": (BY_PAGE_TEXT, "SELECT page, count(*) c FROM events GROUP BY 1"),
    "by all": (BY_PAGE_TEXT, "SELECT page, count(*) c FROM events GROUP BY ALL"),
    "by an alias": (BY_PAGE_TEXT, "SELECT page AS p, count(*) c FROM events GROUP BY p"),
    "a filter after": (BY_PAGE_TEXT, f"{BY_PAGE_TEXT} HAVING count(*) > 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_state_of_the_same_query_fits(case: str) -> None:
    old, new = SAME[case]
    state = AGGREGATION if old == COUNTED else BY_PAGE
    found = verdict(pipeline(old), pipeline(new), state)
    assert not found.refusals
    assert found.level is (Level.COMPATIBLE if old == new else Level.CHANGES)


NOT: Mapping[str, tuple[str, str, SavedOperator | None, str]] = {
    "another key of the same type": (
        COUNTED,
        COUNTED.replace("page", "user"),
        AGGREGATION,
        "it goes by window(ts, '1 minute'), user, and its state in the savepoint goes by window(ts, '1 minute'), page",
    ),
    "keys in another order": (
        "SELECT page, user FROM events GROUP BY page, user",
        "SELECT page, user FROM events GROUP BY user, page",
        operator("stateStoreSave", (PAGE, StateColumn("user", "string"))),
        "it goes by user, page",
    ),
    "another expression": (
        "SELECT upper(page) p, count(*) c FROM events GROUP BY upper(page)",
        "SELECT lower(page) p, count(*) c FROM events GROUP BY lower(page)",
        operator("stateStoreSave", (StateColumn("_groupingexpression", "string"),)),
        "it goes by LOWER(page)",
    ),
    "another window": (COUNTED, COUNTED.replace("1 minute", "5 minutes"), AGGREGATION, "5 minutes"),
    "an aggregate came": (COUNTED, COUNTED.replace("sum(n) AS s", "sum(n) AS s, max(n) AS m"), AGGREGATION, "MAX(n) added"),
    "an aggregate went": (COUNTED, COUNTED.replace(", sum(n) AS s", ""), AGGREGATION, "SUM(n) removed"),
    "an aggregate of another column": (COUNTED, COUNTED.replace("sum(n)", "sum(n + 1)"), AGGREGATION, "SUM(n + 1) added"),
    "aggregates in another order": (
        COUNTED,
        COUNTED.replace("count(*) AS c, sum(n) AS s", "sum(n) AS s, count(*) AS c"),
        AGGREGATION,
        "another order",
    ),
    "an aggregation came": ("SELECT page FROM events", COUNTED, None, "its aggregation is new"),
    "an aggregation went": (COUNTED, "SELECT page FROM events", AGGREGATION, "state of an aggregation that the query no"),
    "a distinct came": ("SELECT page FROM events", "SELECT DISTINCT page FROM events", None, "its aggregation is new"),
    "a join came": (
        "SELECT page FROM events",
        "SELECT e.page FROM events e JOIN clicks c ON e.page = c.page AND e.ts = c.ts",
        None,
        "its join of two streams is new",
    ),
    "a join on another column": (
        "SELECT e.page FROM events e JOIN clicks c ON e.page = c.page",
        "SELECT e.page FROM events e JOIN clicks c ON e.user = c.user",
        JOIN,
        "it joins on events.user = clicks.user, and its state in the savepoint joins on events.page = clicks.page",
    ),
    "streams in another order": (
        "SELECT page FROM events UNION ALL SELECT page FROM clicks",
        "SELECT page FROM clicks UNION ALL SELECT page FROM events",
        None,
        "another order",
    ),
    "a stream came": (
        "SELECT page FROM events",
        "SELECT page FROM events UNION ALL SELECT page FROM clicks",
        None,
        "it read 1 streams and reads 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT)
def test_state_of_another_query_does_not_fit(case: str) -> None:
    old, new, state, text = NOT[case]
    found = verdict(pipeline(old), pipeline(new), *([state] if state else []))
    assert found.level is Level.NOT
    assert any(text in f.text for f in found.refusals), found
    assert all(f.vertex for f in found.refusals)


def code(function: str = "m:f") -> dict[str, Any]:
    changed = pipeline(counts={})
    changed["vertices"][3] = {"kind": "python", "name": "counts", "function": function, "inputs": ["events"]}
    return changed


def test_code_is_unknown_and_said_to_be() -> None:
    found = verdict(code(), code(), AGGREGATION)
    assert found.level is Level.UNKNOWN
    assert [(f.vertex, f.text) for f in found.findings] == [
        ("counts", "m:f is code: its state is checked when the query starts")
    ]


def test_query_in_place_of_code_is_compared_with_the_columns_of_the_state() -> None:
    assert not verdict(code(), pipeline(COUNTED), AGGREGATION).refusals
    [refused] = verdict(code(), pipeline(COUNTED.replace("page", "user")), AGGREGATION).refusals
    assert refused.vertex == "counts"
    assert refused.text.endswith("its state in the savepoint goes by window, page")


PLAN = """== Parsed Logical Plan ==
'Aggregate ['window('ts, 1 minute), 'KEY], ['window.start, 'KEY, 'count(1) AS c#10, 'sum('n) AS s#11]
+- 'UnresolvedRelation [ev], [], false

== Analyzed Logical Plan ==
start: timestamp, KEY: string, c: bigint, s: bigint
~Aggregate [window#14-T60000ms, KEY#1], [window#14-T60000ms.start AS start#15, KEY#1, count(1) AS c#10L, sum(n#3L) AS s#11L]
+- ~Project [named_struct(start, knownnullable(precisetimestampconversion(0, LongType, TimestampType)), end, 1) AS window#14]
   +- ~Filter isnotnull(ts#0-T60000ms)
      +- ~SubqueryAlias ev
         +- View (`ev`, [ts#0-T60000ms, page#1, user#2, n#3L])
            +- ~EventTimeWatermark 7cf39dc5-5d59-4e89-a36f-0d0dd23f6dc2, ts#0: timestamp, 1 minutes
               +- StreamingRelation FileSource[in], [ts#0, page#1, user#2, n#3L], name=<Unassigned>

== Optimized Logical Plan ==
org.apache.spark.sql.AnalysisException: Queries with streaming sources must be executed with writeStream.start()
"""
JOINED = """== Analyzed Logical Plan ==
page: string
~Project [page#1]
+- ~Join Inner, (page#1 = page#9)
   :- ~EventTimeWatermark x
   :  +- StreamingRelation FileSource[in], [ts#0]
   +- ~Deduplicate [page#9, user#10]
      +- StreamingRelation FileSource[in2], [ts#8]
"""


def test_code_is_compared_by_the_plan_that_it_made() -> None:
    """As Spark 4.3 explains it."""
    before = parse_graph(code()).model_dump(mode="json", by_alias=True, exclude_none=True)
    states: dict[str, SavedState | None] = {"out": SavedState((AGGREGATION,), True, CONF)}

    def by(plan: str) -> Verdict:
        kept = kept_by_plan(plan)
        assert kept is not None
        return judge(before, parse_graph(code("m:g")), states, plans={"out": kept})

    assert by(PLAN.replace("KEY", "page")).level is Level.CHANGES  # it is another function
    [refused] = by(PLAN.replace("KEY", "user")).refusals
    assert (refused.vertex, refused.text) == (
        "counts",
        "it goes by window, user, and its state in the savepoint goes by window, page",
    )
    refused = by(JOINED).refusals[0]
    assert "is new" in refused.text


def test_plan_tells_streams_from_tables_and_says_nothing_of_state_of_code() -> None:
    kept = kept_by_plan(JOINED)
    assert kept is not None
    assert [k.kind for k in kept] == [StateKind.DEDUPLICATION, StateKind.JOIN]
    assert kept_by_plan(JOINED.replace("StreamingRelation FileSource[in2]", "Relation [x]")) == ()
    assert kept_by_plan(JOINED.replace("~Deduplicate", "~FlatMapGroupsInPandasWithState")) is None
    assert kept_by_plan("== Physical Plan ==\n") is None


def test_state_of_code_that_went_does_not_fit() -> None:
    [refused] = verdict(code(), pipeline(None), CODE).refusals
    assert "applyInPandasWithState" in refused.text


def test_state_that_cannot_be_read_is_unknown_unless_the_queries_tell() -> None:
    assert verdict(pipeline(), pipeline(), complete=False).level is Level.UNKNOWN


OTHER: Mapping[str, tuple[dict[str, Any], dict[str, Any], tuple[SavedOperator, ...], Level, str]] = {
    "deduplication by other columns": (
        pipeline(None, counts={"deduplicate": {"columns": ["page", "user"]}}),
        pipeline(None, counts={"deduplicate": {"columns": ["page"]}}),
        (DEDUPED,),
        Level.NOT,
        "it goes by page, and its state in the savepoint goes by page, user",
    ),
    "rows that were waited for": (
        pipeline(out={"output_mode": "append"}),
        pipeline(out={"output_mode": "update"}),
        (AGGREGATION,),
        Level.NOT,
        "its output mode was append and is update",
    ),
    "update to complete": (
        pipeline(out={"output_mode": "update"}),
        pipeline(out={"output_mode": "complete"}),
        (AGGREGATION,),
        Level.CHANGES,
        "its output mode was update and is complete",
    ),
    "another kind of source": (
        pipeline(None),
        pipeline(None, events={"format": "kafka", "path": None, "options": {"subscribe": "x"}}),
        (),
        Level.NOT,
        "it was a stream of format 'json' and is one of 'kafka'",
    ),
    "another place of a source": (pipeline(None), pipeline(None, events={"path": "/o"}), (), Level.CHANGES, "another place"),
    "another format of files": (pipeline(None), pipeline(None, events={"format": "csv"}), (), Level.COMPATIBLE, ""),
    "a filter before": (
        pipeline(),
        pipeline(COUNTED.replace("FROM events", "FROM events WHERE n > 1")),
        (AGGREGATION,),
        Level.CHANGES,
        "has changed",
    ),
    "more partitions": (
        pipeline(),
        pipeline(top={"settings": {"spark": {"spark.sql.shuffle.partitions": "8"}}}),
        (AGGREGATION,),
        Level.CHANGES,
        "spark.sql.shuffle.partitions stays 2",
    ),
    "another state store": (
        pipeline(),
        pipeline(top={"settings": {"spark": {"spark.sql.streaming.stateStore.providerClass": "x.Y"}}}),
        (AGGREGATION,),
        Level.CHANGES,
        "providerClass stays",
    ),
    "another parallelism": (pipeline(), pipeline(top={"parallelism": 7}), (AGGREGATION,), Level.CHANGES, "2 partitions"),
    "another output": (pipeline(), pipeline(out={"format": "console"}), (AGGREGATION,), Level.CHANGES, "another place"),
    "a sink more": (
        pipeline(),
        pipeline(extra=[{"kind": "sink", "name": "more", "input": "counts", "format": "noop"}]),
        (AGGREGATION,),
        Level.CHANGES,
        "starts without state",
    ),
    "a renamed sink": (pipeline(), pipeline(out={"name": "other"}), (AGGREGATION,), Level.NOT, "would be skipped"),
    "a lookup that is no stream": (
        pipeline(None),
        pipeline("SELECT e.page FROM events e JOIN names n ON e.user = n.user"),
        (),
        Level.CHANGES,
        "has changed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER)
def test_everything_else_that_changed_is_listed(case: str) -> None:
    old, new, operators, level, text = OTHER[case]
    found = verdict(old, new, *operators)
    assert found.level is level, found
    assert not text or any(text in f.text for f in found.findings), found


def test_state_that_may_be_left_behind_is_a_change() -> None:
    assert verdict(pipeline(), pipeline(out={"name": "other"}), AGGREGATION, allow=True).level is Level.CHANGES


def test_query_that_had_committed_nothing_fits_whatever_it_is() -> None:
    before = parse_graph(pipeline()).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert (
        judge(before, parse_graph(pipeline(COUNTED.replace("page", "user"))), {"out": None}).level is Level.COMPATIBLE
    )


def test_verdict_goes_through_json() -> None:
    found = verdict(pipeline(), pipeline(COUNTED.replace("page", "user")), AGGREGATION)
    assert Verdict.from_json(found.to_json()) == found


# -- what Spark writes --------------------------------------------------------------------------------------------------

KEYS = (
    b'{"type":"struct","fields":[{"name":"window","type":{"type":"struct","fields":[]},"nullable":true,"metadata":{}},'
    b'{"name":"page","type":"string","nullable":true,"metadata":{}}]}'
)
VALUES = (
    b'{"type":"struct","fields":[{"name":"count","type":"long","nullable":true,"metadata":{}},'
    b'{"name":"sum","type":"long","nullable":true,"metadata":{}}]}'
)
SCHEMA = b"\x00\x02v2" + b"".join((1).to_bytes(4, "big") + len(t).to_bytes(2, "big") + t for t in (KEYS, VALUES))
FILES = {
    "state/0/_metadata/metadata": b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},"stateStoreInfo":[]}',
    "state/0/0/_metadata/schema": SCHEMA,
    "state/0/1/1.changelog": b"",
    "offsets/3": b'v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"2"}}\n{"logOffset":0}',
}


def test_state_is_read_as_spark_writes_it() -> None:
    state = saved_state(FILES, 3, FILES.get)
    assert state.operators == (AGGREGATION,)
    assert state.complete
    assert state.partitions == "2"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [b"", b"\xff\xff\xff", b"v1\n[]", b"v2\n{}"], ids=repr)
def test_damaged_state_is_not_known_and_no_error(name: str, damage: bytes) -> None:
    state = saved_state(FILES, 3, {**FILES, name: damage}.get)
    assert state.complete == (name != "state/0/_metadata/metadata")


def test_torn_schema_is_none() -> None:
    assert [end for end in range(len(SCHEMA)) if parse_schema(SCHEMA[:end]) is not None] == []
