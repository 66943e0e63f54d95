"""Queries in parentheses, and messages of Spark about them as it says them."""

from __future__ import annotations

import pytest

from firesteel.spark_connect.query_text import as_query, in_own_lines, without_semicolons


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT 1;", "SELECT 1 "),
        ("SELECT 1 ;; -- done;\n; /* ; */", "SELECT 1    -- done;\n  /* ; */"),
        ("SELECT ';' -- ;", "SELECT ';' -- ;"),
        ("SELECT 1; SELECT 2", "SELECT 1; SELECT 2"),
        ("SELECT 'open", "SELECT 'open"),
    ],
)
def test_semicolons_at_the_end_go_and_everything_keeps_its_place(written: str, sent: str) -> None:
    assert without_semicolons(written) == sent
    assert as_query(written) == f"(\n{sent}\n\n)"


def test_a_parse_error_points_into_the_query_as_it_was_written() -> None:
    query = "SELECT a,\n  b c d FROM x"
    said = (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'd'. SQLSTATE: 42601 (line 3, pos 6)\n\n"
        "== SQL ==\n(\nSELECT a,\n  b c d FROM x\n------^^^\n\n)\n"
    )
    assert in_own_lines(said, ["SELECT 1", query]) == (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'd'. SQLSTATE: 42601 (line 2, pos 6)\n\n"
        "== SQL ==\nSELECT a,\n  b c d FROM x\n------^^^\n"
    )


def test_an_analysis_error_and_an_error_in_data_point_there_too() -> None:
    assert in_own_lines("... SQLSTATE: 42703; line 2 pos 7;\n'Project", ["SELECT nope"]).startswith(
        "... SQLSTATE: 42703; line 1 pos 7;"
    )
    said = "[DIVIDE_BY_ZERO] x\n== SQL (line 3, position 3) ==\n  1/0 AS x\n  ^^^"
    assert "(line 2, position 3) ==\n  1/0" in in_own_lines(said, ["SELECT 1,\n  1/0 AS x"])


def test_a_query_that_ends_too_early_ends_where_the_user_ended_it() -> None:
    said = "[PARSE_SYNTAX_ERROR] Syntax error at or near ')'. SQLSTATE: 42601 (line 5, pos 0)"
    assert in_own_lines(said, ["SELECT a\nWHERE"]) == (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 2, pos 5)"
    )


def test_what_is_said_of_another_text_stays_as_it_is() -> None:
    """A function of the job has queries of its own, which Spark gets as they are."""
    said = "[DIVIDE_BY_ZERO] x\n== SQL (line 2, position 3) ==\n  2/0 AS y\n  ^^^"
    assert in_own_lines(said, ["SELECT 1,\n  1/0 AS x"]) == said
    assert in_own_lines("(line 1, pos 3)", ["SELECT 1"]) == "(line 1, pos 3)"
