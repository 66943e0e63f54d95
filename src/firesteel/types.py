"""Ids and small frozen values that every package shares.

Ids of things that Firesteel makes on an engine are derived, never random. The attempt and its secret, which is stored before
anything is started, determine the Spark session and every operation in it, so a new leader can ask the engine about them
without further information.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

JobID = NewType("JobID", str)
"""32 lower-case hex digits, chosen by the client."""

_JOB_ID = re.compile(r"[0-9a-f]{32}")
ANONYMOUS_USER = "firesteel"


class RequiredSandbox(StrEnum):
    """What has to keep the owners of a worker apart."""

    ANY = "any"
    LANDLOCK = "landlock"
    USER = "user"


LABEL_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
"""The name or the value of a label of a worker."""
LABEL_RULE = (
    "up to 63 letters (a-z, A-Z), digits, dots, dashes, slashes and underscores, with a letter or digit at both ends"
)


def new_job_id() -> JobID:
    return JobID(uuid.uuid4().hex)


def is_job_id(text: str) -> bool:
    return _JOB_ID.fullmatch(text) is not None


def parse_job_id(text: str) -> JobID:
    """The JobID that `text` spells, or ValueError."""
    if not is_job_id(text):
        raise ValueError(f"a job id is 32 hex digits, not {text!r}")
    return JobID(text)


def vertex_id(name: str) -> str:
    """The id that Flink's contract wants of a vertex: the same in every job and every run with a vertex of this name."""
    return hashlib.sha256(f"vertex/{name}".encode()).hexdigest()[:32]


def hides_nothing(text: str) -> bool:
    """Whether `text` is one line that looks as it is: no controls, no marks that turn it round, no spaces of other kinds."""
    return (text.isascii() and text.isprintable()) or all(_is_plain(c) for c in text)


def _is_plain(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ" or character == " "


Guard = Callable[[], None]
"""Raises FencingError when it is not certain, right now, that the caller leads. Asked as close to a side effect as can be."""


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One try at running a job. Attempts count from 1."""

    job_id: JobID
    number: int

    def __str__(self) -> str:
        return f"{self.job_id}/{self.number}"


@dataclass(frozen=True, slots=True)
class SparkIds:
    """What an attempt is called on its engine. Who does not know the secret of the attempt cannot tell (S41)."""

    attempt: AttemptId
    owner: str
    secret: str = field(repr=False)

    @property
    def user_id(self) -> str:
        """Sessions of one owner are to Spark those of one user."""
        return f"owner-{hashlib.sha256(self.owner.encode()).hexdigest()[:16]}" if self.owner else ANONYMOUS_USER

    @property
    def session_id(self) -> str:
        """The Spark session of this attempt."""
        return self._derived("session")

    def further_session_id(self, number: int) -> str:
        """The session that a program gets after it has stopped its own, for the second and all after it."""
        return self._derived(f"session/{number}")

    def operation_id(self, vertex: str) -> str:
        """The Spark operation that executes `vertex` (a sink) in this attempt."""
        return self._derived(f"operation/{vertex}")

    def _derived(self, what: str) -> str:
        digest = hmac.digest(self.secret.encode(), f"{self.attempt}/{what}".encode(), "sha256")
        return str(uuid.UUID(bytes=digest[:16], version=4))
