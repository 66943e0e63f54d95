"""HistoryArchivist: each ended job as one JSON file in a directory that outlives clusters, local or remote.

Other people may be able to write to that directory, so an archive is only data, and a bad one is skipped (S17).
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firesteel.errors import EnvironmentNotReadyError, FiresteelError
from firesteel.fs.files import write_atomically
from firesteel.fs.urls import open_url
from firesteel.types import JobID

from .codec import UnreadableRecordError, decode, encode, take, take_job_id

logger = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9a-f]{32})\.json")
_LARGEST = 256 * 1024 * 1024
"""Larger files are not archives of ours."""
_LOCAL = "file"
_RENAMING = {"hdfs", "webhdfs", "arrow_hdfs", "sftp", "ssh", "smb"}
"""File systems that show files while they are written and rename atomically. Object stores only show whole files."""


class ArchiveError(FiresteelError):
    """The archive could not be reached or the job could not be written to it; a later try may succeed."""


class HistoryArchivist:
    """Archives jobs below a URL. With None as the URL it archives nothing and finds nothing."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._files: _ArchiveFiles | None = None

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

    def _open(self) -> _ArchiveFiles:
        if self._files is None:
            assert self._url is not None
            self._files = open_archive(self._url)
        return self._files

    def _archive(self, job_id: JobID, data: Mapping[str, Any]) -> None:
        files = self._open()
        raw = encode({"job_id": job_id, "data": dict(data)})
        try:
            files.write(f"{job_id}.json", raw)
        except Exception as error:  # each client has errors of its own
            raise ArchiveError(
                f"job {job_id} could not be archived: {error} — check that jobmanager.archive.fs.dir can be written to"
            ) from error

    def _read(self, job_id: JobID) -> dict[str, Any] | None:
        def build(data: Mapping[str, Any]) -> dict[str, Any]:
            take_job_id(data, job_id)
            archived: dict[str, Any] = take(data, "data", dict)
            return archived

        files = self._open()
        name = f"{job_id}.json"
        try:
            raw = files.read(name)
            return None if raw is None else decode(name, raw, build)
        except UnreadableRecordError as error:
            logger.warning("skipping the archive of job %s: %s", job_id, error)
        except Exception as error:
            raise ArchiveError(f"the archive of job {job_id} could not be read: {error}") from error
        return None

    def _list(self) -> Sequence[JobID]:
        files = self._open()
        try:
            names = files.names()
        except Exception as error:
            raise ArchiveError(
                f"the archives could not be listed: {error} — check that jobmanager.archive.fs.dir can be read"
            ) from error
        return sorted(JobID(match[1]) for match in map(_NAME.fullmatch, names) if match)


def open_archive(url: str) -> _ArchiveFiles:
    try:
        fs, root = open_url(url)
    except (ImportError, ValueError) as error:
        raise EnvironmentNotReadyError(
            f"jobmanager.archive.fs.dir cannot be opened: {error} — install the fsspec client for this kind of URL"
        ) from error
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return _ArchiveFiles(fs, root, local=_LOCAL in protocols, renames=bool(protocols & _RENAMING))


class _ArchiveFiles:
    """The files of one directory, accessed through fsspec. Calls block, so they are made in threads."""

    def __init__(self, fs: Any, root: str, *, local: bool = False, renames: bool = False) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self._local = local
        self._renames = renames

    def write(self, name: str, raw: bytes) -> None:
        """Write the file, so that it is never seen half-written where the file system allows it."""
        path = f"{self._root}/{name}"
        if self._local:
            file = Path(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, raw, mode=0o640)
        elif self._renames:
            self._write_and_rename(path, raw)
        else:
            self._fs.pipe_file(path, raw)

    def _write_and_rename(self, path: str, raw: bytes) -> None:
        self._fs.makedirs(self._root, exist_ok=True)
        temporary = f"{self._root}/.{path.rpartition('/')[2]}.{secrets.token_hex(8)}.tmp"
        self._fs.pipe_file(temporary, raw)
        try:
            if self._size(path) is not None:  # a rename does not replace on HDFS
                self._fs.rm_file(path)
            self._fs.mv(temporary, path)
        finally:
            if self._size(temporary) is not None:  # WebHDFS reports success for a refused rename
                self._fs.rm_file(temporary)
        if self._size(path) != len(raw):
            raise OSError(f"{path} was not renamed into place")

    def read(self, name: str) -> bytes | None:
        path = f"{self._root}/{name}"
        size = self._size(path)
        if size is None:
            return None
        if size > _LARGEST:
            raise UnreadableRecordError(name, f"it has {size} bytes, too many for an archive")
        try:
            raw: bytes = self._fs.cat_file(path)
        except FileNotFoundError:
            return None
        return raw

    def names(self) -> list[str]:
        self._fs.invalidate_cache()  # clients remember listings; other clusters write here too
        try:
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [entry["name"].rpartition("/")[2] for entry in found if entry.get("type") == "file"]

    def _size(self, path: str) -> int | None:
        """The size of a regular file, else None: anything else (a pipe, say) is not an archive and could block forever."""
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(path)
        except FileNotFoundError:
            return None
        return int(info["size"]) if info.get("type") == "file" else None
