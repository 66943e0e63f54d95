"""Why an attempt failed, as a value that can be stored and shown. `driver.failure` tells which failure an error is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

NO_SAVEPOINT = "NO_SAVEPOINT"
"""The error class of a job that should start from a savepoint where there is none. It has no state to resume from."""


class FailureKind(StrEnum):
    USER_CODE = "user code"
    INVALID_PIPELINE = "invalid pipeline"
    IMPORT = "import error"
    DATA = "data error"
    OUTPUT = "output error"
    """An output cannot be written."""
    EXIT_CODE = "exit code"
    ENGINE_START = "engine start"
    ENGINE_LOST = "engine lost"
    WORKER_LOST = "worker lost"
    """The host on which the attempt ran is gone, or was cut off."""
    OUT_OF_MEMORY = "out of memory"
    KILLED = "killed"
    INTERNAL = "internal error"
    """A defect of Firesteel itself, not of the job."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    message: str
    vertex: str | None = None
    error_class: str = ""
    traceback: str = ""
    """The user's frames only."""
    exit_code: int | None = None
    """Of a program that ended by itself: what a shell would have seen, 1 to 255."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Failure:
        """Fields that a newer version added are left out."""
        known = {f.name for f in fields(Failure)}
        return Failure(**{k: v for k, v in data.items() if k in known} | {"kind": FailureKind(data["kind"])})

    def __str__(self) -> str:
        where = f" in vertex '{self.vertex}'" if self.vertex else ""
        return f"{self.kind.value}{where}: {self.message}"
