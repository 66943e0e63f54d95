from __future__ import annotations

from typing import Any

import pytest
from tests.history.archived import GRAPH, details

from firesteel.attempts.committed import Committed, CommittedBatch
from firesteel.errors import InvalidConfigError
from firesteel.notifications.rules import (
    NotificationLimits,
    Occasion,
    Subscribers,
    occasions,
    of_end,
    of_restarts,
    of_stream,
)
from firesteel.status import JobStatus


def failed(**more: Any) -> dict[str, Any]:
    failure = {"kind": "data error", "vertex": "raw", "message": "password=hunter2 is wrong"}
    return {**details(1, status=JobStatus.FAILED), "failure": failure, **more}


def test_end_of_a_job_has_one_id_and_no_secrets() -> None:
    told = of_end(failed(), "prod")
    assert told == of_end(failed(), "prod")
    assert (told["event"], told["cluster"], told["job"]["owner"]) == ("failed", "prod", "alice")
    assert "hunter2" not in str(told)
    assert told["message"].startswith("Job orders has failed: ")


def restarted(times: int, restarts: int | None = None, age: float = 1.0) -> dict[str, Any]:
    chapters = [{"at": 1000.0 - age * n, "status": "RESTARTING"} for n in range(times)]
    return {**details(1), "status": "RESTARTING", "restarts": restarts or times, "story": {"chapters": chapters}}


def test_restart_loop_is_told_with_every_third_restart_within_the_window() -> None:
    limits = NotificationLimits(restarts=3, restart_window=60)
    told = {n: of_restarts(restarted(n), limits, 1000.0, "c") for n in range(1, 8)}
    assert [n for n, event in told.items() if event] == [3, 6]
    assert len({event["id"] for event in told.values() if event}) == 2
    assert of_restarts(restarted(3, age=100), limits, 1000.0, "c") is None


def stream(**sink: Any) -> dict[str, Any]:
    log = Committed(last=7, recent=(CommittedBatch(7, 900.0, 5),)).to_json()
    return {
        **details(1),
        "status": "RUNNING",
        "mode": "streaming",
        "progress": {"sinks": {"out": sink}},
        "checkpoints": {"out": log},
    }


def test_lag_and_missed_batches_are_told_again_when_they_are_twice_as_bad() -> None:
    job = stream(watermark="1970-01-01T00:10:00+00:00")
    limits = NotificationLimits(lag=100, batch=50)
    lag, missed = of_stream(job, limits, 1000.0, "c")
    assert (lag["event"], missed["event"]) == ("lag", "missed-batch")
    assert [e["id"] for e in of_stream(job, limits, 1001.0, "c")] == [lag["id"], missed["id"]]
    later = [e["id"] for e in of_stream(job, limits, 2000.0, "c")]
    assert set(later).isdisjoint({lag["id"], missed["id"]})
    assert of_stream(job, NotificationLimits(), 1000.0, "c") == []
    assert of_stream(job, NotificationLimits(lag=1000, batch=1000), 1000.0, "c") == []
    assert of_stream({**job, "status": "RESTARTING"}, limits, 1000.0, "c") == []


def test_jobs_name_only_targets_that_the_cluster_allows() -> None:
    rules = [{"to": "oncall", "on": ["failed"]}, {"to": "team", "on": ["finished"]}, {"to": "secret", "on": ["failed"]}]
    job = failed(graph={**GRAPH, "settings": {"notify": rules}})
    subscribers = Subscribers({Occasion.FAILED: ("ops",)}, frozenset({"oncall", "team"}))
    assert subscribers.of(Occasion.FAILED, job) == ["ops", "oncall"]
    assert subscribers.of(Occasion.FINISHED, job) == ["team"]
    assert subscribers.of(Occasion.LAG, job) == []


def test_words_that_are_no_occasions_are_named() -> None:
    assert occasions(["failed", "lag"]) == [Occasion.FAILED, Occasion.LAG]
    with pytest.raises(InvalidConfigError, match=r"notifications\.on.*'fialed'|'fialed'"):
        occasions(["fialed"])
