"""What each Spark data format can do, in one table for validation, the compiler and the sinks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class BatchCommit(Enum):
    """How a batch write in this format is made exactly-once."""

    STAGED_FILES = "written to a staging directory, moved into place by a recorded commit"
    TRANSACTION_ID = "the table format refuses a transaction id that it has seen"
    NO_EFFECT = "writes nothing that could be duplicated"
    NONE = "cannot be; the sink must say delivery: at-least-once"


@dataclass(frozen=True, slots=True)
class Format:
    batch_read: bool = True
    stream_read: bool = False
    batch_write: bool = True
    stream_write: bool = False
    needs_path: bool = False
    needs_schema: bool = False
    """Whether reading it as a stream needs a declared schema."""
    takes_place: bool = True
    """Whether its rows are at a path or in a table, not somewhere that options describe."""
    upsert: bool = False
    commit: BatchCommit = BatchCommit.NONE


_FILE = Format(stream_read=True, stream_write=True, needs_path=True, needs_schema=True, commit=BatchCommit.STAGED_FILES)

FORMATS: dict[str, Format] = {
    "csv": _FILE,
    "json": _FILE,
    "parquet": _FILE,
    "orc": _FILE,
    "text": Format(stream_read=True, stream_write=True, needs_path=True, commit=BatchCommit.STAGED_FILES),
    "xml": Format(stream_read=True, needs_path=True, needs_schema=True, commit=BatchCommit.STAGED_FILES),
    "avro": _FILE,
    "binaryFile": Format(stream_read=True, batch_write=False, needs_path=True),
    "delta": Format(stream_read=True, stream_write=True, upsert=True, commit=BatchCommit.TRANSACTION_ID),
    "iceberg": Format(stream_read=True, stream_write=True, upsert=True),
    "jdbc": Format(takes_place=False),
    "kafka": Format(stream_read=True, stream_write=True, takes_place=False),
    "rate": Format(batch_read=False, stream_read=True, batch_write=False, takes_place=False),
    "rate-micro-batch": Format(batch_read=False, stream_read=True, batch_write=False, takes_place=False),
    "socket": Format(batch_read=False, stream_read=True, batch_write=False, takes_place=False),
    "noop": Format(batch_read=False, stream_write=True, takes_place=False, commit=BatchCommit.NO_EFFECT),
    "console": Format(batch_read=False, stream_write=True, takes_place=False, commit=BatchCommit.NO_EFFECT),
    "memory": Format(batch_read=False, batch_write=False, stream_write=True, takes_place=False),
}

UNKNOWN = Format(stream_read=True, stream_write=True)
"""A Python DataSource or a third-party format: nothing is ruled out, nothing is promised."""


def lookup(name: str) -> Format:
    return FORMATS.get(name, UNKNOWN)
