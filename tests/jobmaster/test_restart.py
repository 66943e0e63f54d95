from __future__ import annotations

import pytest

from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    Restart,
)
from firesteel.jobmaster.restart import RestartHistory, restart_delay

USER = Failure(FailureKind.USER_CODE, "x")


def delays(strategy: Restart, *times: float) -> list[float | None]:
    history = RestartHistory()
    found = []
    for t in times:
        history = history.failed(t)
        found.append(restart_delay(strategy, history, USER))
    return found


def test_none_never_restarts() -> None:
    assert delays(NoRestart(), 0) == [None]


def test_fixed_delay_restarts_so_many_times() -> None:
    assert delays(FixedDelayRestart(attempts=2, delay="3 s"), 0, 1, 2) == [3, 3, None]


def test_exponential_delay_grows_to_its_limit() -> None:
    strategy = ExponentialDelayRestart(initial_delay="1 s", max_delay="5 s", multiplier=2)
    assert delays(strategy, 0, 1, 2, 3, 4) == [1, 2, 4, 5, 5]
    assert delays(ExponentialDelayRestart(attempts=1), 0, 1) == [1, None]


def test_failure_rate_gives_up_when_failures_come_too_fast() -> None:
    strategy = FailureRateRestart(max_failures=2, interval="10 s", delay="1 s")
    assert delays(strategy, 0, 5, 20, 25, 29) == [1, 1, 1, 1, None]


@pytest.mark.parametrize("kind", [FailureKind.INVALID_PIPELINE, FailureKind.IMPORT])
def test_what_would_fail_again_is_not_tried_again(kind: FailureKind) -> None:
    history = RestartHistory((0.0,))
    assert restart_delay(FixedDelayRestart(attempts=9), history, Failure(kind, "x")) is None
