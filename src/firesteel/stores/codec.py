"""The format of records in the store: one JSON object with a version, read with suspicion.

A stored record may be damaged, or written by a newer Firesteel. Reading it returns the record or raises one error that
says which record and why; callers never see a KeyError caused by foreign bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from firesteel.errors import StoreError
from firesteel.ha.protocols import Stored
from firesteel.types import JobID, parse_job_id

T = TypeVar("T")

VERSION = 1
_SHOWN = 200


class UnreadableRecordError(StoreError):
    """A record is damaged or newer than this Firesteel. It was left unchanged; the store itself works."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"the record {path} cannot be read: {why}")


def encode(data: Mapping[str, Any]) -> bytes:
    """The stored form of a record. Text that is not valid Unicode (odd file names in messages) survives as escapes."""
    return json.dumps({"v": VERSION, **data}, separators=(",", ":")).encode("ascii")


def decode(path: str, raw: bytes, build: Callable[[Mapping[str, Any]], T]) -> T:
    """Return the record that `build` makes of the JSON object in `raw`.

    `build` has to ignore unknown fields: a newer Firesteel that only adds fields keeps the version number.

    Raises:
        UnreadableRecordError: `raw` is not JSON, has another version, or `build` found a field missing or wrong.
    """
    try:
        data = json.loads(raw)
    except RecursionError:
        raise UnreadableRecordError(path, "it is nested too deeply") from None
    except ValueError as error:  # also covers bytes that are not UTF-8
        raise UnreadableRecordError(path, f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise UnreadableRecordError(path, f"it is not a JSON object but a {type(data).__name__}")
    version = data.get("v")
    if type(version) is not int or version < 1:
        raise UnreadableRecordError(path, f"it has no valid version ({version!r:.{_SHOWN}})")
    if version > VERSION:
        why = (
            f"it has version {version} and this Firesteel reads up to {VERSION}; run the newer Firesteel that wrote it"
        )
        raise UnreadableRecordError(path, why)
    try:
        return build(data)
    except KeyError as error:
        raise UnreadableRecordError(path, f"the field {error} is missing") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableRecordError(path, f"{error!s:.{_SHOWN}}" or type(error).__name__) from error


async def decode_all(
    stored: Mapping[str, Stored], read: Callable[[str, bytes], T]
) -> tuple[dict[JobID, T], dict[JobID, str]]:
    """The records at `<prefix>/<job id>` by job, and the reasons why others are unreadable; a bad record stops nothing.

    The work is done in a thread: there may be tens of thousands of records.
    """
    return await asyncio.to_thread(_decode_all, stored, read)


def _decode_all(
    stored: Mapping[str, Stored], read: Callable[[str, bytes], T]
) -> tuple[dict[JobID, T], dict[JobID, str]]:
    good: dict[JobID, T] = {}
    bad: dict[JobID, str] = {}
    for path, value in stored.items():
        name = path.rpartition("/")[2]
        try:
            good[parse_job_id(name)] = read(path, value.value)
        except UnreadableRecordError as error:
            bad[JobID(name)] = error.why
        except ValueError as error:
            bad[JobID(name)] = str(error)
    return good, bad


def take(data: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """The field `key`, which must be present and a `kind`."""
    value = data[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"the field '{key}' is {value!r:.{_SHOWN}} where {kind.__name__} is expected")
    return value


def take_job_id(data: Mapping[str, Any], path: str | None = None) -> JobID:
    """The job that a record says it belongs to. With `path`, a record on another job's path counts as damaged."""
    job_id = parse_job_id(take(data, "job_id", str))
    if path is not None and job_id not in path.split("/"):
        raise ValueError(f"it is the record of job {job_id}")
    return job_id
