from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.jobgraph.load import load_pipeline
from firesteel.jobgraph.model import JobGraph, Overwrite, Python, SaveMode, Sink, Source, Sql
from firesteel.jobgraph.sql_tokens import UnclosedError, statements, tokens


def split(text: str) -> list[str]:
    return ["".join(t.text for t in part).strip() for part in statements(text)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a; b;", ["a", "b", ""]),
        ("a ';' ; b", ["a ';'", "b"]),
        ("a 'it''s; x' ; b", ["a 'it''s; x'", "b"]),
        (r"a 'it\'s; x' ; b", [r"a 'it\'s; x'", "b"]),
        (r"a '\\' ; b", [r"a '\\'", "b"]),
        ('a ";" ; b', ['a ";"', "b"]),
        ("a `;` ; b", ["a `;`", "b"]),
        (r"a r'\' ; b", [r"a r'\'", "b"]),
        ("a -- ; '\n; b", ["a -- ; '", "b"]),
        ("a /* ; ' */ ; b", ["a /* ; ' */", "b"]),
        ("a /* /* ; */ ; */ ; b", ["a /* /* ; */ ; */", "b"]),
        ("a /*+ hint */ ; b", ["a /*+ hint */", "b"]),
        ("a - b; c", ["a - b", "c"]),
    ],
)
def test_semicolons_in_quotes_and_comments_split_nothing(text: str, parts: list[str]) -> None:
    assert split(text) == parts


@pytest.mark.parametrize("text", ["a\n'b", 'a\n"b', "a\n`b", "a\n/* b", "a\n/* /* b */"])
def test_what_never_ends_is_reported_where_it_begins(text: str) -> None:
    with pytest.raises(UnclosedError) as raised:
        list(tokens(text))
    assert raised.value.line == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a'", "a"),
        ("'it''s'", "it's"),
        (r"'it\'s \\ \n \% \x'", "it's \\ \n \\% x"),
        ('"a""b"', 'a"b'),
        (r"r'\n'", r"\n"),
        ("`a``b`", "a`b"),
    ],
)
def test_values_of_quoted_text(text: str, value: str) -> None:
    (token,) = tokens(text)
    assert token.value == value


def load(tmp_path: Path, body: str) -> JobGraph:
    (tmp_path / "p.sql").write_text(f"/* firesteel\nname: a\n*/\n{body}")
    (tmp_path / "m.py").write_text("def f(*inputs, **args): ...\n")
    return load_pipeline(tmp_path / "p.sql").graph


def test_shapes(tmp_path: Path) -> None:
    graph = load(
        tmp_path,
        r"""
        create temporary view orders (`the id` BIGINT NOT NULL COMMENT 'x;y', tags MAP<STRING,INT>)
        using `csv` options ('header' = true, quote.char '\'', maxColumns 20, limit -1, path 's3a://b/orders/*.csv');
        CREATE TEMPORARY VIEW t USING delta OPTIONS (table 'db.t');
        CREATE TEMP VIEW paid COMMENT 'who paid' AS
        WITH x AS (SELECT ';' AS c FROM orders) SELECT * FROM x, t;
        CREATE TEMPORARY VIEW s USING python OPTIONS (function 'm:f', inputs 'paid, T', a 30, b '30', c 'x y', d TRUE);
        -- firesteel: {keys: [id], mode: upsert}
        -- firesteel: {description: 'a: b'}
        INSERT INTO one USING delta OPTIONS (path 'one') SELECT * FROM s;
        -- firesteel: {overwrite: all}
        INSERT OVERWRITE two USING json OPTIONS (path 'two') PARTITIONED BY (a, `b c`) TABLE S
        """,
    )
    orders, t, paid, s, one, two = graph.vertices
    assert orders == Source(
        name="orders",
        format="csv",
        path="s3a://b/orders/*.csv",
        schema_="`the id` BIGINT NOT NULL COMMENT 'x;y', tags MAP<STRING,INT>",
        options={"header": "true", "quote.char": "'", "maxColumns": "20", "limit": "-1"},
    )
    assert t == Source(name="t", format="delta", table="db.t")
    assert paid == Sql(
        name="paid",
        description="who paid",
        query="WITH x AS (SELECT ';' AS c FROM orders) SELECT * FROM x, t",
        inputs=("orders", "t"),
    )
    assert s == Python(name="s", function="m:f", inputs=("paid", "t"), args={"a": 30, "b": 30, "c": "x y", "d": True})
    assert one == Sink(
        name="one",
        input="s",
        format="delta",
        path=str(tmp_path / "one"),
        mode=SaveMode.UPSERT,
        keys=("id",),
        description="a: b",
    )
    assert two == Sink(
        name="two",
        input="s",
        format="json",
        path=str(tmp_path / "two"),
        mode=SaveMode.OVERWRITE,
        overwrite=Overwrite.ALL,
        partition_by=("a", "b c"),
    )


def test_format_may_be_a_class_name(tmp_path: Path) -> None:
    graph = load(
        tmp_path,
        "CREATE TEMPORARY VIEW a USING org.example.Source OPTIONS (path 'x');"
        "INSERT INTO b USING noop TABLE a; -- the end",
    )
    source = graph.by_name["a"]
    assert isinstance(source, Source)
    assert source.format == "org.example.Source"


def test_foreach_batch_needs_no_using(tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text(
        "/* firesteel\nname: a\nmode: streaming\n*/\nCREATE TEMPORARY VIEW a USING rate;\n"
        "-- firesteel: {foreach_batch: 'm:f'}\nINSERT INTO b TABLE a;"
    )
    (tmp_path / "m.py").write_text("def f(batch_df, batch_id): ...\n")
    sink = load_pipeline(tmp_path / "p.sql").graph.by_name["b"]
    assert isinstance(sink, Sink)
    assert sink.foreach_batch == "m:f"
    assert sink.format is None
