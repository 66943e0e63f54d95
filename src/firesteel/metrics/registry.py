"""The values of a node's metrics. One registry for each node; all methods are for its event loop, and cost a microsecond or so.

What happens is counted as it happens. What merely *is*, such as how many jobs wait, nobody keeps up to date: collectors find
it out when a report is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import logging
import math
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from firesteel.metrics.declarations import COLLECTIONS_FAILED, DECLARED, SERIES_REFUSED
from firesteel.metrics.metric import Kind, Metric

logger = logging.getLogger(__name__)

MOST_SERIES = 20_000
"""Series that one metric has at most: what callers and jobs make up must not fill the node's memory (S24)."""
FRESH_SECONDS = 1.0
"""For how long a collection is good: ten that ask at once are told the same."""
METER_SECONDS = 60.0
LONGEST_LABEL = 200

Labels = tuple[str, ...]
Collector = Callable[[], Awaitable[None] | None]


class HistogramValue:
    """How many values were at most as large as each bound, and their sum."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Not cumulative; the last is of what is larger than every bound."""
        self.count = 0
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value

    def quantile(self, share: float) -> float:
        """About the value below which that share of all is; NaN of nothing, the last bound of what is beyond it."""
        if not self.count:
            return math.nan
        wanted, seen, lower = share * self.count, 0, 0.0
        for bound, number in zip(self.bounds, self.counts, strict=False):
            if number and seen + number >= wanted:
                return lower + (bound - lower) * (wanted - seen) / number
            seen, lower = seen + number, bound
        return lower


class MeterValue:
    """A count, and its growth per second, in which what is long ago counts for less and less."""

    __slots__ = ("_at", "_rate", "count")

    def __init__(self, now: float) -> None:
        self.count = 0.0
        self._rate = 0.0
        self._at = now

    def mark(self, by: float, now: float) -> None:
        self._rate = self.rate(now) + by / METER_SECONDS
        self._at = now
        self.count += by

    def rate(self, now: float) -> float:
        return self._rate * math.exp(-max(0.0, now - self._at) / METER_SECONDS)


@dataclass(frozen=True, slots=True)
class Reading:
    """All series of one metric, in a moment."""

    metric: Metric
    values: Mapping[Labels, float]
    """Of counters, gauges and meters."""
    rates: Mapping[Labels, float]
    """Of meters."""
    histograms: Mapping[Labels, HistogramValue]


class MetricRegistry:
    def __init__(self, *, now: Callable[[], float] = time.monotonic, most_series: int = MOST_SERIES) -> None:
        self._now = now
        self._most = most_series
        self._values: dict[Metric, dict[Labels, float]] = {}
        self._meters: dict[Metric, dict[Labels, MeterValue]] = {}
        self._histograms: dict[Metric, dict[Labels, HistogramValue]] = {}
        for metric in DECLARED:
            match metric.kind:
                case Kind.HISTOGRAM:
                    self._histograms[metric] = {}
                case Kind.METER:
                    self._meters[metric] = {labels: MeterValue(now()) for labels in metric.known}
                case Kind.COUNTER:
                    self._values[metric] = dict.fromkeys(metric.known if metric.labels else ((),), 0.0)
                case Kind.GAUGE:
                    self._values[metric] = {}
        self._collectors: list[Collector] = []
        self._collected_at = -math.inf
        self._collecting = asyncio.Lock()

    # -- what happens ---------------------------------------------------------------------------------------------

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Of a counter or a meter."""
        if metric.kind is Kind.METER:
            meter = self._meters[metric].get(labels)
            if meter is None:
                if not self._room(self._meters[metric]):
                    return
                meter = self._meters[metric][labels] = MeterValue(self._now())
            meter.mark(by, self._now())
            return
        series = self._values[metric]
        if labels in series or self._room(series):
            series[labels] = series.get(labels, 0.0) + by

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere."""
        series = self._values[metric]
        if labels in series or self._room(series):
            series[labels] = value

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Of a histogram."""
        series = self._histograms[metric]
        histogram = series.get(labels)
        if histogram is None:
            if not self._room(series):
                return
            histogram = series[labels] = HistogramValue(metric.buckets)
        histogram.observe(value)

    @contextlib.contextmanager
    def timed(self, metric: Metric, *labels: str) -> Iterator[None]:
        """Observe how long the body takes, also when it raises."""
        began = self._now()
        try:
            yield
        finally:
            self.observe(metric, self._now() - began, *labels)

    def replace(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Set all series at once: those that are not named are removed."""
        kept = {labels: value for labels, value in values.items() if math.isfinite(value)}
        if len(kept) > self._most:
            self.count(SERIES_REFUSED, by=len(kept) - self._most)
            kept = dict(list(kept.items())[: self._most])
        self._values[metric] = kept

    def _room(self, series: Mapping[Labels, object]) -> bool:
        if len(series) < self._most:
            return True
        self._values[SERIES_REFUSED][()] += 1
        return False

    # -- what is collected on request -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def collecting(self, collect: Collector, owns: Iterable[Metric]) -> Iterator[None]:
        """Have `collect` called before each report. When the body is over, so are the series that it `owns`."""
        self._collectors.append(collect)
        self._collected_at = -math.inf
        try:
            yield
        finally:
            self._collectors.remove(collect)
            for metric in owns:
                self._values[metric] = {}

    async def collect(self) -> None:
        """Bring gauges up to date. A failing collector does not affect the others."""
        async with self._collecting:
            if self._now() - self._collected_at < FRESH_SECONDS:
                return
            for collector in tuple(self._collectors):
                try:
                    told = collector()
                    if inspect.isawaitable(told):
                        await told
                except Exception as error:
                    self.count(COLLECTIONS_FAILED)
                    logger.warning("something could not be measured: %s: %s", type(error).__name__, error)
            self._collected_at = self._now()

    def readings(self) -> Iterator[Reading]:
        """In the order of the declarations, those without any value left out. The values must not be kept."""
        now = self._now()
        for metric in DECLARED:
            if metric.kind is Kind.HISTOGRAM:
                if histograms := self._histograms[metric]:
                    yield Reading(metric, {}, {}, histograms)
            elif metric.kind is Kind.METER:
                if meters := self._meters[metric]:
                    counts = {labels: m.count for labels, m in meters.items()}
                    yield Reading(metric, counts, {labels: m.rate(now) for labels, m in meters.items()}, {})
            elif values := self._values[metric]:
                yield Reading(metric, values, {}, {})

    def snapshot(self) -> list[Reading]:
        """A copy of the readings, for use in a thread."""
        return [
            Reading(r.metric, dict(r.values), dict(r.rates), {k: copy.deepcopy(h) for k, h in r.histograms.items()})
            for r in self.readings()
        ]

    def value(self, metric: Metric, *labels: str) -> float:
        """Of a counter, gauge or meter; 0 of one that has none."""
        if metric.kind is Kind.METER:
            meter = self._meters[metric].get(labels)
            return meter.count if meter is not None else 0.0
        return self._values[metric].get(labels, 0.0)

    def histogram(self, metric: Metric, *labels: str) -> HistogramValue:
        return self._histograms[metric].get(labels) or HistogramValue(metric.buckets)


def label(text: str) -> str:
    """User text as the value of a label, shortened to a readable length."""
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"
