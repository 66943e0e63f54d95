"""The entry of an archive in the index. Pure; archives may have been written by anyone (S17)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from firesteel.dispatcher.gateway import JobOverview
from firesteel.jobmaster.execution_graph import makes_sense
from firesteel.status import JobStatus
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.history import job_of_archive, unpack
from firesteel.types import JobID

LONGEST_NAME = 1000
_LATEST = 2**53 / 1000
"""Seconds since 1970 that are whole milliseconds in JSON."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """An archived job, and where its archive is."""

    source: int
    """The number of its directory."""
    name: str
    """The name of the file."""
    overview: JobOverview

    @property
    def rank(self) -> tuple[float, str]:
        """The sort key: the last job to end comes first."""
        return self.overview.ended_at or 0.0, self.overview.job_id


def read_details(name: str, raw: bytes) -> dict[str, Any]:
    """The execution graph in an archive. Raises UnreadableRecordError."""
    job_id = job_of_archive(name)
    if job_id is None:
        raise UnreadableRecordError(name, "it does not have the name of an archive")
    found = unpack(name, raw)
    if not makes_sense(found, job_id):
        raise UnreadableRecordError(name, "it is not an archived job")
    return found


def overview_of(name: str, raw: bytes) -> JobOverview:
    """The row of a list. Raises UnreadableRecordError."""
    found = read_details(name, raw)
    times = [found["submitted_at"], found["ended_at"]]
    if not all(math.isfinite(t) and 0 <= t <= _LATEST for t in times) or len(found["name"]) > LONGEST_NAME:
        raise UnreadableRecordError(name, "its times or its name are invalid")
    return JobOverview(
        JobID(found["job_id"]),
        found["name"],
        JobStatus(found["status"]),
        float(found["submitted_at"]),
        float(found["ended_at"]),
        found["attempt"],
        found["restarts"],
        float(found["ended_at"]),
        found["owner"],
        "streaming" if found["mode"] == "streaming" else "batch",
        len(found["vertices"]),
    )


_STATUSES = {status.value: status for status in JobStatus if status.terminal}


def to_row(job: JobOverview) -> tuple[str | bytes | int | float | None, ...]:
    """The columns of the index after the job's id."""
    # SQLite does not accept text that is not valid Unicode.
    name, owner = job.name.encode("utf-8", "surrogatepass"), job.owner.encode("utf-8", "surrogatepass")
    times = (job.submitted_at, job.ended_at)
    return name, job.status.value, *times, job.attempt, job.restarts, owner, job.mode, job.vertices


def from_row(job_id: str, row: tuple[Any, ...]) -> JobOverview:
    """Read what `to_row` made. Raises ValueError or TypeError for anything else: the index may be damaged."""
    name, status, submitted, ended, attempt, restarts, owner, mode, vertices = row
    return JobOverview(
        JobID(job_id),
        name.decode("utf-8", "surrogatepass"),
        _STATUSES[status],
        submitted,
        ended,
        attempt,
        restarts,
        ended,
        intern(owner.decode("utf-8", "surrogatepass")),  # few distinct values, a hundred thousand times
        intern(mode),
        vertices,
    )


def best(entries: Mapping[JobID, ArchiveEntry], other: ArchiveEntry) -> ArchiveEntry:
    """Of two archives under one id, in two directories or because the id was reused, the one that ended last."""
    known = entries.get(other.overview.job_id)
    return other if known is None or other.rank >= known.rank else known
