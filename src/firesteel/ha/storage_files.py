"""The files of large values: on a local (or mounted) file system by plain calls, elsewhere through fsspec."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from firesteel.errors import (
    InvalidConfigError,
    Problem,
    StoreBrokenError,
    StoreError,
    StoreFailingError,
    StoreUnavailableError,
)
from firesteel.fs.files import NotAPlainFileError, open_plain, private_dir, sync_dir, write_all
from firesteel.fs.urls import open_url
from firesteel.ha.storage import ValueFiles

_OPTION = "high-availability.storageDir"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR}


def open_files(location: str | None, cluster_id: str, instance: str) -> ValueFiles:
    """The directory of a cluster's large values, which is created with the first of them. Blocks.

    Args:
        location: `high-availability.storageDir`.
        cluster_id: Makes the directory recognisable to people.
        instance: A permanent name of the cluster that is never reused, so that clusters which share a directory and an id,
            by mistake or one after the other, do not collect each other's files.

    Raises:
        InvalidConfigError: There is no location, or fsspec cannot open it.
    """
    if not location:
        fix = "set it to a directory or a URL that every node of the cluster reaches"
        raise InvalidConfigError([Problem("is not set, but large values need it", fix, field=_OPTION)])
    parts = [quote(part, safe="").replace(".", "%2E") for part in (cluster_id, instance)]
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    if "://" not in location:
        return LocalFiles(Path(location, *parts))
    try:
        fs, root = open_url(location)
    except (ImportError, ValueError) as error:
        fix = "install the fsspec client for this kind of URL, or name a directory"
        raise InvalidConfigError([Problem(f"cannot be opened: {error}", fix, field=_OPTION)]) from error
    return FsspecFiles(fs, "/".join([root.rstrip("/"), *parts]))


_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL}
"""Errors for a directory that cannot be synced: we cannot have made an entry in it either."""


class LocalFiles:
    """Names are never used twice, so a file needs no rename: it is not read until its pointer is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._synced = False
        """The directory's parents, up to the root."""

    def write(self, name: str, value: bytes) -> None:
        try:
            fd = self._create(name)
            try:
                self._sync_parents()
                write_all(fd, value)
                os.fsync(fd)
            except OSError:
                # On a full disk, half a file would take the space that the next try needs.
                with contextlib.suppress(OSError):
                    (self._directory / name).unlink(missing_ok=True)
                raise
            finally:
                os.close(fd)
            sync_dir(self._directory)
        except OSError as error:
            raise _error(error, f"the file {self._directory / name} could not be written") from error

    def _create(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(self._directory / name, flags, 0o600)
        except FileNotFoundError:
            private_dir(self._directory)
            return os.open(self._directory / name, flags, 0o600)

    def _sync_parents(self) -> None:
        """Sync the parents once, before the first file counts: an entry is durable once its directory is, and this process or
        another may just have made any of the directories above."""
        if self._synced:
            return
        for above, directory in enumerate(self._directory.parents):
            try:
                sync_dir(directory)
            except OSError as error:
                if above < 2 or error.errno not in _NOT_OURS:
                    raise
                break
        self._synced = True

    def read(self, name: str) -> bytes | None:
        try:
            with open_plain(self._directory / name) as file:
                return file.read()
        except (FileNotFoundError, NotAPlainFileError):
            return None
        except OSError as error:
            raise _error(error, f"the file {self._directory / name} could not be read") from error

    def names(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _error(error, f"the directory {self._directory} could not be listed") from error

    def delete(self, name: str) -> None:
        try:
            (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise _error(error, f"the file {self._directory / name} could not be deleted") from error


class FsspecFiles:
    """Files of a remote file system. Every error may be temporary: clients do not tell network errors from server errors."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root

    def write(self, name: str, value: bytes) -> None:
        try:
            self._fs.makedirs(self._root, exist_ok=True)  # a no-op on object stores
            self._fs.pipe_file(f"{self._root}/{name}", value)
        except Exception as error:
            raise self._error(error, f"{name} could not be written") from error

    def read(self, name: str) -> bytes | None:
        try:
            value: bytes = self._fs.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._error(error, f"{name} could not be read") from error
        return value

    def names(self) -> list[str]:
        try:
            self._fs.invalidate_cache()  # clients remember listings; other nodes write here too
            found = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._error(error, "its files could not be listed") from error
        return [entry["name"].rpartition("/")[2] for entry in found if entry.get("type") == "file"]

    def delete(self, name: str) -> None:
        try:
            self._fs.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._error(error, f"{name} could not be deleted") from error

    def _error(self, error: Exception, what: str) -> StoreError:
        return StoreUnavailableError(f"{_OPTION} at {self._root}: {what}; it may work later ({error!r:.300})")


def _error(error: OSError, what: str) -> StoreError:
    said = f"{what} ({error.strerror or error})"
    if error.errno in _FULL:
        return StoreFailingError(f"{said}; free space on its disk, or check the disk")
    if error.errno in _FORBIDDEN:
        return StoreBrokenError(f"{said}; set {_OPTION} to a directory that this user can write to on every node")
    return StoreUnavailableError(f"{said}; it may work later")
