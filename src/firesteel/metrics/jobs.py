"""Metrics that the code of a job keeps itself, in its driver.

    from firesteel.metrics import counter, gauge

    counter("orders.rejected").add(3)
    gauge("model.age").set(12.5)

They are shown with the job's other metrics, as `firesteel_user_value{name="orders.rejected"}`. Code that runs in Spark's Python
workers, such as a UDF, is not in the driver: what it counts stays there. Outside a driver nothing is reported.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

MOST_NAMES = 50
"""Of one job: it cannot flood the node (S24)."""
INTERVAL_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,63}")
_LARGEST = 2.0**53

Tell = Callable[[Mapping[str, float]], None]


class JobMetrics:
    """The metrics of a program. May be used by several threads."""

    def __init__(self, *, interval: float = INTERVAL_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._now = now
        self._lock = threading.RLock()
        self._values: dict[str, float] = {}
        self._kinds: dict[str, type[object]] = {}
        self._tell: Tell | None = None
        self._told_at = -math.inf
        self._timer: threading.Timer | None = None

    def begin(self, tell: Tell) -> None:
        """An attempt begins, with nothing of an earlier one: tell of changes from now on, at most once an interval."""
        with self._lock:
            self._values.clear()
            self._kinds.clear()
            self._told_at = -math.inf
            self._tell = tell

    def end(self) -> None:
        """Tell the last of it, and nothing afterwards."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self.flush()
            self._tell = None

    def declare(self, name: str, kind: type[object]) -> None:
        """Raises ValueError for a name that cannot be one, and for one too many."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"a metric is called by a letter and up to 63 letters, digits, dots and underscores, not {name!r}"
            )
        with self._lock:
            if self._kinds.get(name, kind) is not kind:
                raise ValueError(f"the metric '{name}' is a counter and a gauge; give one of them another name")
            if name not in self._kinds and len(self._kinds) >= MOST_NAMES:
                raise ValueError(f"a job has at most {MOST_NAMES} metrics of its own, and '{name}' would be one more")
            self._kinds[name] = kind

    def change(self, name: str, value: float, *, add: bool) -> None:
        with self._lock:
            changed = self._values.get(name, 0.0) + value if add else float(value)
            if not math.isfinite(changed) or abs(changed) > _LARGEST:
                raise ValueError(f"the metric '{name}' is a number, and not {changed}")
            self._values[name] = changed
            wait = self._told_at + self._interval - self._now()
            if self._tell is None or self._timer is not None:
                return
            if wait <= 0:
                self.flush()
            else:  # the last change is told too, however long nothing comes after it
                self._timer = threading.Timer(wait, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Tell what was not told yet."""
        with self._lock:
            self._timer = None
            self._told_at = self._now()
            if self._tell is not None and self._values:
                self._tell(dict(self._values))


class JobCounter:
    def __init__(self, name: str, metrics: JobMetrics) -> None:
        metrics.declare(name, JobCounter)
        self.name = name
        self._metrics = metrics

    def add(self, count: float = 1) -> None:
        """A counter only grows: raises ValueError for less than 0."""
        if count < 0:
            raise ValueError(f"the counter '{self.name}' only grows; use a gauge for what goes down")
        self._metrics.change(self.name, count, add=True)


class JobGauge:
    def __init__(self, name: str, metrics: JobMetrics) -> None:
        metrics.declare(name, JobGauge)
        self.name = name
        self._metrics = metrics

    def set(self, value: float) -> None:
        self._metrics.change(self.name, value, add=False)


OWN = JobMetrics()
"""Of this process."""


def counter(name: str) -> JobCounter:
    return JobCounter(name, OWN)


def gauge(name: str) -> JobGauge:
    return JobGauge(name, OWN)


def are_values(data: Any) -> bool:
    """Whether it can be what `JobMetrics` tells: code of a job can write anything into its account (S16)."""
    return (
        isinstance(data, dict)
        and len(data) <= MOST_NAMES
        and all(isinstance(name, str) and _NAME.fullmatch(name) for name in data)
        and all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= _LARGEST for v in data.values())
    )
