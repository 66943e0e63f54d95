"""The jobs of one data directory: a directory each, with the graph, where it stands, and its attempts."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.errors import JobNotFoundError
from firesteel.failure import Failure, FailureKind
from firesteel.fs.files import private_dir, read_json, write_json
from firesteel.jobgraph.model import JobGraph
from firesteel.processes import ProcessIdentity
from firesteel.status import JobStatus
from firesteel.types import JobID


@dataclass(frozen=True, slots=True)
class JobRecord:
    job_id: JobID
    name: str
    status: JobStatus
    created_at: float
    ended_at: float | None = None
    attempt: int = 0
    restarts: int = 0
    supervisor: ProcessIdentity | None = None
    driver: ProcessIdentity | None = None
    engine_id: str | None = None
    failure: Failure | None = None

    @property
    def had_no_engine(self) -> bool:
        return self.failure is not None and self.failure.kind is FailureKind.ENGINE_START

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "status": self.status.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> JobRecord:
        def process(key: str) -> ProcessIdentity | None:
            return ProcessIdentity(**data[key]) if data.get(key) else None

        return JobRecord(
            **{
                **data,
                "status": JobStatus(data["status"]),
                "supervisor": process("supervisor"),
                "driver": process("driver"),
                "failure": Failure.from_json(data["failure"]) if data.get("failure") else None,
            }
        )


class JobDirectory:
    """One job. Only its supervisor writes here; anybody may read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job_id = JobID(root.name)

    def create(self, graph: JobGraph, launch: Mapping[str, Any]) -> JobRecord:
        """Write the job down, durably, before anything runs."""
        private_dir(self.root)
        write_json(self.root / "graph.json", json.loads(graph.to_json()))
        write_json(self.root / "launch.json", dict(launch))
        record = JobRecord(self.job_id, graph.name, JobStatus.CREATED, time.time())
        self.save(record)
        return record

    def save(self, record: JobRecord) -> None:
        write_json(self.root / "job.json", record.to_json())

    def load(self) -> JobRecord:
        """Where the job stands. A job that nobody looks after any more is SUSPENDED, whatever was written last."""
        data = read_json(self.root / "job.json")
        if data is None:
            raise JobNotFoundError(f"no job {self.job_id} here; `firesteel list -a` shows those there are")
        record = JobRecord.from_json(data)
        if not record.status.terminal and record.supervisor is not None and not record.supervisor.alive:
            return dataclasses.replace(record, status=JobStatus.SUSPENDED)
        return record

    def graph(self) -> JobGraph:
        return JobGraph.model_validate(read_json(self.root / "graph.json"))

    def launch(self) -> dict[str, Any]:
        found: dict[str, Any] = read_json(self.root / "launch.json")
        return found

    def attempt(self, number: int) -> AttemptDirectory:
        return AttemptDirectory(self.root / "attempts" / str(number))


class JobsDirectory:
    def __init__(self, data_dir: Path) -> None:
        self.root = private_dir(data_dir / "jobs")

    def job(self, job_id: str) -> JobDirectory:
        return JobDirectory(self.root / job_id)

    def find(self, prefix: str) -> JobDirectory:
        """The job whose id begins with `prefix`, as people type it."""
        found = [d for d in self.root.iterdir() if d.name.startswith(prefix)] if prefix else []
        if len(found) != 1:
            what = f"{len(found)} jobs begin with '{prefix}'; give more digits" if found else f"no job {prefix} here"
            raise JobNotFoundError(f"{what}; `firesteel list -a` shows those there are")
        return JobDirectory(found[0])

    def all(self) -> list[JobRecord]:
        records = []
        for directory in self.root.iterdir():
            try:
                records.append(JobDirectory(directory).load())
            except (JobNotFoundError, ValueError, TypeError, KeyError):
                continue  # a job that is just being written, or one of a version we do not know
        return sorted(records, key=lambda r: r.created_at)
