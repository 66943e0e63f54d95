"""Column lists: whatever Spark accepts must pass. The lists here were compared with Spark's own parser."""

from __future__ import annotations

import pytest

from firesteel.jobgraph.ddl import DdlError, column_names, without_colons

ACCEPTED_BY_SPARK = [
    "id BIGINT",
    "`a b` INT, `c``d` STRING",
    "a DECIMAL(10,2), b DECIMAL, c DEC(3), d NUMERIC(5 , 1)",
    "a CHAR(3), b VARCHAR(10), c CHARACTER(2)",
    "a TIMESTAMP_NTZ, b TIMESTAMP_LTZ, c TIMESTAMP",
    "a TIMESTAMP WITHOUT TIME ZONE, b TIMESTAMP WITH LOCAL TIME ZONE",
    "a TIME, b TIME(3), c TIME(6) WITHOUT TIME ZONE",
    "a INTERVAL, b INTERVAL YEAR, c INTERVAL YEAR TO MONTH, d INTERVAL DAY TO SECOND, e INTERVAL HOUR",
    "a VARIANT, b VOID, c GEOMETRY(4326), d GEOGRAPHY(ANY)",
    "a STRING COLLATE UTF8_LCASE, b STRING COLLATE unicode_ci NOT NULL COMMENT 'x', c VARCHAR(3) COLLATE UTF8_LCASE",
    "a ARRAY<INT>, b MAP<STRING, ARRAY<INT>>, c STRUCT<x: INT, y STRING NOT NULL COMMENT 'q'>",
    "a STRUCT<>, b STRUCT< >",
    "a ARRAY<STRUCT<a:INT,b:ARRAY<STRUCT<c:INT>>>>",
    "a INT NOT NULL COMMENT \"dq\", b INT COMMENT r'raw', c INT COMMENT 'a' 'b', d MAP<STRING,INT>COMMENT 'it\\'s'",
    "1a INT, date DATE, timestamp TIMESTAMP, select INT, from STRING, order INT, not INT, comment STRING COMMENT 'c'",
    "a INT /* c */, b STRING -- d",
    "a BYTE, b SHORT, c LONG, d REAL, e INTEGER, f BINARY, g BOOLEAN, h TINYINT, i SMALLINT, j DOUBLE, k FLOAT",
    '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{}}]}',
]

REFUSED_BY_SPARK = {
    "": "it declares no column",
    "a": "column 'a' has no type",
    "a INT,": "it ends where a column name is expected",
    ",a INT": "found ',' where a column name is expected",
    "a INT b INT": "found 'b' where ',' or the end of the list is expected",
    "a INT; b INT": "';' is not allowed in a column list",
    "a-b INT": "'-' is not allowed in a column list",
    "a CHAR": "CHAR of column 'a' has no length",
    "a STRUCT": "the STRUCT of column 'a' has no fields",
    "a ARRAY": "the ARRAY of column 'a' has no element type",
    "a MAP": "the MAP of column 'a' has no key and value types",
    "a MAP<INT>": "the MAP of column 'a' has no value type",
    "a ARRAY<INT": "the type of column 'a' is not closed",
    "a ARRAY<INT NOT NULL>": "the type of column 'a' is not closed",
    "a STRUCT<b: NUMBER>": "column 'b' has the unknown type 'NUMBER'",
    "a INT NOT": "it ends where NULL after NOT is expected",
    "a INT DEFAULT 3": "found 'DEFAULT' where ',' or the end of the list is expected",
    "a INT COMMENT x": "the comment of column 'a' is not in quotes",
    "a DOUBLE PRECISION": "found 'PRECISION' where ',' or the end of the list is expected",
    "a INTERVAL WEEK": "found 'WEEK' where ',' or the end of the list is expected",
    "a DATETIME": "column 'a' has the unknown type 'DATETIME'",
    "a LIST<INT>": "column 'a' has the unknown type 'LIST'",
    "'a' INT": "found ''a'' where a column name is expected",
    "struct<a: int>": "column 'struct' has the unknown type '<'",
    "{nonsense": "it looks like a schema in JSON but is not one",
}


@pytest.mark.parametrize("ddl", ACCEPTED_BY_SPARK)
def test_accepted(ddl: str) -> None:
    assert column_names(ddl)


@pytest.mark.parametrize("ddl", REFUSED_BY_SPARK)
def test_refused(ddl: str) -> None:
    with pytest.raises(DdlError) as raised:
        column_names(ddl)
    assert str(raised.value) == REFUSED_BY_SPARK[ddl]
    assert raised.value.fix


def test_names_are_those_of_the_top_level() -> None:
    assert column_names("a INT, `b c` STRUCT<d: INT, e: STRING>, f: MAP<STRING, INT>") == ("a", "b c", "f")


def test_colons_of_the_top_level_go_because_a_reader_refuses_them() -> None:
    assert without_colons("a: INT, b:STRUCT<c: INT, d:INT>") == "a INT, b STRUCT<c: INT, d:INT>"
    assert without_colons("a INT, b INT") == "a INT, b INT"
    assert without_colons("a: NONSENSE") == "a: NONSENSE"
