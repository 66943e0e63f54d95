"""Values are kept as they were counted, in as many series as there may be, and whoever fails to measure harms nobody."""

from __future__ import annotations

import asyncio
import math

import pytest

from firesteel.metrics.declarations import (
    COLLECTIONS_FAILED,
    DECLARED,
    ENDED_JOBS,
    JOBS,
    RESTARTS,
    SERIES_REFUSED,
    SLOTS,
    STORE_SECONDS,
    SUBMISSIONS,
    WAITING,
)
from firesteel.metrics.metric import Kind
from firesteel.metrics.registry import METER_SECONDS, MetricRegistry, label


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_counter_starts_at_0_and_grows() -> None:
    registry = MetricRegistry()
    assert registry.value(RESTARTS) == 0
    assert {reading.metric for reading in registry.readings()} >= {RESTARTS, ENDED_JOBS}
    registry.count(RESTARTS)
    registry.count(RESTARTS, by=2)
    registry.count(ENDED_JOBS, "FAILED")
    assert registry.value(RESTARTS) == 3
    assert (registry.value(ENDED_JOBS, "FAILED"), registry.value(ENDED_JOBS, "FINISHED")) == (1, 0)


def test_a_meter_tells_how_fast_it_grew_and_forgets() -> None:
    clock = Clock()
    registry = MetricRegistry(now=clock)
    for _ in range(600):  # ten a second, for long enough
        clock.now += 1
        registry.count(SUBMISSIONS, "accepted", by=10)

    def rate() -> float:
        (reading,) = (r for r in registry.readings() if r.metric is SUBMISSIONS)
        return reading.rates[("accepted",)]

    assert registry.value(SUBMISSIONS, "accepted") == 6000
    assert rate() == pytest.approx(10, rel=0.02)
    clock.now += METER_SECONDS * 5
    assert rate() < 0.1


def test_a_histogram_counts_into_the_bucket_whose_bound_a_value_reaches() -> None:
    registry = MetricRegistry()
    for seconds in (0.0005, 0.0006, 0.3, 99.0):
        registry.observe(STORE_SECONDS, seconds, "put")
    found = registry.histogram(STORE_SECONDS, "put")
    assert (found.count, found.counts[0], found.counts[1], found.counts[-1]) == (4, 1, 1, 1)
    assert found.total == pytest.approx(99.3011)
    assert found.quantile(0.5) == pytest.approx(0.001)
    assert found.quantile(1.0) == STORE_SECONDS.buckets[-1], "more is not known"
    assert math.isnan(registry.histogram(STORE_SECONDS, "get").quantile(0.5))


def test_more_series_than_there_may_be_are_counted_and_not_kept() -> None:
    """S24"""
    registry = MetricRegistry(most_series=3)
    for number in range(10):
        registry.observe(STORE_SECONDS, 1.0, str(number))
    registry.replace(JOBS, {(str(n),): n for n in range(5)})
    held = {r.metric: r for r in registry.readings()}
    assert len(held[STORE_SECONDS].histograms) == len(held[JOBS].values) == 3
    assert registry.value(SERIES_REFUSED) == 7 + 2
    registry.observe(STORE_SECONDS, 1.0, "0")
    assert registry.histogram(STORE_SECONDS, "0").count == 2, "those that are there go on"


def test_no_value_is_kept_that_is_no_number() -> None:
    registry = MetricRegistry()
    registry.replace(JOBS, {("a",): math.nan, ("b",): math.inf, ("c",): 1.0})
    assert registry.value(JOBS, "c") == 1
    assert [r.values for r in registry.readings() if r.metric is JOBS] == [{("c",): 1.0}]


def test_what_a_collector_owns_ends_with_it() -> None:
    async def main() -> None:
        registry = MetricRegistry()
        with registry.collecting(lambda: registry.set(SLOTS, 4), [SLOTS]):
            await registry.collect()
            assert registry.value(SLOTS) == 4
        assert SLOTS not in {r.metric for r in registry.readings()}
        await registry.collect()
        assert SLOTS not in {r.metric for r in registry.readings()}

    asyncio.run(main())


def test_a_collector_that_fails_is_counted_and_keeps_nobody_else_from_it() -> None:
    async def main() -> None:
        registry = MetricRegistry()

        async def broken() -> None:
            raise OSError("the disk is gone")

        async def well() -> None:
            registry.set(WAITING, 2)

        with registry.collecting(broken, []), registry.collecting(well, [WAITING]):
            await registry.collect()
            assert (registry.value(WAITING), registry.value(COLLECTIONS_FAILED)) == (2, 1)

    asyncio.run(main())


def test_many_who_ask_at_once_cost_one_collection() -> None:
    async def main() -> None:
        clock, asked = Clock(), 0
        registry = MetricRegistry(now=clock)

        async def collect() -> None:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)

        with registry.collecting(collect, []):
            await asyncio.gather(*(registry.collect() for _ in range(50)))
            assert asked == 1
            clock.now += 2
            await registry.collect()
            assert asked == 2

    asyncio.run(main())


def test_a_snapshot_does_not_change_any_more() -> None:
    registry = MetricRegistry()
    registry.observe(STORE_SECONDS, 1.0, "put")
    registry.count(RESTARTS)
    before = {r.metric: r for r in registry.snapshot()}
    registry.observe(STORE_SECONDS, 1.0, "put")
    registry.count(RESTARTS)
    assert before[STORE_SECONDS].histograms[("put",)].count == 1
    assert before[RESTARTS].values[()] == 1


def test_text_that_somebody_chose_is_no_longer_than_one_can_read() -> None:
    assert label("clicks") == "clicks"
    assert len(label("x" * 5000)) == 200


def test_what_is_declared_can_be_kept_and_named() -> None:
    assert len({m.exposed for m in DECLARED}) == len(DECLARED)
    for metric in DECLARED:
        assert metric.exposed.replace("_", "").isalnum()
        assert metric.exposed.islower()
        assert metric.description.endswith("."), metric.name
        assert bool(metric.buckets) is (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.unit in ("", "seconds", "bytes")
        assert all(len(labels) == len(metric.labels) for labels in metric.known)
        assert "job" not in metric.labels, "Prometheus has a label of that name already"
