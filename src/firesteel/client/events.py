"""The parser of server-sent events: bytes in, events out. This module does no I/O."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.client.errors import ClusterError
from firesteel.failure import Failure
from firesteel.status import JobStatus
from firesteel.types import JobID

from .model import JobResult, failure_of, status_of


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event as it is on the wire."""

    kind: str
    data: str
    id: str = ""


class EventParser:
    """A parser that is fed with bytes, cut anywhere, and returns the events that are complete.

    An event that the stream breaks off in is dropped, as the specification of event streams says.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._began = False
        self._kind = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that `data` completes."""
        self._rest += data
        if not self._began:
            if len(self._rest) < len(codecs.BOM_UTF8) and codecs.BOM_UTF8.startswith(self._rest):
                return []
            self._rest = self._rest.removeprefix(codecs.BOM_UTF8)
            self._began = True
        lines = self._rest.replace(b"\r\n", b"\n")
        # A CR at the very end may be the first half of a CRLF: its line waits for the byte after it.
        held = b"\r" if lines.endswith(b"\r") else b""
        *complete, last = lines[: len(lines) - len(held)].replace(b"\r", b"\n").split(b"\n")
        self._rest = last + held
        events = (self._line(line.decode("utf-8", "replace")) for line in complete)
        return [e for e in events if e is not None]

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case _:
                pass  # a comment, or an undefined field
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        return ServerSentEvent(kind, "\n".join(data), self._id) if data else None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job."""

    kind: str
    """`snapshot`, `state`, `progress`, `log`, or `lost`: some events before this one did not arrive."""
    job_id: JobID | None
    """None for `lost` on the stream of all jobs."""
    at: float
    """Seconds since 1970, by the clock of the cluster."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The whole content of the event."""

    @property
    def status(self) -> JobStatus | None:
        """The state of the job, in a `snapshot` or `state` event."""
        return status_of(self.data["status"]) if "status" in self.data else None

    @property
    def failure(self) -> Failure | None:
        """The failure that a `state` event carries, if it does."""
        return failure_of(self.data.get("failure"))

    @property
    def final(self) -> bool:
        """Whether this is the last event of its job."""
        return self.kind == "state" and self.status is not None and self.status.terminal

    @property
    def result(self) -> JobResult | None:
        """How the job ended, if this is a final event that tells all of it.

        The savepoint of a stream that was stopped is taken after its end, so it is not in the event.
        """
        summary = self.data.get("result") if self.final else None
        if not isinstance(summary, Mapping) or (summary.get("stopped") and not summary.get("savepoint")):
            return None
        whole = {"job_id": self.job_id, "status": self.data["status"], "failure": self.data.get("failure")}
        return JobResult.of({**summary, **whole})


def job_event(event: ServerSentEvent) -> JobEvent:
    """Read an event. Raises ClusterError for one that no Firesteel node would send."""
    try:
        data = json.loads(event.data)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ClusterError(f"invalid event in the event stream: {event.data[:200]!r}")
    at = data.get("at")
    job_id = data.get("job_id")
    return JobEvent(event.kind, JobID(job_id) if job_id else None, float(at) if at is not None else 0.0, data)
