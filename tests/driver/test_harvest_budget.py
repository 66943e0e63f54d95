"""Which jobs are counted when many short ones run."""

from __future__ import annotations

from pathlib import Path

from firesteel.attempts.harvest_budget import BURST, LONG_SECONDS, PER_SECOND, worth_counting


def test_short_jobs_are_counted_until_the_tokens_are_used_up(tmp_path: Path) -> None:
    book = tmp_path / "book"
    assert [worth_counting(0.1, book, 100.0) for _ in range(int(BURST) + 2)] == [True] * int(BURST) + [False] * 2
    assert worth_counting(0.1, book, 100.0 + 1.01 / PER_SECOND)
    assert not worth_counting(0.1, book, 100.0 + 1.01 / PER_SECOND)


def test_long_job_is_always_counted(tmp_path: Path) -> None:
    book = tmp_path / "book"
    book.write_text("0 100")
    assert worth_counting(LONG_SECONDS, book, 100.0)
    assert book.read_text() == "0 100"


def test_torn_book_is_begun_anew_or_ignored(tmp_path: Path) -> None:
    book = tmp_path / "book"
    book.write_text("nonsense")
    assert worth_counting(0.1, book, 100.0)
    book.write_text("a b")
    assert worth_counting(0.1, book, 100.0)


def test_clock_that_goes_back_takes_nothing(tmp_path: Path) -> None:
    book = tmp_path / "book"
    book.write_text("1.0 200.0")
    assert worth_counting(0.1, book, 100.0)
    assert not worth_counting(0.1, book, 100.0)
