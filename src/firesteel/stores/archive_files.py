"""The files of an archive directory, local or remote, through fsspec. All calls block, for use in threads."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, NamedTuple

from firesteel.errors import EnvironmentNotReadyError
from firesteel.fs.files import write_atomically
from firesteel.fs.urls import open_url

from .codec import UnreadableRecordError

LARGEST_FILE = 64 * 1024 * 1024
"""Larger files are not archives of ours."""
_LOCAL = "file"
_RENAMING = {"hdfs", "webhdfs", "arrow_hdfs", "sftp", "ssh", "smb"}
"""File systems that show files while they are written and rename atomically. Object stores only show whole files."""
_STAMPS = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "mtime",
    "modificationTime",
    "LastModified",
    "last_modified",
    "created",
)
"""Properties of a file that change with its content, the most reliable first."""


class FoundFile(NamedTuple):
    name: str
    stamp: str
    """Changes when the file changes, as far as its file system tells."""


def open_archive(url: str, option: str = "jobmanager.archive.fs.dir") -> ArchiveFiles:
    """Raises EnvironmentNotReadyError when no client for this kind of URL is installed; `option` is where it was set."""
    try:
        fs, root = open_url(url)
    except (ImportError, ValueError) as error:
        raise EnvironmentNotReadyError(
            f"{option} cannot be opened: {error} — install the fsspec client for this kind of URL"
        ) from error
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return ArchiveFiles(fs, root, local=_LOCAL in protocols, renames=bool(protocols & _RENAMING))


class ArchiveFiles:
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
        """None when there is no such file; raises UnreadableRecordError for one that is too large to be an archive."""
        path = f"{self._root}/{name}"
        size = self._size(path)
        if size is None:
            return None
        if size > LARGEST_FILE:
            raise UnreadableRecordError(name, f"it has {size} bytes, too many for an archive")
        try:
            raw: bytes = self._fs.cat_file(path, 0, size)  # not more, even if it grows meanwhile
        except FileNotFoundError:
            return None
        return raw

    def remove(self, name: str) -> None:
        """Remove a file; a missing one is not an error."""
        try:
            self._fs.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            pass

    def list(self) -> list[FoundFile]:
        """Plain files, in no order. A missing directory has none."""
        self._fs.invalidate_cache()  # clients remember listings; other clusters write here too
        try:
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return [
            FoundFile(str(entry["name"]).rpartition("/")[2], _stamp(entry))
            for entry in found
            if entry.get("type") == "file"
        ]

    def _size(self, path: str) -> int | None:
        """The size of a regular file, else None: anything else (a pipe, say) is not an archive and could block forever."""
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(path)
        except FileNotFoundError:
            return None
        return int(info["size"]) if info.get("type") == "file" else None


def _stamp(entry: dict[str, Any]) -> str:
    told = next((entry[key] for key in _STAMPS if entry.get(key) is not None), "")
    return f"{entry.get('size')} {told}"
