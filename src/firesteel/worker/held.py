"""What a worker has of jobs, read from its disk: the attempts that have not been forgotten, and files of jobs."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptState
from firesteel.attempts.log_files import FILES, OPERATORS, RESULT, open_regular
from firesteel.failure import Failure, FailureKind
from firesteel.hosts import Whereabouts, this_host
from firesteel.layout import attempt_directory, attempts_of
from firesteel.rpc.messages import NOT_ENDED, AttemptHeld, raw
from firesteel.types import AttemptId, JobID, is_job_id

MOST_READ = 1 << 20
"""Bytes of files that are sent at a time."""
ISOLATED = "isolated"
"""File in the directory of an attempt that was ended because its worker heard from no leader."""


class HeldAttempts(Protocol):
    """Blocks; to be asked in a thread."""

    def attempts(self) -> list[AttemptHeld]:
        """Those that run, and those with a result that a leader may not know yet."""
        ...

    def of_job(self, job_id: JobID) -> list[AttemptHeld]: ...

    def files(self) -> dict[str, list[int]]:
        """All attempts of which there are files, by job."""
        ...

    def read(self, attempt: AttemptId, have: Mapping[str, int]) -> list[dict[str, Any]]:
        """What is in files of an attempt beyond what the reader has, up to a limit: file, offset and data."""
        ...

    def isolate(self, attempt: AttemptId) -> None:
        """Note that an attempt is about to be ended because its worker is alone, and not because anybody asked for it."""
        ...

    def as_told(self, attempt: AttemptId, result: AttemptResult) -> AttemptResult:
        """The result for the leader, which has to know why an attempt was ended that it did not end."""
        ...

    def remove(self, job_id: JobID) -> None: ...


class HeldOnDisk:
    """Implements HeldAttempts. `jobs`: the directory of all jobs, which hosts may share: each has its own attempts there."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs
        self._whereabouts = Whereabouts(this_host())

    def attempts(self) -> list[AttemptHeld]:
        return [held for job in self._jobs_here() for held in self.of_job(JobID(job))]

    def of_job(self, job_id: JobID) -> list[AttemptHeld]:
        return list(self._of_job(job_id))

    def _of_job(self, job_id: JobID) -> Iterator[AttemptHeld]:
        for number in self._numbers(job_id):
            attempt = AttemptId(job_id, number)
            directory = self._directory(attempt)
            if not directory.spec.exists() or self._whereabouts.elsewhere(directory.host(), seen=False) is not None:
                continue
            result = directory.read_result()
            told = NOT_ENDED if result is None else raw(self.as_told(attempt, result).to_json())
            yield AttemptHeld(job_id, number, told)

    def files(self) -> dict[str, list[int]]:
        return {job: self._numbers(JobID(job)) for job in self._jobs_here()}

    def _jobs_here(self) -> list[str]:
        return sorted(d.name for d in self._jobs.iterdir() if is_job_id(d.name)) if self._jobs.is_dir() else []

    def _numbers(self, job_id: JobID) -> list[int]:
        root = attempts_of(self._jobs, job_id)
        return sorted(int(d.name) for d in root.iterdir() if d.name.isdecimal()) if root.is_dir() else []

    def read(self, attempt: AttemptId, have: Mapping[str, int]) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        left = MOST_READ
        allowed = {*FILES.values(), OPERATORS, RESULT}
        for name, size in have.items():
            if name not in allowed or left <= 0:
                continue
            try:
                with open_regular(self._directory(attempt).root / name) as file:
                    end = file.seek(0, os.SEEK_END)
                    if end == size:
                        continue
                    offset = size if end > size >= 0 else 0  # it is new, or was begun anew
                    file.seek(offset)
                    data = file.read(min(left, MOST_READ))
            except FileNotFoundError:
                continue
            left -= len(data)
            parts.append({"file": name, "offset": offset, "data": base64.b64encode(data).decode()})
        return parts

    def isolate(self, attempt: AttemptId) -> None:
        directory = self._directory(attempt)
        if not directory.has_result:
            (directory.root / ISOLATED).touch(mode=0o600)

    def as_told(self, attempt: AttemptId, result: AttemptResult) -> AttemptResult:
        isolated = self._directory(attempt).root / ISOLATED
        if result.state is AttemptState.FINISHED or not isolated.exists():
            return result
        why = "its worker ended it, as no leader had answered the worker for worker.isolation-timeout"
        return replace(result, state=AttemptState.FAILED, failure=Failure(FailureKind.WORKER_LOST, why))

    def remove(self, job_id: JobID) -> None:
        if is_job_id(job_id):
            shutil.rmtree(self._jobs / job_id, ignore_errors=True)

    def _directory(self, attempt: AttemptId) -> AttemptDirectory:
        return AttemptDirectory(attempt_directory(self._jobs, attempt))
