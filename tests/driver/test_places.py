"""Which vertex an error came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import graph_of

from firesteel.driver.failure import classify
from firesteel.driver.places import vertex_of
from firesteel.driver.stream_facts import rows_by_source
from firesteel.errors import EngineLostError
from firesteel.jobgraph.model import JobGraph

DIVISION = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. SQLSTATE: 22012
== SQL (line 2, position 8) ==
{}
       ^^^^^
"""


RATIO = "WITH x AS (SELECT * FROM orders)\nSELECT a / b AS r FROM x"


def graph(*more: dict[str, Any]) -> JobGraph:
    return graph_of(
        {"kind": "source", "name": "orders", "format": "csv", "path": "/data/orders/*", "schema": "a INT, b INT"},
        {"kind": "source", "name": "people", "format": "csv", "path": "/data/people", "schema": "a INT"},
        {"kind": "sql", "name": "ratio", "query": RATIO, "inputs": ["orders"]},
        {"kind": "sql", "name": "old", "query": "SELECT a / b AS r FROM orders", "inputs": ["orders"]},
        *more,
        {"kind": "sink", "name": "out", "input": "ratio", "format": "parquet", "path": "/o"},
        {"kind": "sink", "name": "other", "input": "old", "format": "parquet", "path": "/p"},
        {"kind": "sink", "name": "third", "input": "people", "format": "parquet", "path": "/q"},
    )


def error(text: str, *, sink: str = "", vertex: str = "") -> Exception:
    made: Any = RuntimeError(text)
    if sink:
        made.firesteel_sink = sink
    if vertex:
        made.firesteel_vertex = vertex
    failure: Exception = made
    return failure


def test_the_query_that_spark_quotes_is_that_of_one_vertex() -> None:
    assert vertex_of(error(DIVISION.format("SELECT a / b AS r FROM x")), graph()) == "ratio"
    assert vertex_of(error(DIVISION.format("SELECT a / b AS r FROM orders"), sink="other"), graph()) == "old"


def test_a_long_line_is_cut_and_still_found() -> None:
    assert vertex_of(error(DIVISION.format("...a / b AS r FROM x"), sink="out"), graph()) == "ratio"


def test_of_two_vertices_with_one_text_it_is_the_one_behind_the_sink() -> None:
    text = DIVISION.format("a / b AS r")
    assert vertex_of(error(text, sink="out"), graph()) == "ratio"
    assert vertex_of(error(text, sink="other"), graph()) == "old"
    assert vertex_of(error(text), graph()) is None


def test_what_was_being_compiled_is_known_for_certain() -> None:
    assert vertex_of(error(DIVISION.format("SELECT a / b AS r FROM x"), vertex="old"), graph()) == "old"


def test_files_that_cannot_be_read_are_those_of_a_source() -> None:
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/orders/1.csv."
    assert vertex_of(error(text, sink="out"), graph()) == "orders"


def test_an_error_that_tells_nothing_is_its_sinks() -> None:
    assert vertex_of(error("Job aborted", sink="out"), graph()) == "out"
    assert vertex_of(error("Job aborted"), graph()) is None


def test_of_functions_in_one_file_it_is_the_one_whose_lines_failed(tmp_path: Path) -> None:
    module = tmp_path / "jobs" / "clean.py"
    module.parent.mkdir()
    module.write_text("def first(f):\n    return f\n\ndef second(f):\n    g = lambda v: 1 // v\n    return f\n")
    vertices = [
        {"kind": "python", "name": n, "function": f"jobs.clean:{f}", "inputs": ["orders"]}
        for n, f in (("one", "first"), ("two", "second"))
    ]
    sinks = [{"kind": "sink", "name": f"s{n}", "input": n, "format": "noop"} for n in ("one", "two")]
    made = graph(*vertices, *sinks)
    text = 'Traceback (most recent call last):\n  File "{}", line {}, in <lambda>\nZeroDivisionError: division by zero'
    assert vertex_of(error(text.format(module, 5)), made) == "two"
    assert vertex_of(error(text.format(module, 2)), made) == "one"
    assert vertex_of(error(text.format(module, 99), sink="stwo"), made) == "two", "the only one behind that sink"
    assert vertex_of(error(text.format("/elsewhere/jobs/clean.py", 5)), made) is None
    assert vertex_of(error(text.format("/x/other.py", 5), sink="sone"), made) == "sone"


def test_a_lost_engine_is_nobodys_fault() -> None:
    assert classify(EngineLostError("gone"), "out").vertex is None
    assert classify(error("StatusCode.UNAVAILABLE: connection refused"), "out").vertex is None
    assert classify(error("[DIVIDE_BY_ZERO] x"), "ratio").vertex == "ratio"


@pytest.mark.parametrize(
    ("descriptions", "reads"),
    [
        ([("FileStreamSource[file:/data/a]", 3), ("FileStreamSource[file:/data/b]", 4)], {"a": 3, "b": 4}),
        ([("FileStreamSource[file:/data/b]", 4)], {"b": 4}),
        ([("RateStreamV2[...]", 3), ("Foo", 4)], {}),
    ],
)
def test_rows_of_two_sources_are_told_apart_by_their_names(
    descriptions: list[tuple[str, int]], reads: dict[str, int]
) -> None:
    made = graph_of(
        *({"kind": "source", "name": n, "format": "json", "path": f"/data/{n}", "schema": "i INT"} for n in "ab"),
        {"kind": "sql", "name": "j", "query": "SELECT * FROM a JOIN b USING (i)", "inputs": ["a", "b"]},
        {"kind": "sink", "name": "o", "input": "j", "format": "noop"},
        mode="streaming",
    )
    sources = [{"description": d, "numInputRows": n} for d, n in descriptions]
    assert rows_by_source(made, "o", sources) == reads
