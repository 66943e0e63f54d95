"""Metrics that the code of a job keeps: few, told not too often, and the last change is told too."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

import firesteel.metrics
from firesteel.attempts.events import EventLog, ProgressTail
from firesteel.attempts.progress import is_event
from firesteel.metrics import jobs
from firesteel.metrics.jobs import MOST_NAMES, JobCounter, JobGauge, JobMetrics, are_values


class Listener:
    def __init__(self) -> None:
        self.told: list[Mapping[str, float]] = []
        self.news = threading.Event()

    def __call__(self, values: Mapping[str, float]) -> None:
        self.told.append(values)
        self.news.set()


def test_a_counter_adds_up_and_a_gauge_is_what_it_was_set_to() -> None:
    listener, metrics = Listener(), JobMetrics(interval=0)
    metrics.begin(listener)
    JobCounter("rows.bad", metrics).add()
    JobCounter("rows.bad", metrics).add(2)
    JobGauge("age", metrics).set(7)
    JobGauge("age", metrics).set(5.5)
    assert listener.told[-1] == {"rows.bad": 3, "age": 5.5}


def test_many_changes_are_told_once_an_interval_and_the_last_of_them_always() -> None:
    listener, metrics = Listener(), JobMetrics(interval=0.2)
    metrics.begin(listener)
    counter = JobCounter("n", metrics)
    for _ in range(1000):
        counter.add()
    assert len(listener.told) == 1
    listener.news.clear()
    assert listener.news.wait(10), "by itself"
    assert listener.told[-1] == {"n": 1000}
    counter.add()
    metrics.end()
    assert listener.told[-1] == {"n": 1001}
    counter.add()
    assert len(listener.told) == 3, "nobody listens any more"


def test_an_attempt_begins_with_nothing_of_the_one_before() -> None:
    listener, metrics = Listener(), JobMetrics(interval=0)
    metrics.begin(lambda _: None)
    JobCounter("secret", metrics).add()
    metrics.end()
    metrics.begin(listener)
    JobGauge("other", metrics).set(1)
    assert listener.told == [{"other": 1}]


def test_outside_a_driver_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "OWN", JobMetrics())
    firesteel.metrics.counter("x").add(3)
    firesteel.metrics.gauge("y").set(1)


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"', "a\n", "a{b}", "ü", "a" * 65])
def test_names_that_cannot_be_one_are_refused(name: str) -> None:
    """S24"""
    with pytest.raises(ValueError, match="is called by a letter"):
        JobCounter(name, JobMetrics())


def test_a_job_has_only_so_many() -> None:
    """S24"""
    metrics = JobMetrics()
    for number in range(MOST_NAMES):
        JobCounter(f"n{number}", metrics)
    JobCounter("n0", metrics)
    with pytest.raises(ValueError, match="at most 50 metrics of its own, and 'more' would be one more"):
        JobGauge("more", metrics)


def test_what_makes_no_sense_is_refused() -> None:
    metrics = JobMetrics()
    counter, gauge = JobCounter("c", metrics), JobGauge("g", metrics)
    with pytest.raises(ValueError, match="only grows"):
        counter.add(-1)
    for value in (float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match="is a number"):
            gauge.set(value)
    with pytest.raises(ValueError, match="is a counter and a gauge"):
        JobGauge("c", metrics)


# -- on their way to the node -----------------------------------------------------------------------------------------


def test_they_travel_in_the_attempts_account_and_through_a_full_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log, metrics = EventLog(path, limit=2000), JobMetrics(interval=0)
    metrics.begin(lambda values: log.emit("metrics", values=dict(values)))
    counter = JobCounter("n", metrics)
    for _ in range(100):  # several times a full log
        counter.add()
    log.emit("phase", phase="running")
    log.close()
    assert ProgressTail(path).look()["metrics"] == {"n": 100}


@pytest.mark.parametrize(
    "values",
    [
        {f"n{i}": 1 for i in range(MOST_NAMES + 1)},
        {'a"} 1\nfiresteel_election_leading': 1},
        {"a": "1"},
        {"a": True},
        {"a": None},
        {"a": 10**400},
        ["a"],
    ],
    ids=lambda v: str(v)[:20],
)
def test_what_a_job_writes_there_itself_is_not_believed(values: object, tmp_path: Path) -> None:
    """S16, S24"""
    assert not are_values(values)
    event = {"t": 1.0, "type": "metrics", "values": values}
    assert not is_event(event)
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps(event) + "\n")
    assert ProgressTail(path).look()["metrics"] == {}
