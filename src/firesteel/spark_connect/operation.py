"""Types for operations on an engine, free of PySpark so that every module can use them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What an engine says of an operation."""

    UNSPECIFIED = "UNSPECIFIED"
    UNKNOWN = "UNKNOWN"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class StageProgress:
    stage_id: int
    tasks: int
    completed: int
    bytes_read: int
    done: bool


@dataclass(frozen=True, slots=True)
class OperationProgress:
    stages: tuple[StageProgress, ...]
    running_tasks: int


@dataclass(slots=True)
class OperationResult:
    operation_id: str
    last_response_id: str = ""
    observed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Exact row counts by vertex, where asked for."""


_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")


def error_class(text: str) -> str:
    """Spark's error class in a message; the class, not the gRPC code, tells what happened."""
    found = _CLASS.search(text)
    return found[1] if found else ""
