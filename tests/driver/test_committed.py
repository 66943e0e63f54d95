"""The batches of a stream over restarts and restores: counts, numbers, and what was gone on from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from firesteel.attempts.committed import MOST_KEPT, Committed, CommittedBatch, Origin, makes_sense
from firesteel.attempts.progress import ProgressView, is_event


def attempt(batches: Iterable[int], origin: Origin | None = None) -> Committed:
    log = Committed() if origin is None else Committed().going_on(origin)
    for number in batches:
        log = log.committing(CommittedBatch(number, 100.0 + number, 10))
    return log


def test_first_attempt_counts_what_it_has_committed() -> None:
    log = attempt(range(5))
    assert (log.count, log.last, log.restores, log.restored) == (5, 4, 0, None)
    assert [b.number for b in log.recent] == [0, 1, 2, 3, 4]


def test_an_attempt_after_a_failure_goes_on_counting() -> None:
    log = attempt(range(5)).followed_by(attempt(range(5, 8), Origin(4, 200.0)))
    assert (log.count, log.last, log.restores) == (8, 7, 1)
    assert log.restored == Origin(4, 200.0)
    assert [b.number for b in log.recent] == list(range(8))


def test_a_batch_that_nobody_could_tell_of_is_counted() -> None:
    """The driver died between the commit of batch 5 and its report."""
    log = attempt(range(5)).followed_by(attempt([6], Origin(5, 200.0)))
    assert (log.count, log.last, log.restored) == (7, 6, Origin(5, 200.0))


def test_an_attempt_that_has_committed_nothing_yet_loses_nothing() -> None:
    log = attempt(range(5)).followed_by(attempt([], Origin(4, 200.0)))
    assert (log.count, log.restores, [b.number for b in log.recent]) == (5, 1, [0, 1, 2, 3, 4])


def test_batches_before_the_savepoint_are_not_of_this_job() -> None:
    savepoint = Origin(41, 50.0, "/sp/x", "ab" * 16)
    log = attempt([42, 43], savepoint)
    assert (log.count, log.restores, log.restored) == (2, 1, savepoint)


def test_a_restart_before_the_first_batch_goes_on_from_the_savepoint_again() -> None:
    first = attempt([], Origin(41, 50.0, "/sp/x", "ab" * 16))
    again = first.followed_by(attempt([42], Origin(41, 60.0)))
    assert again.restored == Origin(41, 60.0, "/sp/x", "ab" * 16)
    assert (again.count, again.restores) == (1, 2)
    later = again.followed_by(attempt([], Origin(42, 70.0)))
    assert later.restored == Origin(42, 70.0)


def test_where_only_spark_sees_the_checkpoint_the_first_batch_tells() -> None:
    log = attempt([7, 8])
    assert (log.restored, log.count) == (Origin(6, 107.0), 2)
    assert attempt(range(5)).followed_by(attempt([5])).count == 6


def test_memory_is_bounded_and_counts_are_not() -> None:
    log = attempt(range(500)).followed_by(attempt(range(500, 510), Origin(499, 700.0)))
    assert (log.count, len(log.recent), log.recent[-1].number) == (510, MOST_KEPT, 509)


def test_it_can_be_written_down() -> None:
    for log in (Committed(), attempt([42], Origin(41, 50.0, "/sp/x", "t")), attempt(range(3))):
        data = json.loads(json.dumps(log.to_json()))
        assert makes_sense(data)
        assert Committed.from_json(data) == log


@pytest.mark.parametrize(
    "damage",
    [
        {"before": "x"},
        {"last": True},
        {"last": 2**60},
        {"restores": -5},
        {"recent": [[1, 2]]},
        {"recent": [[1, float("nan"), 3]]},
        {"recent": [[1, 1.0, 3]] * (MOST_KEPT + 1)},
        {"restored": {"batch": 1}},
        {"restored": {"batch": 1, "at": 1, "savepoint": "s" * 10_000, "trigger": ""}},
        {"restored": {"batch": 1, "at": 1, "savepoint": "", "trigger": "", "more": 1}},
        {"restored": 7},
    ],
)
def test_what_a_job_wrote_itself_is_not_believed(damage: dict[str, Any]) -> None:
    good = attempt([42], Origin(41, 50.0)).to_json()
    assert makes_sense(good)
    assert not makes_sense({**good, **damage})
    view = {**ProgressView().to_json(), "checkpoints": {"o": {**good, **damage}}}
    assert not is_event({"t": 1.0, "type": "so-far", "view": view})


def test_events_of_a_driver_make_the_history() -> None:
    view = ProgressView()
    events: list[dict[str, Any]] = [
        {"t": 10.0, "type": "state-store", "provider": "a.b.RocksDBStateStoreProvider", "changelog": True},
        {"t": 11.0, "type": "origin", "vertex": "o", "batch": 3, "savepoint": "/sp/x", "trigger": "ab"},
        {"t": 12.5, "type": "batch", "vertex": "o", "batch": 4, "rows": 2, "duration_ms": 250},
        {"t": 13.5, "type": "batch", "vertex": "o", "batch": 5, "rows": 3, "duration_ms": 350},
    ]
    for event in events:
        assert is_event(event)
        view.fold(event)
    data = view.to_json()
    assert data["checkpoints"]["o"]["recent"] == [[4, 12.5, 250], [5, 13.5, 350]]
    assert Committed.from_json(data["checkpoints"]["o"]).restored == Origin(3, 11.0, "/sp/x", "ab")
    assert data["sinks"]["o"]["busy_ms"] == 600
    assert data["state_store"] == {"provider": "a.b.RocksDBStateStoreProvider", "changelog": True}
    taken_over = ProgressView()
    taken_over.fold({"t": 14.0, "type": "so-far", "view": data})
    assert taken_over.to_json() == {**data, "updated_at": 14.0}


@pytest.mark.parametrize(
    "sink",
    [
        {"rows": "x"},
        {"output_rows": True},
        {"busy_ms": 1.5},
        {"reads": []},
        {"reads": {"s": None}},
        {"batch": "7"},
        {"rows_per_second": {}},
        7,
    ],
)
def test_numbers_that_are_none_are_not_taken_over(sink: Any) -> None:
    """They would be added to those of other attempts by the control plane."""
    view = ProgressView().to_json()
    assert is_event({"t": 1.0, "type": "so-far", "view": {**view, "sinks": {"o": {"rows": 1, "batch": None}}}})
    assert not is_event({"t": 1.0, "type": "so-far", "view": {**view, "sinks": {"o": sink}}})


@pytest.mark.parametrize("edges", [7, {"a": 7}, {"a": {"b": "<script>"}}, {"a": {"b": None}}])
def test_edges_that_are_none_are_no_events(edges: Any) -> None:
    assert not is_event({"t": 1.0, "type": "edges", "edges": edges})
    assert not is_event({"t": 1.0, "type": "so-far", "view": {**ProgressView().to_json(), "edges": edges}})


@pytest.mark.parametrize("batch", [-7, True, "3", 2**60, 1.5])
def test_origins_that_make_no_sense_are_no_events(batch: Any) -> None:
    assert not is_event({"t": 1.0, "type": "origin", "vertex": "o", "batch": batch})
