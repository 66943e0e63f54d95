"""The location of a savepoint. It is derived from the request, so that a repeated request finds the same place."""

from __future__ import annotations

import hashlib

from firesteel.errors import InvalidInputError, InvalidPipelineError, InvalidRequestError, Problem
from firesteel.fs.store import locate
from firesteel.types import JobID


def savepoint_name(job_id: JobID, trigger_id: str) -> str:
    """`savepoint-`, digits of the job id for people, and a digest of job and trigger id, which makes it unique."""
    digest = hashlib.sha256(f"{job_id}/{trigger_id}".encode()).hexdigest()
    return f"savepoint-{job_id[:6]}-{digest[:12]}"


def savepoint_location(target: str, job_id: JobID, trigger_id: str) -> str:
    """The directory of a savepoint below the directory `target`.

    Raises:
        InvalidRequestError: no savepoint can be kept there.
    """
    check_directory(target, "target-directory")
    return f"{plain(target)}/{savepoint_name(job_id, trigger_id)}"


def check_directory(path: str, field: str) -> None:
    """Raise InvalidRequestError for a relative path, or a file system that cannot be reached from here."""
    if "\0" in path:
        raise InvalidRequestError([Problem("a path cannot contain zero bytes", "write a path", field=field)])
    try:
        location = locate(path, "", {})
    except InvalidPipelineError as error:
        raise _refused(path, field) from error
    if location.protocol == "memory":  # of this process: gone with its end (I14)
        raise _refused(path, field)


def _refused(path: str, field: str) -> InvalidInputError:
    if "://" in path:
        message = f"savepoints cannot be kept on '{path.partition('://')[0]}://'"
        return InvalidRequestError([Problem(message, "use a local path, hdfs, s3a, gs or abfss", field=field)])
    return InvalidRequestError([Problem(f"'{path}' is not absolute", "write the full path, or a URL", field=field)])


def plain(path: str) -> str:
    """The usual spelling of a directory: local ones without a scheme, none with a slash at its end."""
    for prefix in ("file://", "file:"):
        if path.startswith(prefix + "/"):
            path = path[len(prefix) :]
    return path.rstrip("/")
