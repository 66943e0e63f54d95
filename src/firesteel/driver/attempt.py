"""What a driver is told, and what it leaves behind: the files of one attempt.

Everything that the control plane must know after a crash of its own is in this directory, written by the driver itself:
`spec.json` before it starts, `events.jsonl` while it runs, `result.json` once, whole, at its end. A driver that is gone
without a result did not finish; a result is final.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from firesteel.engines.record import EngineRecord
from firesteel.failure import Failure
from firesteel.files import private_dir, read_json, write_json
from firesteel.jobgraph.model import JobGraph
from firesteel.spark.settings import session_settings
from firesteel.types import AttemptId, JobID


class AttemptState(StrEnum):
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    attempt: AttemptId
    graph: JobGraph
    engine: EngineRecord | None
    """None for a classic driver, which has a JVM of its own."""
    gateway: str | None = None
    """Directory of the JVM of a classic driver."""
    checkpoints: str = ""
    """Directory (or URL) under which each streaming sink has its checkpoint."""
    default_parallelism: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of the cluster's configuration; the graph's own go over them."""

    def to_json(self) -> dict[str, Any]:
        return {
            "job_id": self.attempt.job_id,
            "attempt": self.attempt.number,
            "graph": json.loads(self.graph.to_json()),
            "engine": self.engine.as_json() if self.engine else None,
            "gateway": self.gateway,
            "checkpoints": self.checkpoints,
            "default_parallelism": self.default_parallelism,
            "spark": dict(self.spark),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> AttemptSpec:
        return AttemptSpec(
            attempt=AttemptId(JobID(data["job_id"]), data["attempt"]),
            graph=JobGraph.model_validate(data["graph"]),
            engine=EngineRecord.from_json(data["engine"]) if data["engine"] else None,
            gateway=data["gateway"],
            checkpoints=data["checkpoints"],
            default_parallelism=data["default_parallelism"],
            spark=data["spark"],
        )


def settings_of(spec: AttemptSpec) -> dict[str, str]:
    """The settings of the attempt's Spark session."""
    cores = spec.engine.cores if spec.engine else 1
    return session_settings(spec.graph, cores=cores, default_parallelism=spec.default_parallelism, spark=spec.spark)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    state: AttemptState
    failure: Failure | None = None
    ended_at: float = 0.0
    rows: Mapping[str, int] = field(default_factory=dict)
    """Exact rows per vertex, where they were asked for."""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "failure": self.failure.to_json() if self.failure else None,
            "ended_at": self.ended_at,
            "rows": dict(self.rows),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> AttemptResult:
        failure = data.get("failure")
        return AttemptResult(
            AttemptState(data["state"]),
            Failure.from_json(failure) if failure else None,
            data["ended_at"],
            data.get("rows", {}),
        )


@dataclass(frozen=True, slots=True)
class AttemptDirectory:
    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "spec.json"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def stdout(self) -> Path:
        return self.root / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.root / "stderr.log"

    def prepare(self, spec: AttemptSpec) -> None:
        private_dir(self.root)
        write_json(self.root / "spec.json", spec.to_json())

    def read_spec(self) -> AttemptSpec:
        return AttemptSpec.from_json(read_json(self.spec))

    def write_result(self, result: AttemptResult) -> None:
        write_json(self.root / "result.json", result.to_json())

    def read_result(self) -> AttemptResult | None:
        data = read_json(self.root / "result.json")
        return AttemptResult.from_json(data) if data else None

    def write_operators(self, operators: Mapping[str, Any]) -> None:
        write_json(self.root / "operators.json", dict(operators), durable=False)

    def read_operators(self) -> dict[str, Any]:
        return read_json(self.root / "operators.json") or {}


class EventLog:
    """A driver's running account of itself, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def emit(self, kind: str, **values: Any) -> None:
        self._file.write(json.dumps({"t": round(time.time(), 3), "type": kind, **values}) + "\n")


class LineTail:
    """Reads a file as it grows; a half-written last line waits for its rest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new(self) -> str:
        try:
            with self._path.open("rb") as f:
                f.seek(self._position)
                data = f.read(1 << 20)
        except FileNotFoundError:
            return ""
        whole, newline, _ = data.rpartition(b"\n")
        if not newline:
            return ""
        self._position += len(whole) + 1
        return whole.decode(errors="replace")


class EventTail:
    def __init__(self, path: Path) -> None:
        self._lines = LineTail(path)

    def new(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines.new().splitlines()]
