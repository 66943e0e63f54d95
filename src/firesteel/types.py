"""Ids and small frozen values that every package shares.

Ids of things that Firesteel makes on an engine are derived, never drawn: whoever knows the job and the attempt knows the
Spark session and every operation in it, so a new leader can ask the engine about them without having been told.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType

JobID = NewType("JobID", str)
"""32 lower-case hex digits, chosen by the client."""

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_NAMESPACE = uuid.UUID("6f1b6f0e-5d0f-5f3c-9a51-66697265737f")


def new_job_id() -> JobID:
    return JobID(uuid.uuid4().hex)


def is_job_id(text: str) -> bool:
    return _JOB_ID.fullmatch(text) is not None


def parse_job_id(text: str) -> JobID:
    """The JobID that `text` spells, or ValueError."""
    if not is_job_id(text):
        raise ValueError(f"a job id is 32 hex digits, not {text!r}")
    return JobID(text)


Guard = Callable[[], None]
"""Raises FencingError when it is not certain, right now, that the caller leads. Asked as close to a side effect as can be."""


def certain() -> None:
    """The guard of those who answer to nobody: tests, tools."""


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One try at running a job. Attempts count from 1."""

    job_id: JobID
    number: int

    @property
    def session_id(self) -> str:
        """The Spark session of this attempt."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.job_id}/{self.number}"))

    def operation_id(self, vertex: str) -> str:
        """The Spark operation that executes `vertex` (a sink) in this attempt."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.job_id}/{self.number}/{vertex}"))

    def __str__(self) -> str:
        return f"{self.job_id}/{self.number}"
