from __future__ import annotations

import subprocess
import sys

import pytest

from firesteel.jobgraph.sqltext import read_query

READS: dict[str, tuple[str, ...]] = {
    "SELECT 1": (),
    "SELECT * FROM a JOIN b USING (x), c": ("a", "b", "c"),
    "SELECT * FROM a x JOIN a y": ("a",),
    "select * from `my view`": ("my view",),
    "SELECT * FROM db.a, cat.db.b, parquet.`/x/y`": (),
    "SELECT * FROM range(10), values (1) AS v(x)": (),
    "TABLE a": ("a",),
    "TABLE db.a": (),
    "FROM a SELECT x": ("a",),
    "FROM a |> WHERE x > 1": ("a",),
    "SELECT * FROM f(TABLE(a))": ("a",),
    "SELECT * FROM STREAM(a)": ("a",),
    "SELECT * FROM STREAM a": ("a",),
    "SELECT * FROM a LATERAL VIEW explode(x) e AS y": ("a",),
    "SELECT /*+ BROADCAST(z) */ * FROM a JOIN b z ON a.x = z.x": ("a", "b"),
    "SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (SELECT 1 FROM c)": ("a", "b", "c"),
    "(SELECT * FROM a) UNION ALL (SELECT * FROM b)": ("a", "b"),
    # Names that the query defines are not read from outside; before its definition a name is.
    "WITH w AS (SELECT * FROM a) SELECT * FROM w JOIN b": ("a", "b"),
    "WITH a AS (SELECT * FROM a) SELECT * FROM a": ("a",),
    "WITH w AS (SELECT * FROM v), v AS (SELECT 1) SELECT * FROM v": ("v",),
    "WITH v AS (SELECT 1), w AS (SELECT * FROM V) SELECT * FROM w": (),
    "WITH RECURSIVE w AS (SELECT 1 UNION ALL SELECT * FROM w) SELECT * FROM w": (),
    "SELECT * FROM a WHERE EXISTS (WITH q AS (SELECT 1) SELECT * FROM q) AND y IN (SELECT 1 FROM q)": ("a", "q"),
    "SELECT * FROM a; -- the end": ("a",),
    "SELECT ';' FROM a -- ; select": ("a",),
}


@pytest.mark.parametrize("query", READS)
def test_tables_that_a_query_reads(query: str) -> None:
    assert read_query(query).reads == READS[query]
    assert read_query(query).error is None


@pytest.mark.parametrize(
    ("query", "message", "certain"),
    [
        ("", "it is empty", True),
        ("-- nothing", "it is empty", True),
        ("SELECT 1; SELECT 2", "it has 2 statements, not one", True),
        ("DROP TABLE a", "DROP is not a query", True),
        ("MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE", "MERGE is not a query", True),
        ("SHOW TABLES", "a query cannot begin with 'SHOW'", True),
        ("SELEC * FROM a", "a query cannot begin with 'SELEC'; did you mean SELECT?", True),
        ("-- a\n ( ( wiht x as (select 1) select 1", "a query cannot begin with 'wiht'; did you mean WITH?", True),
        ("FROM a SELEC x", "unexpected text at 'x'", False),
        ("SELECT * FROM", "expected table name at 'FROM'", False),
    ],
)
def test_what_is_no_query(query: str, message: str, certain: bool) -> None:
    error = read_query(query).error
    assert error is not None
    assert (error.message, error.certain) == (message, certain)


def test_unknown_syntax_is_a_suspicion_and_its_tables_are_guessed() -> None:
    query = read_query("SELECT t:x.y::int, 'from z'\nFROM t JOIN db.u JOIN f(1) JOIN `v` -- FROM w\nWHERE = 1")
    assert query.error is not None
    assert not query.error.certain
    assert query.reads == ("t", "v")
    assert query.error.line in (1, 3)


def test_sqlglot_is_imported_only_for_queries() -> None:
    code = """
import sys
from firesteel.jobgraph import Job
job = Job("a")
job.sink("out", job.source("rows", "csv", path="in", schema="a INT"), format="noop")
job.graph()
assert "sqlglot" not in sys.modules
job.sink("more", job.sql("q", "SELECT 1"), format="noop")
try:
    job.graph()
finally:
    assert "sqlglot" in sys.modules
    assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
