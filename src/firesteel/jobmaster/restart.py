"""Restart strategies: whether a failed job is tried again, and when. Pure: time comes in as a number."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    Restart,
    seconds,
)

HOPELESS = frozenset({FailureKind.INVALID_PIPELINE, FailureKind.IMPORT})
"""Failures that the same job would meet again, whatever the strategy says."""


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """When attempts failed, oldest first. Everything a strategy needs to know; it can be written down and read back."""

    failures: tuple[float, ...] = ()

    def failed(self, now: float) -> RestartHistory:
        return RestartHistory((*self.failures, now))


def restart_delay(strategy: Restart, history: RestartHistory, failure: Failure) -> float | None:
    """Seconds until the next attempt, or None to give up. `history` holds the failure that just happened."""
    count = len(history.failures)
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
