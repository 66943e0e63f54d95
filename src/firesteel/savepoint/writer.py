"""A note beside Spark's log that says which job writes to the output of a file sink, so that no other starts to.

Two queries on one output lose rows silently: each skips batches whose number the other has written. That is likely
when a job starts from a savepoint in the output of another, which may still run. It is known for drivers on one host
only; a note that cannot be written or read counts as none.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.processes import ProcessIdentity
from firesteel.savepoint.files import Place
from firesteel.savepoint.sinklog import LOG
from firesteel.types import JobID

NOTE = ".firesteel-writer.json"


def live_writer(path: str, job_id: JobID) -> JobID | None:
    """The job other than `job_id` whose driver is running and writes to `path`."""
    with contextlib.suppress(OSError, FiresteelError, ValueError, KeyError, TypeError, AttributeError):
        raw = _log(path).read(NOTE)
        note = json.loads(raw) if raw else {}
        other = bool(note) and note["job_id"] != job_id and note["host"] == socket.gethostname()
        if other and ProcessIdentity(note["pid"], note["started"]).alive:
            return JobID(note["job_id"])
    return None


def claim(path: str, job_id: JobID) -> None:
    """Record that this process writes to `path`, where Spark has begun to write."""
    note = _mine(job_id)
    with contextlib.suppress(OSError, FiresteelError):
        log = _log(path)
        # A path of the engine's own disk is not for us to make here.
        if not log.local or log.store.kind(log.location.root) is not None:
            log.write(NOTE, json.dumps(note).encode())


def release(path: str, job_id: JobID) -> None:
    """Take the note back, if it is this process's: another attempt of the job may have taken over."""
    with contextlib.suppress(OSError, FiresteelError, ValueError, KeyError, TypeError):
        log = _log(path)
        raw = log.read(NOTE)
        if raw and json.loads(raw) == _mine(job_id):
            log.remove(NOTE)


def _mine(job_id: JobID) -> dict[str, Any]:
    me = ProcessIdentity.of(os.getpid())
    return {"job_id": job_id, "host": socket.gethostname(), "pid": me and me.pid, "started": me and me.started}


def _log(path: str) -> Place:
    return Place.at(path, "the output").below(LOG)
