"""How often one caller may ask: a bucket of tokens each, in a table that cannot grow without bound (S26)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MAX_CALLERS = 10_000


class RateLimiter:
    """`rate` requests per second on average and `burst` at once, for each caller by itself.

    The callers who were not heard of for longest are forgotten when there are too many. To be forgotten is to start anew with
    a full bucket, so callers that cost nothing to invent (addresses) belong in another table than those that do (principals).
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
        """Per caller: tokens left, and when that was true; the one heard of last is last."""

    def take(self, caller: Hashable) -> float:
        """Let the caller pass (0.0), or say in how many seconds it may come again."""
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
