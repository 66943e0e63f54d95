"""Reporters, which get all metrics of a node every few seconds. They are found by name among the installed packages.

A reporter is made by a callable `(ReporterSetup) -> MetricReporter`, registered under the entry point group
`firesteel.metric_reporters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from firesteel.errors import InvalidConfigError, Problem
from firesteel.metrics.registry import Reading

GROUP = "firesteel.metric_reporters"
OPTION = "metrics.reporters"


@dataclass(frozen=True, slots=True)
class ReporterSetup:
    """What a reporter is told of the node that it reports for, and of where to send it."""

    cluster_id: str
    instance: str
    """Host and process of the node."""
    version: str
    otlp_endpoint: str = ""
    otlp_headers: Mapping[str, str] = field(default_factory=dict)


class MetricReporter(Protocol):
    """Called in a thread, one call at a time: it may wait, but holds up only itself."""

    def report(self, readings: Sequence[Reading]) -> None:
        """Send the given metrics, which do not change any more. Its errors are logged, and the next report is sent all the
        same."""
        ...

    def close(self) -> None: ...


MakeReporter = Callable[[ReporterSetup], MetricReporter]


def load_reporters(names: Sequence[str], setup: ReporterSetup) -> dict[str, MetricReporter]:
    """By name. Raises InvalidConfigError for those that are not installed or cannot be made."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)} if names else {}
    missing = [name for name in names if name not in found]
    if missing:
        raise InvalidConfigError(
            [
                Problem(
                    f"no metric reporter '{name}' is installed",
                    f"install the package that registers it under the entry point group {GROUP}, or remove it",
                    field=OPTION,
                )
                for name in missing
            ]
        )
    return {name: _made(found[name], setup) for name in names}


def _made(entry: EntryPoint, setup: ReporterSetup) -> MetricReporter:
    try:
        make: MakeReporter = entry.load()
        return make(setup)
    except Exception as error:
        problem = Problem(
            f"the metric reporter '{entry.name}' cannot be made: {type(error).__name__}: {error}",
            "install what it needs (`otlp` needs firesteel[otel]), or remove it",
            field=OPTION,
        )
        raise InvalidConfigError([problem]) from error
