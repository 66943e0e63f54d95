"""Which lines of an event stream are shown, and none of them twice."""

from __future__ import annotations

import pytest

from firesteel.cli.following import MEMORY, LogLines, missed
from firesteel.client.events import JobEvent
from firesteel.types import JobID

JOB = JobID("1" * 32)


def snapshot() -> JobEvent:
    return JobEvent("snapshot", JOB, 0.5, {"status": "RUNNING"})


def log(at: float, *lines: str, stream: str = "stdout", attempt: int = 1) -> JobEvent:
    return JobEvent("log", JOB, at, {"attempt": attempt, "stream": stream, "lines": list(lines)})


def texts(lines: LogLines, *events: JobEvent) -> list[str]:
    return [line.text for event in events for line in lines.take(event)]


def test_what_is_there_comes_at_once_and_whole() -> None:
    lines = LogLines()
    assert texts(lines, snapshot(), log(1, "a", "b"), log(1, "c"), log(1, "e", stream="stderr")) == []
    assert lines.holds
    assert [(x.stream, x.text) for x in lines.flush()] == [
        ("stdout", "a"),
        ("stdout", "b"),
        ("stdout", "c"),
        ("stderr", "e"),
    ]
    assert not lines.holds
    assert texts(lines, log(2, "d")) == ["d"]
    assert lines.flush() == []


def test_another_moment_ends_the_beginning() -> None:
    lines = LogLines()
    assert texts(lines, snapshot(), log(1, "a"), log(2, "b"), log(3, "c")) == ["a", "b", "c"]
    lines = LogLines()
    state = JobEvent("state", JOB, 1, {"status": "FINISHED"})
    assert texts(lines, snapshot(), log(1, "a"), state) == ["a"]


def test_only_the_last_lines_of_the_beginning_are_wanted() -> None:
    lines = LogLines(1)
    given = [snapshot(), log(1, "a", "b"), log(1, "x", "y", stream="stderr"), log(2, "c", "d")]
    assert texts(lines, *given) == ["b", "y", "c", "d"]
    assert texts(LogLines(0), *given) == ["c", "d"]


def test_what_was_shown_before_a_break_is_not_shown_again() -> None:
    lines = LogLines(1)
    assert texts(lines, snapshot(), log(1, "a", "b"), log(2, "c")) == ["b", "c"]
    again = [snapshot(), log(5, "a", "b", "c", "d"), log(6, "e")]
    assert texts(lines, *again) == ["d", "e"]


def test_attempt_that_began_during_a_break_is_shown_whole() -> None:
    lines = LogLines(1)
    assert texts(lines, snapshot(), log(1, "a"), log(2, "b")) == ["a", "b"]
    assert texts(lines, snapshot(), log(5, "a", "b", attempt=2), log(6, "c", attempt=2)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("shown", "recent", "news"),
    [
        ([], ["a"], ["a"]),
        (["a", "b"], ["a", "b"], []),
        (["a", "b"], ["b", "c"], ["c"]),
        (["b"], ["a", "b", "c"], ["c"]),
        (["a", "b"], ["x", "y"], ["x", "y"]),
        (["tick"] * 5, ["tick"] * 5, []),
        (["a", "b"], [], []),
        (["b", "a"], ["a", "b", "a", "b"], ["b"]),
    ],
)
def test_part_that_was_missed(shown: list[str], recent: list[str], news: list[str]) -> None:
    assert missed(shown, recent) == news


def test_memory_is_bounded() -> None:
    lines = LogLines()
    texts(lines, snapshot(), log(1, "first"), log(2, *(str(n) for n in range(3 * MEMORY))))
    assert {len(kept) for kept in lines._shown.values()} == {MEMORY}


def test_events_of_another_make_do_no_harm() -> None:
    lines = LogLines()
    odd = JobEvent("log", JOB, 1, {"lines": "no list"})
    assert texts(lines, snapshot(), odd, log(2, "a")) == ["a"]
