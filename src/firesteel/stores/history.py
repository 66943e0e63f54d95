"""HistoryArchivist: each ended job as one compressed JSON file in a directory that outlives clusters, local or remote.

    <directory>/<job id>.json.gz

Other people may be able to write to that directory, so an archive is only data, and a bad one is skipped (S17).
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.types import JobID

from .archive_files import ArchiveFiles, open_archive
from .codec import UnreadableRecordError, decode, encode, take, take_job_id

logger = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9a-f]{32})\.json(?:\.gz)?")
_SUFFIXES = (".json.gz", ".json")
"""The second one is of Firesteel 0.1, which did not compress."""
_LARGEST = 256 * 1024 * 1024
"""Bytes of JSON: what has more is not an archive but a bomb (S24)."""


class ArchiveError(FiresteelError):
    """The archive could not be reached or the job could not be written to it; a later try may succeed."""


def job_of_archive(name: str) -> JobID | None:
    """The job whose archive a file of that name would be."""
    match = _NAME.fullmatch(name)
    return JobID(match[1]) if match else None


def pack(job_id: JobID, data: Mapping[str, Any]) -> bytes:
    return gzip.compress(encode({"job_id": job_id, "data": dict(data)}), 6, mtime=0)


def unpack(name: str, raw: bytes) -> dict[str, Any]:
    """What was archived in the file `name`.

    Raises UnreadableRecordError: damaged, too large, or of another job than its name says.
    """

    def build(data: Mapping[str, Any]) -> dict[str, Any]:
        take_job_id(data, name.partition(".")[0])
        archived: dict[str, Any] = take(data, "data", dict)
        return archived

    return decode(name, _expanded(name, raw) if name.endswith(".gz") else raw, build)


def _expanded(name: str, raw: bytes) -> bytes:
    expanding = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = expanding.decompress(raw, _LARGEST)
    except zlib.error as error:
        raise UnreadableRecordError(name, f"it is not gzip ({error})") from None
    if expanding.eof and not expanding.unused_data:
        return plain
    if len(plain) >= _LARGEST:
        raise UnreadableRecordError(name, f"it expands to {_LARGEST} bytes or more, too many for an archive")
    raise UnreadableRecordError(name, "it ends in the middle" if not expanding.eof else "something follows its end")


class HistoryArchivist:
    """Archives jobs below a URL. With None as the URL it archives nothing and finds nothing."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._files: ArchiveFiles | None = None

    async def archive(self, job_id: JobID, data: Mapping[str, Any]) -> None:
        """Write the job's archive, replacing an existing one. `data` must not change afterwards.

        Raises:
            ArchiveError: it was not written.
            EnvironmentNotReadyError: no client for this kind of URL is installed.
        """
        if self._url is not None:
            await asyncio.to_thread(self._archive, job_id, data)

    async def read_archive(self, job_id: JobID) -> dict[str, Any] | None:
        """The archived data of the job; None when there is no archive or it is unreadable."""
        return None if self._url is None else await asyncio.to_thread(self._read, job_id)

    async def list(self) -> Sequence[JobID]:
        """The jobs that have an archive, according to the file names; an archive may still turn out to be unreadable."""
        return [] if self._url is None else await asyncio.to_thread(self._list)

    @property
    def archives(self) -> bool:
        return self._url is not None

    def _open(self) -> ArchiveFiles:
        if self._files is None:
            assert self._url is not None
            self._files = open_archive(self._url)
        return self._files

    def _archive(self, job_id: JobID, data: Mapping[str, Any]) -> None:
        files = self._open()
        raw = pack(job_id, data)
        try:
            files.write(f"{job_id}.json.gz", raw)
        except Exception as error:  # each client has errors of its own
            raise ArchiveError(
                f"job {job_id} could not be archived: {error} — check that jobmanager.archive.fs.dir can be written to"
            ) from error

    def _read(self, job_id: JobID) -> dict[str, Any] | None:
        files = self._open()
        for name in (f"{job_id}{suffix}" for suffix in _SUFFIXES):
            try:
                raw = files.read(name)
                if raw is not None:
                    return unpack(name, raw)
            except UnreadableRecordError as error:
                logger.warning("skipping the archive of job %s: %s", job_id, error)
            except Exception as error:
                raise ArchiveError(f"the archive of job {job_id} could not be read: {error}") from error
        return None

    def _list(self) -> Sequence[JobID]:
        files = self._open()
        try:
            names = [found.name for found in files.list()]
        except Exception as error:
            raise ArchiveError(
                f"the archives could not be listed: {error} — check that jobmanager.archive.fs.dir can be read"
            ) from error
        return sorted({job_id for job_id in map(job_of_archive, names) if job_id is not None})
