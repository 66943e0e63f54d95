"""Durations as people write them, in options and in pipelines alike: `10 s`, `500ms`, `2 min`."""

from __future__ import annotations

import re

DURATION_PATTERN = r"^\s*([0-9]+(\.[0-9]+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)\s*$"
"""Also of the schema of pipelines, so in words that JSON Schema knows."""
_DURATION = re.compile(DURATION_PATTERN)
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_UNIT_SHOWN = {"m": "min"}


def seconds(text: str) -> float:
    """How long `10 s`, `500ms` or `2 min` is; ValueError for anything else, a bare number too."""
    found = _DURATION.match(text)
    if not found:
        raise ValueError(text)
    number, _, unit = found.groups()
    if unit.startswith("mil") or unit == "ms":
        return float(number) / 1000  # exact where multiplying by 0.001 is not
    return float(number) * _UNIT_SECONDS[unit[0]]


def show_seconds(duration: float) -> str:
    """The shortest exact spelling: `90 s`, `2 min`, `500 ms`."""
    if duration == 0:
        return "0 s"
    for unit, size in _UNIT_SECONDS.items():
        if duration % size == 0:
            return f"{int(duration / size)} {_UNIT_SHOWN.get(unit, unit)}"
    milliseconds = round(duration * 1000, 6)
    return f"{int(milliseconds) if milliseconds.is_integer() else milliseconds} ms"
