"""The event log of a driver that runs for months, and its readers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firesteel.attempts.events import EventLog, EventTail, LineTail, ProgressTail, previous


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[Callable[..., EventLog]]:
    with contextlib.ExitStack() as stack:

        def make(**options: int) -> EventLog:
            return stack.enter_context(contextlib.closing(EventLog(tmp_path / "events.jsonl", **options)))

        yield make


def batch(log: EventLog, number: int) -> None:
    log.emit("batch", vertex="o", batch=number, rows=2, output_rows=1, vertices={"a": 3})


def test_log_stays_small_and_a_reader_that_keeps_up_misses_nothing(
    tmp_path: Path, make_log: Callable[..., EventLog]
) -> None:
    path = tmp_path / "events.jsonl"
    log = make_log(limit=6000)
    tail = EventTail(path)
    seen = []
    for n in range(500):
        batch(log, n)
        if n % 7 == 0:
            seen += tail.new()
            seen += tail.new()
    for _ in range(3):
        seen += tail.new()
    assert [e["batch"] for e in seen if e["type"] == "batch"] == list(range(500))
    assert path.stat().st_size + previous(path).stat().st_size < 18000
    assert {f.name for f in tmp_path.iterdir()} == {"events.jsonl", "events.1.jsonl"}


def test_reader_that_comes_late_knows_the_sum(tmp_path: Path, make_log: Callable[..., EventLog]) -> None:
    """A new leader looks at a stream whose first events were dropped long ago."""
    path = tmp_path / "events.jsonl"
    log = make_log(limit=4000)
    follower = ProgressTail(path)
    log.emit("phase", phase="running")
    log.emit("query", vertex="o", query_id="q", run_id="r")
    for n in range(100):
        batch(log, n)
        follower.look()
    late = ProgressTail(path).look()
    assert late == follower.look()
    assert late["phase"] == "running"
    assert late["query_runs"] == {"o": "r"}
    assert late["vertices"] == {"a": 300}
    sink = late["sinks"]["o"]
    assert (sink["state"], sink["batch"], sink["rows"], sink["output_rows"]) == ("running", 99, 200, 100)


def test_view_of_a_batch_job(tmp_path: Path, make_log: Callable[..., EventLog]) -> None:
    path = tmp_path / "events.jsonl"
    log = make_log()
    tail = ProgressTail(path)
    assert tail.look()["sinks"] == {}
    log.emit("phase", phase="running")
    log.emit("progress", vertex="o", tasks=8, completed=3, running=2, stages=2, stages_done=0, bytes_read=10)
    assert tail.look()["sinks"]["o"]["completed"] == 3
    log.emit("sink", vertex="o", state="committed")
    log.emit("result", state="FINISHED", failure=None)
    view = tail.look()
    assert view["result"] == "FINISHED"
    assert (view["sinks"]["o"]["state"], view["sinks"]["o"]["tasks"]) == ("committed", 8)


def test_torn_and_half_written_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"type": "a"}\n{"type": "b\n{"type": "c"}\n{"type": ')
    tail = EventTail(path)
    assert [e["type"] for e in tail.new()] == ["a", "c"]
    assert tail.new() == []
    with path.open("a") as f:
        f.write('"d"}\n')
    assert [e["type"] for e in tail.new()] == ["d"]


def test_tail_of_a_file_that_was_emptied_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("one\ntwo\n")
    tail = LineTail(path)
    assert tail.new() == "one\ntwo"
    path.write_text("3\n")
    assert tail.new() == "3"


def test_tail_reads_the_rest_of_a_log_whose_next_one_is_not_there_yet(tmp_path: Path) -> None:
    """The driver was killed in the middle of the change."""
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"type": "a"}) + "\n")
    tail = EventTail(path)
    assert len(tail.new()) == 1
    with path.open("a") as f:
        f.write(json.dumps({"type": "b"}) + "\n")
    path.rename(previous(path))
    assert [e["type"] for e in tail.new()] == ["b"]
    assert tail.new() == []
