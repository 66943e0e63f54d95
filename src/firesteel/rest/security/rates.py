"""Rate limits per caller: one token bucket each, in a table of bounded size (S26)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MAX_CALLERS = 10_000


class RateLimiter:
    """Allows each caller `rate` requests per second on average and `burst` at once.

    When there are too many callers, those that were idle for longest are forgotten. A forgotten caller starts anew with a full
    bucket, so callers that are free to invent (addresses) belong in another table than those that are not (principals).
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        *,
        max_callers: int = MAX_CALLERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._max_callers = max_callers
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """Per caller: the tokens left and the time of that count; the most recent caller is last."""

    def take(self, caller: Hashable) -> float:
        """0.0 if the caller may pass, else the seconds until it may try again."""
        now = self._clock()
        left, then = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        allowed = left >= 1.0
        self._buckets[caller] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > self._max_callers:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._rate

    def __len__(self) -> int:
        return len(self._buckets)
