"""How often a driver looks at its streaming queries, and how soon it hears of a stop all the same."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import graph_of

from firesteel.attempts.events import EventLog
from firesteel.driver.failure import classify
from firesteel.driver.stop import StopSwitch
from firesteel.driver.streaming import LONGEST_POLL_SECONDS, POLL_SECONDS, _Watch, poll_seconds
from firesteel.errors import QueryStoppedError
from firesteel.failure import FailureKind


@pytest.mark.parametrize(
    ("triggers", "expected"),
    [
        ([None], POLL_SECONDS),
        (["available-now"], POLL_SECONDS),
        (["500 ms"], POLL_SECONDS),
        (["10 s"], 1.0),
        (["1 min"], LONGEST_POLL_SECONDS),
        (["1 min", "5 s"], 0.5),
        (["1 min", None], POLL_SECONDS),
    ],
)
def test_slow_streams_are_looked_at_less_often(triggers: list[str | None], expected: float) -> None:
    sinks = [
        {"kind": "sink", "name": f"o{n}", "input": "i", "format": "noop", **({"trigger": t} if t else {})}
        for n, t in enumerate(triggers)
    ]
    graph = graph_of({"kind": "source", "name": "i", "format": "rate"}, *sinks, mode="streaming")
    assert poll_seconds(graph) == pytest.approx(expected)


class Query:
    """One that runs until it is stopped, and counts how often it was looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.active = True
        self.status = {"isTriggerActive": False}
        self.lastProgress = None

    @property
    def isActive(self) -> bool:
        self.looks += 1
        return self.active

    def stop(self) -> None:
        self.active = False

    def exception(self) -> Any:
        return None


def test_stop_is_heard_between_two_looks(tmp_path: Path) -> None:
    request = tmp_path / "stop"
    query = Query()
    log = EventLog(tmp_path / "events.jsonl")
    watch = _Watch({"o": query}, log, StopSwitch(request), poll=60.0)
    rest = watch._rest

    def asked_while_it_rests() -> None:
        request.touch()
        rest()

    watch._rest = asked_while_it_rests  # type: ignore[method-assign]
    began = time.monotonic()
    watch.run()
    log.close()
    assert time.monotonic() - began < 30
    assert watch.stopping
    assert 2 <= query.looks <= 4


def test_query_that_somebody_else_stopped_fails_its_attempt(tmp_path: Path) -> None:
    """S22: it is not FINISHED, and its vertex is named."""
    query = Query()
    query.stop()
    with contextlib.closing(EventLog(tmp_path / "events.jsonl")) as log:
        watch = _Watch({"o": query}, log, StopSwitch(tmp_path / "stop"), poll=60.0, endless={"o"})
        with pytest.raises(QueryStoppedError) as caught:
            watch.run()
    failure = classify(caught.value, caught.value.firesteel_sink)
    assert (failure.kind, failure.vertex) == (FailureKind.KILLED, "o")
    assert "not by this job" in failure.message


def test_query_that_ends_by_itself_with_its_data_does_not_fail(tmp_path: Path) -> None:
    query = Query()
    query.stop()
    with contextlib.closing(EventLog(tmp_path / "events.jsonl")) as log:
        _Watch({"o": query}, log, StopSwitch(tmp_path / "stop"), poll=60.0).run()


class Broken(Query):
    def __init__(self, words: str) -> None:
        super().__init__()
        self.active = False
        self.error = RuntimeError(words)

    def exception(self) -> Any:
        return self.error


def test_query_whose_batch_was_written_by_an_attempt_that_was_given_up_goes_on(tmp_path: Path) -> None:
    """I27: it is not this attempt that fails."""
    second = Query()
    second.stop()
    asked: list[str] = []

    def again(name: str, error: Exception) -> Query | None:
        asked.append(f"{name}: {error}")
        return second

    with contextlib.closing(EventLog(tmp_path / "events.jsonl")) as log:
        _Watch({"o": Broken("Race")}, log, StopSwitch(tmp_path / "stop"), poll=0.01, again=again).run()
    assert asked == ["o: Race"]
    assert second.looks == 1


def test_query_that_fails_for_any_other_reason_fails_its_attempt(tmp_path: Path) -> None:
    with contextlib.closing(EventLog(tmp_path / "events.jsonl")) as log:
        watch = _Watch({"o": Broken("no such file")}, log, StopSwitch(tmp_path / "stop"), poll=0.01)
        with pytest.raises(RuntimeError, match="no such file"):
            watch.run()
