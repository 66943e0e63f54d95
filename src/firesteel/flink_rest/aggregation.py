"""Metrics in the form of the contract: names, values, and aggregates over several holders of a metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query

from firesteel.rest.answers import Json


def skew_of(values: Sequence[float]) -> float:
    """The unevenness in percent: the mean distance from the mean, relative to the mean; at most 100."""
    mean = math.fsum(values) / len(values)
    if mean == 0:
        return 0.0
    return min(100.0, 100 * math.fsum(abs(v - mean) for v in values) / len(values) / abs(mean))


MODES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: math.fsum(values) / len(values),
    "sum": math.fsum,
    "skew": skew_of,
}
"""In the order of the answer."""

_MODE = "|".join((*MODES, *(m.upper() for m in MODES)))
MetricsParam = Annotated[
    str | None, Query(alias="get", max_length=20_000, description="Names of metrics, separated by commas")
]
AggregationParam = Annotated[
    str | None,
    Query(alias="agg", pattern=rf"^({_MODE})(,({_MODE}))*$", description="Aggregations, separated by commas"),
]


def words(text: str | None) -> list[str]:
    """The items of a comma-separated query value."""
    return [w for w in (text or "").split(",") if w]


def metrics_of(values: Mapping[str, object], get: str | None) -> list[Json]:
    """Without `get` the names, otherwise the values as text; unknown names are left out."""
    wanted = words(get)
    if not wanted:
        return [{"id": name} for name in values]
    return [{"id": name, "value": str(values[name])} for name in dict.fromkeys(wanted) if name in values]


def aggregates_of(holders: Iterable[Mapping[str, float]], get: str | None, agg: str | None) -> list[dict[str, Any]]:
    """The same over several holders: without `get` the names, otherwise the aggregations in `agg`, or all."""
    values: dict[str, list[float]] = {}
    for holder in holders:
        for name, value in holder.items():
            values.setdefault(name, []).append(float(value))
    wanted = words(get)
    if not wanted:
        return [{"id": name} for name in values]
    asked = {word.lower() for word in words(agg)} or set(MODES)
    return [
        {"id": name, **{mode: _shown(compute(values[name])) for mode, compute in MODES.items() if mode in asked}}
        for name in dict.fromkeys(wanted)
        if name in values
    ]


def _shown(value: float) -> float | str:
    """JSON has no NaN; the contract writes it as a text."""
    return value if math.isfinite(value) else "NaN"
