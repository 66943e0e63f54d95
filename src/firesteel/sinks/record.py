"""The commit decision of a sink, as a value and as bytes: the names of the staged files, and what they replace.

`commit.json` is written once and never changed. Version and checksum stand beside the body, so that a
torn file can be told from one of a newer Firesteel, and neither is ever acted on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from firesteel.errors import CommitConflictError
from firesteel.types import JobID

VERSION = 1


class Decision(StrEnum):
    COMMIT = "commit"
    ABANDON = "abandon"


@dataclass(frozen=True, slots=True)
class StagedFile:
    staged: str
    """Relative to the staging directory of the attempt."""
    final: str
    """Relative to the target."""
    size: int


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """The files and rows that a commit made visible."""

    attempt: int
    files: int
    bytes: int
    removed: int
    """Files of earlier writers that it replaced."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    decision: Decision
    job_id: JobID
    vertex: str
    attempt: int = 0
    files: tuple[StagedFile, ...] = ()
    remove: tuple[str, ...] = ()
    """Relative to the target."""

    @property
    def committed(self) -> CommitSummary:
        return CommitSummary(self.attempt, len(self.files), sum(f.size for f in self.files), len(self.remove))


def encode(record: CommitRecord) -> bytes:
    body = {
        "decision": record.decision.value,
        "job_id": record.job_id,
        "vertex": record.vertex,
        "attempt": record.attempt,
        "files": [[f.staged, f.final, f.size] for f in record.files],
        "remove": list(record.remove),
    }
    return json.dumps({"version": VERSION, "sha256": _digest(body), "body": body}, ensure_ascii=False).encode()


def decode(data: bytes, where: str) -> CommitRecord:
    """The record that `data` (read from `where`) holds.

    Raises:
        CommitConflictError: it is torn, altered, or written by a newer Firesteel; it must not be acted on.
    """
    try:
        document = json.loads(data)
        version = document["version"]
        if isinstance(version, int) and version > VERSION:
            raise CommitConflictError(
                f"{where} has version {version}, this Firesteel reads up to {VERSION} — "
                "finish the job with the newer Firesteel that wrote it"
            )
        body = document["body"]
        if version != VERSION or document["sha256"] != _digest(body):
            raise ValueError("the checksum does not match")
        return _record(body)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as e:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise CommitConflictError(
            f"{where} is damaged ({e}); nothing was changed — check whether the files that it names are in place, "
            "then delete it and run the job again"
        ) from e


def _record(body: dict[str, Any]) -> CommitRecord:
    files = tuple(StagedFile(_inside(s), _inside(f), int(size)) for s, f, size in body["files"])
    return CommitRecord(
        Decision(body["decision"]),
        JobID(body["job_id"]),
        body["vertex"],
        body["attempt"],
        files,
        tuple(_inside(r) for r in body["remove"]),
    )


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} leads out of the target")
    return path


def encode_done(committed: CommitSummary) -> bytes:
    return json.dumps(asdict(committed)).encode()


def decode_done(data: bytes | None) -> CommitSummary | None:
    """None when there is no marker, or a torn one: then the record still exists, and applying it again does no harm."""
    try:
        return None if data is None else CommitSummary(**json.loads(data))
    except (ValueError, TypeError):
        return None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
