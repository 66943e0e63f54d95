"""Directories of checkpoints and savepoints, wherever they are: listing them, and copying files with checksums."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from firesteel.errors import InvalidPipelineError, SavepointError
from firesteel.fs import generations
from firesteel.fs.store import FileLocation, FileStore, locate, open_store
from firesteel.fs.urls import file_system
from firesteel.savepoint.manifest import SavedFile

_CHUNK = 1 << 20
_WORKERS = 8
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, slots=True)
class Place:
    """A directory on some file system. Names are paths from here."""

    location: FileLocation
    store: FileStore

    @staticmethod
    def at(path: str, what: str) -> Place:
        """Open the directory `path`. Raises SavepointError when it cannot be read from here."""
        try:
            location = locate(path, "", {})
        except InvalidPipelineError as error:
            why = "only Spark can read that file system" if "://" in path else "it is not absolute"
            raise SavepointError(f"{what} '{path}' cannot be used: {why}") from error
        return Place(location, open_store(location))

    @staticmethod
    def of_checkpoint(path: str, sink: str) -> Place:
        """Open the checkpoint of a sink, wherever it is now. Raises SavepointError when it cannot be read from here."""
        return Place.at(generations.current(path), f"the checkpoint of sink '{sink}'")

    def below(self, name: str) -> Place:
        root = self.path(name)
        return Place(FileLocation(self.location.protocol, root, self.location.options), self.store)

    def path(self, name: str) -> str:
        return f"{self.location.root}/{name}" if name else self.location.root

    def same(self, other: Place) -> bool:
        return (self.location.protocol, self.location.root) == (other.location.protocol, other.location.root)

    @property
    def local(self) -> bool:
        return self.location.protocol == "file"

    def read(self, name: str, *, limit: int | None = None) -> bytes | None:
        """The bytes of a file; None when there is none. Raises SavepointError when it has more than `limit`."""
        path = self.path(name)
        if limit is not None and ((size := self.store.sizes_of([path])[0]) or 0) > limit:
            raise SavepointError(f"{path} has {size:,} bytes, more than the {limit:,} that are allowed")
        return self.store.read(path)

    def names(self, name: str = "") -> list[str]:
        return self.store.names(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        path = self.path(name)
        self.store.make_directory(path.rpartition("/")[0])
        self.store.write(path, data)

    def create(self, name: str, data: bytes) -> bool:
        """Create `name` with `data`. Returns True when it holds `data` now, also when it did before."""
        path = self.path(name)
        self.store.make_directory(path.rpartition("/")[0])
        return self.store.create(path, data)

    def remove(self, *names: str) -> None:
        self.store.remove([self.path(n) for n in names])

    def remove_tree(self, name: str) -> None:
        """Remove a directory. One behind a symbolic link is not ours to empty."""
        if self.local and os.path.islink(self.path(name)):
            raise SavepointError(f"{self.path(name)} is a symbolic link; remove it by hand")
        self.store.remove_tree(self.path(name))

    def files(self) -> list[str]:
        """Every file, hidden or not. Files that are added or removed meanwhile may be missing; no others are."""
        if not self.local:
            return sorted(self.store.sizes(self.location.root))
        return sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        def refused(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise error

        root = self.location.root
        for directory, _, names in os.walk(root, onerror=refused):
            above = os.path.relpath(directory, root)
            yield from (n if above == "." else f"{above}/{n}" for n in names)

    @contextlib.contextmanager
    def open(self, name: str, mode: str = "rb") -> Iterator[IO[bytes]]:
        if self.local:
            with open(self.path(name), mode) as file:
                yield file
        else:
            files = file_system(self.location.protocol, **self.location.options)
            with files.open(self.path(name), mode) as file:
                yield file

    def sum(self, name: str) -> SavedFile:
        """Raises FileNotFoundError."""
        digest, size = hashlib.sha256(), 0
        with self.open(name) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return SavedFile(size, digest.hexdigest())


def sums(place: Place, names: Sequence[str]) -> list[SavedFile | None]:
    """Sizes and checksums of files; None for those that do not exist."""

    def one(name: str) -> SavedFile | None:
        try:
            return place.sum(name)
        except FileNotFoundError:
            return None

    with _workers() as workers:
        return list(workers.map(one, names))


def copy_files(source: Place, target: Place, names: Sequence[str]) -> dict[str, SavedFile | None]:
    """Put the files of `source` at the same names below `target`, durably; None for those that are not there.

    On one local file system they are linked: neither Spark nor we ever change such a file in place.
    """

    def one(name: str) -> SavedFile | None:
        try:
            return _copy(source, target, name)
        except FileNotFoundError:
            if source.store.kind(source.path(name)) is None:
                return None
            raise

    for directory in sorted({target.path(n).rpartition("/")[0] for n in names}):
        target.store.make_directory(directory)
    with _workers() as workers:
        copied = dict(zip(names, workers.map(one, names), strict=True))
    if target.local:
        for directory in sorted({target.path(n).rpartition("/")[0] for n in names}):
            _sync(directory)
    return copied


def _copy(source: Place, target: Place, name: str) -> SavedFile:
    if source.local and target.local and _link(source.path(name), target.path(name)):
        _sync(target.path(name))
        return target.sum(name)
    digest, size = hashlib.sha256(), 0
    with source.open(name) as read, target.open(name, "wb") as write:
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            write.write(chunk)
        if target.local:
            write.flush()
            os.fsync(write.fileno())
    return SavedFile(size, digest.hexdigest())


def _link(source: str, target: str) -> bool:
    """False when there can be no link here."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        os.unlink(target)
        return _link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="savepoint-files")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
