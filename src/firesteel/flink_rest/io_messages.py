"""Input and output of a vertex, in the form of the contract."""

from __future__ import annotations

from firesteel.jobmaster.rows import Io
from firesteel.rest.answers import Json
from firesteel.rest.states import NAN


def io_message(io: Io) -> Json:
    return {
        "read-bytes": io.read_bytes or 0,
        "read-bytes-complete": _complete(io, io.read_bytes),
        "write-bytes": io.write_bytes or 0,
        "write-bytes-complete": _complete(io, io.write_bytes),
        "read-records": io.read_records or 0,
        "read-records-complete": _complete(io, io.read_records),
        "write-records": io.write_records or 0,
        "write-records-complete": _complete(io, io.write_records),
        "accumulated-backpressured-time": 0,
        "accumulated-idle-time": io.idle_ms,
        "accumulated-busy-time": NAN if io.busy_ms is None else float(io.busy_ms),
    }


def _complete(io: Io, value: int | None) -> bool:
    """Whether the number is final."""
    return value is not None or not io.pending
