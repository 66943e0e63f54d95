"""Restart strategies: whether a failed job is tried again, and when. Pure: time comes in as a number."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.durations import seconds
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    Restart,
)

HOPELESS = frozenset({FailureKind.INVALID_PIPELINE, FailureKind.IMPORT})
"""Failures that the same job would meet again; they are never retried, whatever the strategy."""

REMEMBERED = 1000
"""Times of failures that are kept, unless a failure rate counts more."""


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """When attempts failed, oldest first. Everything a strategy needs to know; it can be written down and read back."""

    failures: tuple[float, ...] = ()
    earlier: int = 0
    """How many more there were before those; a job that restarts for months must not remember each."""

    @property
    def count(self) -> int:
        return self.earlier + len(self.failures)

    def failed(self, now: float, *, keep: int = REMEMBERED) -> RestartHistory:
        kept = (*self.failures, now)[-keep:]
        return RestartHistory(kept, self.count + 1 - len(kept))


NO_FAILURES = RestartHistory()


def remembered(strategy: Restart) -> int:
    """How many times of failures the strategy may have to count."""
    return max(REMEMBERED, strategy.max_failures + 1) if isinstance(strategy, FailureRateRestart) else REMEMBERED


def restart_delay(
    strategy: Restart, history: RestartHistory, failure: Failure, *, movable: bool = False
) -> float | None:
    """Seconds until the next attempt, or None to give up. `history` holds the failure that just happened.

    A job whose host was lost has not failed itself: one that is `movable` goes on elsewhere at once.
    """
    if movable and failure.kind is FailureKind.WORKER_LOST:
        return 0.0
    count = history.count
    if failure.kind in HOPELESS:
        return None
    match strategy:
        case NoRestart():
            return None
        case FixedDelayRestart():
            return seconds(strategy.delay) if count <= strategy.attempts else None
        case ExponentialDelayRestart():
            if strategy.attempts is not None and count > strategy.attempts:
                return None
            grown = seconds(strategy.initial_delay) * strategy.multiplier ** min(count - 1, 64)
            return min(grown, seconds(strategy.max_delay))
        case FailureRateRestart():
            window = history.failures[-1] - seconds(strategy.interval)
            recent = sum(t > window for t in history.failures)
            return seconds(strategy.delay) if recent <= strategy.max_failures else None
