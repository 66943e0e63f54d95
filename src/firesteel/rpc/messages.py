"""The messages between a leader and its workers, as JSON, one to a line.

Unknown fields are left out when read, so that a leader and a worker of neighbouring versions understand each other.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from firesteel.types import AttemptId, JobID

Message = TypeVar("Message", bound=msgspec.Struct)

CONTENT_TYPE = "application/x-ndjson"
NOT_ENDED = msgspec.Raw(b"null")
"""In the place of the result of an attempt that runs."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a worker says of itself when it registers."""

    worker: str
    name: str
    incarnation: str
    """Drawn by each process that acts for the worker."""
    host: str
    """See firesteel.hosts."""
    cores: int
    memory: str
    max_engines: int
    labels: dict[str, str] = {}
    sandbox: str = ""
    policy: str = "stop"
    """What it does when it hears from no leader for `isolation_timeout`: `stop` or `run-on`."""
    isolation_timeout: float = 60.0
    embedded: bool = False
    version: str = ""


class AttemptHeld(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that a worker has: one that runs, or one with its result, which is kept until it is forgotten."""

    job: str
    number: int
    result: msgspec.Raw = NOT_ENDED

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(JobID(self.job), self.number)


class Registration(msgspec.Struct, frozen=True):
    """Everything that a worker has."""

    info: WorkerInfo
    obeyed: int
    """The highest epoch that the worker has obeyed."""
    attempts: list[AttemptHeld] = []
    """Those that have not been forgotten: they run, or have a result that the leader may not know yet."""
    files: dict[str, list[int]] = {}
    """All attempts of which there are files, by job."""
    engines: list[msgspec.Raw] = []
    """The records of its engines."""


class Registered(msgspec.Struct, frozen=True):
    epoch: int
    heartbeat: float
    """Seconds between two reports."""


class WireFailure(msgspec.Struct, frozen=True):
    """An error that passed over the wire: the name of a class of `firesteel.errors`, or OSError, and its message."""

    kind: str
    message: str


class Command(msgspec.Struct, frozen=True):
    """From the leader of `epoch` to one incarnation of a worker. It may be repeated, by this leader or the next (I28)."""

    id: int
    epoch: int
    incarnation: str
    method: str
    args: msgspec.Raw


class CommandAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    value: msgspec.Raw = msgspec.Raw(b"null")
    failure: WireFailure | None = None


class WorkerReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """From a worker to the leader of `epoch`: at every heartbeat, and at once when there is something to tell."""

    incarnation: str
    epoch: int
    answers: list[CommandAnswer] = []
    ended: list[AttemptHeld] = []
    progress: dict[str, msgspec.Raw] = {}
    """By attempt, of those whose progress has changed."""


class Heard(msgspec.Struct, frozen=True):
    """The leader's answer to a report. Only one that leads for certain gives it."""

    epoch: int


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def decode(data: bytes | memoryview, kind: type[Message]) -> Message:
    """Raises ValueError, which names the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a message of a worker: {error}") from error


def has_ended(result: msgspec.Raw) -> bool:
    """Whether what is told of an attempt is its result."""
    return bytes(result) != b"null"


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def plain(value: msgspec.Raw) -> Any:
    return msgspec.json.decode(value)
