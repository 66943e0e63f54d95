"""The progress of a job in words, from what its driver reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def progress_words(progress: Mapping[str, Any]) -> str:
    """The progress of a whole job in one line; empty when nothing is known."""
    parts = [str(progress["phase"])] if progress.get("phase") else []
    for name, sink in (progress.get("sinks") or {}).items():
        if words := sink_words(sink):
            parts.append(f"{name}: {words}")
    return "; ".join(parts)


def sink_words(sink: Mapping[str, Any]) -> str:
    """The progress of one sink."""
    if sink.get("batch") is not None:
        rate = sink.get("rows_per_second")
        speed = f", {rate:,.0f} rows/s" if isinstance(rate, int | float) else ""
        return f"batch {sink['batch']}{speed}"
    state = str(sink.get("state") or "")
    if state in ("", "running") and sink.get("tasks"):
        done = f"{sink.get('completed', 0):,} of {sink['tasks']:,} tasks"
        return (
            f"{done}, stage {min(sink.get('stages_done', 0) + 1, sink['stages'])} of {sink['stages']}"
            if sink.get("stages")
            else done
        )
    return state


def rows_of(progress: Mapping[str, Any]) -> dict[str, int]:
    """Rows by vertex, as far as they are known."""
    counted = {**(progress.get("vertices") or {}), **(progress.get("rows") or {})}
    rows = {str(name): n for name, n in counted.items() if isinstance(n, int)}
    for name, sink in (progress.get("sinks") or {}).items():
        written = sink.get("output_rows", sink.get("rows"))
        if isinstance(written, int):
            rows.setdefault(str(name), written)
    return rows
