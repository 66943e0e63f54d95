"""Prometheus' text format, version 0.0.4. Pure.

By hand, as it is shorter than handing every value to a client library that keeps values of its own: names come from the
table, numbers are Python's, and only the values of labels can hold anything that needs care.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from firesteel.metrics.metric import Group, Kind, Metric
from firesteel.metrics.registry import HistogramValue, Labels, Reading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def exposition(readings: Iterable[Reading], *, without: Collection[Group] = ()) -> str:
    """The text of a scrape, `without` these groups."""
    lines: list[str] = []
    for reading in readings:
        if reading.metric.group not in without:
            lines += _family(reading)
    return "\n".join(lines) + "\n"


def _family(reading: Reading) -> Iterator[str]:
    metric = reading.metric
    match metric.kind:
        case Kind.HISTOGRAM:
            yield from _head(metric.exposed, "histogram", metric)
            for labels, histogram in reading.histograms.items():
                yield from _histogram(metric, labels, histogram)
        case Kind.COUNTER | Kind.METER:
            name = f"{metric.exposed}_total"
            yield from _head(name, "counter", metric)
            for labels, value in reading.values.items():
                yield f"{name}{_labels(metric, labels)} {number(value)}"
            if metric.kind is Kind.METER:
                name = f"{metric.exposed}_per_second"
                yield from _head(name, "gauge", metric)
                for labels, value in reading.rates.items():
                    yield f"{name}{_labels(metric, labels)} {number(value)}"
        case Kind.GAUGE:
            yield from _head(metric.exposed, "gauge", metric)
            for labels, value in reading.values.items():
                yield f"{metric.exposed}{_labels(metric, labels)} {number(value)}"


def _head(name: str, kind: str, metric: Metric) -> Iterator[str]:
    text = metric.description.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _histogram(metric: Metric, labels: Labels, histogram: HistogramValue) -> Iterator[str]:
    name, seen = metric.exposed, 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        seen += count
        yield f"{name}_bucket{_labels(metric, labels, le=number(bound))} {seen}"
    yield f"{name}_sum{_labels(metric, labels)} {number(histogram.total)}"
    yield f"{name}_count{_labels(metric, labels)} {histogram.count}"


def _labels(metric: Metric, values: Labels, **more: str) -> str:
    pairs = [f'{k}="{v.translate(_ESCAPES)}"' for k, v in zip(metric.labels, values, strict=True)]
    pairs += [f'{k}="{v}"' for k, v in more.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
