"""Server-sent events: bytes in, events out. No I/O here."""

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
    """Feed it what arrives, cut anywhere; it gives the events that are complete.

    What the stream ends in the middle of is not an event, as the specification of event streams has it.
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
                pass  # a comment, or a field that nobody has defined
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
    """All that the event says."""

    @property
    def status(self) -> JobStatus | None:
        """Of a `snapshot` or `state` event: where the job stands."""
        return status_of(self.data["status"]) if "status" in self.data else None

    @property
    def failure(self) -> Failure | None:
        """Of a `state` event that tells one."""
        return failure_of(self.data.get("failure"))

    @property
    def final(self) -> bool:
        """No event of this job follows."""
        return self.kind == "state" and self.status is not None and self.status.terminal

    @property
    def result(self) -> JobResult | None:
        """Of a final event: how the job ended. None of other events, and where it does not tell the whole of it.

        A savepoint of a stream that was stopped is taken after the end, and so it is not in the event.
        """
        summary = self.data.get("result") if self.final else None
        if not isinstance(summary, Mapping) or (summary.get("stopped") and not summary.get("savepoint")):
            return None
        whole = {"job_id": self.job_id, "status": self.data["status"], "failure": self.data.get("failure")}
        return JobResult.of({**summary, **whole})


def job_event(event: ServerSentEvent) -> JobEvent:
    """Raises ClusterError for an event that no node of ours would send."""
    try:
        data = json.loads(event.data)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ClusterError(f"the event stream holds something that is not an event: {event.data[:200]!r}")
    at = data.get("at")
    job_id = data.get("job_id")
    return JobEvent(event.kind, JobID(job_id) if job_id else None, float(at) if at is not None else 0.0, data)
