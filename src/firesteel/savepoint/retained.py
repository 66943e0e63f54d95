"""Retained checkpoints: another job can start from the checkpoint of a stream that has ended.

A note in the job's checkpoint directory says that the job has ended for good, and what it was. The leader writes it
after the result is durable, so a directory without it may belong to a query that runs. The first job that starts from
the checkpoint makes a savepoint of it in place, by links where it can, before it changes anything. So the checkpoint
stays as it is, whatever happens to that job, and several jobs that start from it all start from the same state.
"""

from __future__ import annotations

import json
from typing import Any

from firesteel.errors import SavepointError
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import COPYING, DONE, MANIFEST, MARK, Manifest, SavepointRequest
from firesteel.savepoint.naming import plain
from firesteel.savepoint.take import find, take_ended
from firesteel.types import JobID, is_job_id

NOTE = "_checkpoint.json"
TRIGGER = "retained-checkpoint"
"""Takes the place of a trigger id in the manifest of such a savepoint."""
_LONGEST_CHAIN = 100


def retain(location: str, request: SavepointRequest) -> None:
    """Note that the job of `request`, whose checkpoints are in `location`, has ended for good. May be repeated.

    Raises:
        SavepointError: the directory cannot be read from here.
        OSError: it cannot be written to.
    """
    Place.at(location, "the checkpoint").write(NOTE, request.to_bytes())


def note_at(location: str) -> tuple[str, SavepointRequest | None]:
    """Where the state of the job at `location` is: there, with the note of an ended stream, or at a savepoint.

    Changes nothing.

    Raises:
        SavepointError: a note cannot be read.
    """
    for _ in range(_LONGEST_CHAIN):
        place = Place.at(location, "the savepoint")
        raw = None if place.read(MANIFEST) is not None else place.read(NOTE)
        if raw is None:
            return location, None
        request = SavepointRequest.from_bytes(raw, location, NOTE)
        before = _restored_from(request)
        if before is None or _was_restored(request):
            return location, request
        location = before
    raise SavepointError(f"too many jobs that never started ({_LONGEST_CHAIN}) come before the savepoint {location}")


def open_position(location: str) -> tuple[str, Manifest]:
    """The savepoint at `location`, or that of the ended stream whose checkpoint is there; and where it is.

    For a job that ended before it had started from its savepoint, it is that savepoint.

    Raises:
        SavepointError: there is none.
    """
    try:
        location, request = note_at(location)
        if request is not None:
            return location, take_ended(location, request)
        _check_ended(location, Place.at(location, "the savepoint"))
        return location, find(location)
    except OSError as error:
        raise SavepointError(f"the savepoint {location} cannot be read: {error}") from error


def _check_ended(location: str, place: Place) -> None:
    name = location.rpartition("/")[2]
    if is_job_id(name) and place.read(MANIFEST) is None and place.names():
        raise SavepointError(
            f"{location} is the checkpoint of job {name}, which has not ended, or was never cleaned up: stop or cancel "
            f"the job first, or start from one of its savepoints"
        )


def _restored_from(request: SavepointRequest) -> str | None:
    restore = (request.graph.get("settings") or {}).get("restore") or {}
    path = restore.get("path")
    return plain(str(path)).removesuffix(f"/{MANIFEST}") if path else None


def _was_restored(request: SavepointRequest) -> bool:
    """Whether the job has started from its savepoint: no query starts before all of its checkpoints are made."""
    places = [Place.of_checkpoint(s.checkpoint, name) for name, s in request.sinks.items()]
    return all(mark_of(p, request.job_id) == DONE for p in places)


def mark_of(checkpoint: Place, job_id: JobID) -> str | None:
    """The progress of making a job's checkpoint from a savepoint; None when it has not begun."""
    raw = checkpoint.read(MARK)
    try:
        mark: dict[str, Any] = json.loads(raw) if raw else {}
    except ValueError:
        return COPYING  # torn: its writer did not finish
    return mark.get("state") if mark.get("job_id") == job_id else None
