"""A job's earlier attempts: when and where they ran, and how far a stream had come with them.

This is part of the job's record, so every leader knows it, even long after the files of those attempts are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firesteel.attempts import committed
from firesteel.attempts.committed import NONE, Committed
from firesteel.records import from_json, to_json

KEPT_ATTEMPTS = 16
"""Attempts that are remembered, and whose logs are kept, of a job that restarts for months."""
_ADDED_UP = ("rows", "output_rows", "busy_ms")
"""Totals of a streaming sink: each attempt continues where the last one ended. Batch jobs start over, and report
none."""

_READS = "reads"
"""Rows by source, of streaming sinks as well."""


@dataclass(frozen=True, slots=True)
class PastAttempt:
    number: int
    started_at: float
    ended_at: float
    engine_id: str | None
    endpoint: str = ""
    """The address of that engine."""
    worker: str = ""
    """Which had it, and has its logs."""


@dataclass(frozen=True, slots=True)
class Past:
    attempts: tuple[PastAttempt, ...] = ()
    """Oldest first; the last ones only."""
    until: int = 0
    """The last attempt that is a part of this."""
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vertices: Mapping[str, int] = field(default_factory=dict)
    checkpoints: Mapping[str, Committed] = field(default_factory=dict)

    def after(self, attempt: PastAttempt, progress: Mapping[str, Any]) -> Past:
        """This past with one more attempt that has ended, and what its driver had reported; once for each, in order."""
        if attempt.number <= self.until:
            return self
        attempts = (*self.attempts, attempt)[-KEPT_ATTEMPTS:]
        whole = self.with_progress(attempt.number, progress)
        sinks = {name: _totals(told) for name, told in (whole.get("sinks") or {}).items()}
        return replace(
            self,
            attempts=attempts,
            until=attempt.number,
            sinks={name: totals for name, totals in sinks.items() if totals},
            vertices=dict(whole.get("vertices") or {}),
            checkpoints=_trimmed(whole.get("checkpoints") or {}),
        )

    def with_progress(self, number: int, progress: Mapping[str, Any]) -> dict[str, Any]:
        """What the driver of attempt `number` reports, with the attempts before it added."""
        if number <= self.until:
            progress = _without_totals(progress)
        sinks = {name: dict(told) for name, told in (progress.get("sinks") or {}).items()}
        for name, totals in self.sinks.items():
            sink = sinks.setdefault(name, {})
            sink.update({k: sink.get(k, 0) + v for k, v in totals.items() if k in _ADDED_UP})
            if earlier := totals.get(_READS):
                reads = sink.get(_READS) or {}
                sink[_READS] = {n: earlier.get(n, 0) + reads.get(n, 0) for n in {**earlier, **reads}}
        vertices = dict(progress.get("vertices") or {})
        for name, rows in self.vertices.items():
            vertices[name] = vertices.get(name, 0) + rows
        logs = {n: Committed.from_json(log) for n, log in (progress.get("checkpoints") or {}).items()}
        if self.until:
            # What an earlier attempt has committed without being able to report it belongs to this job too.
            logs = {
                n: log if log.restored and log.restored.savepoint else replace(log, before=NONE)
                for n, log in logs.items()
            }
        for name, log in self.checkpoints.items():
            logs[name] = log.followed_by(logs.get(name, Committed()))
        return {
            **progress,
            **({"sinks": sinks} if sinks else {}),
            **({"vertices": vertices} if vertices else {}),
            **({"checkpoints": {n: log.to_json() for n, log in logs.items()}} if logs else {}),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "attempts": [to_json(a) for a in self.attempts],
            "until": self.until,
            "sinks": {name: dict(totals) for name, totals in self.sinks.items()},
            "vertices": dict(self.vertices),
            "checkpoints": {name: log.to_json() for name, log in self.checkpoints.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Past:
        return Past(
            tuple(from_json(a, PastAttempt) for a in data["attempts"]),
            data["until"],
            data["sinks"],
            data["vertices"],
            {name: Committed.from_json(log) for name, log in data["checkpoints"].items()},
        )


NO_PAST = Past()


def _totals(told: Mapping[str, Any]) -> dict[str, Any]:
    totals: dict[str, Any] = {k: v for k in _ADDED_UP if isinstance(v := told.get(k), int)}
    if isinstance(reads := told.get(_READS), Mapping):
        totals[_READS] = dict(reads)
    return totals


def _trimmed(logs: Mapping[str, Any]) -> dict[str, Committed]:
    """Single batches are shown of the sink that is furthest only, and records have to stay small."""
    read = {name: Committed.from_json(log) for name, log in logs.items()}
    furthest = max(read, key=lambda name: read[name].last, default=None)
    return {name: log if name == furthest else replace(log, recent=()) for name, log in read.items()}


def _without_totals(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The progress of an attempt whose totals have been counted already."""
    sinks = {
        name: {k: v for k, v in told.items() if k not in _ADDED_UP and k != _READS}
        for name, told in (progress.get("sinks") or {}).items()
    }
    return {**progress, "sinks": sinks, "vertices": {}, "checkpoints": {}}


def attempts_make_sense(data: Any) -> bool:
    """Whether the attempts in an archive are well-formed: anyone may have written it (S17)."""
    try:
        from_json(data, list[PastAttempt])
    except ValueError:
        return False
    return True


def checkpoints_make_sense(data: Any) -> bool:
    return isinstance(data, dict) and all(committed.makes_sense(log) for log in data.values())
