"""Copies of uploaded files for the processes of jobs.

Never a hard link: the process runs user code, and a process that can write to a link's target would change the stored
bytes for every other job. Where the file system can, the copy shares its blocks until one of them is written (a
reflink).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
from pathlib import Path

from firesteel.blob.disk import Stamp
from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.blob.shelf import PIECE, OpenBlob
from firesteel.fs.files import private_dir, write_all

_FICLONE = 0x40049409
_REMEMBERED = 4096


class Deliveries:
    """Remembers which copies it made, so that the next request for the same file costs only a look at it."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[BlobKey, Stamp]] = {}

    def target(self, ref: BlobRef, into: Path) -> Path:
        return into / ref.key[:16] / ref.name

    def is_there(self, ref: BlobRef, into: Path) -> bool:
        """Whether the copy is there and as it was when it was made. Costs no reading."""
        path = self.target(ref, into)
        try:
            return self._made.get(path) == (ref.key, Stamp.of(os.lstat(path)))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def deliver(self, handle: OpenBlob, ref: BlobRef, into: Path) -> Path | None:
        """A read-only copy; None when the bytes that are open here are not those of the key.

        It appears whole or not at all. One that is there, from an earlier process, is taken if its bytes are right and
        replaced if not. Everything goes through the directory itself and not through its name, which code of the job
        could have made a link to elsewhere (S4).
        """
        path = self.target(ref, into)
        private_dir(into)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not _has(directory, ref) and not _copy(handle, directory, ref):
                return None
            stamp = Stamp.of(os.stat(ref.name, dir_fd=directory, follow_symlinks=False))
        finally:
            os.close(directory)
        if len(self._made) >= _REMEMBERED:
            self._made.clear()
        self._made[path] = (ref.key, stamp)
        return path


def _has(directory: int, ref: BlobRef) -> bool:
    try:
        fd = os.open(ref.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:  # missing, or not made by us: it is replaced
        return False
    try:
        there = os.fstat(fd)
        private = stat.S_ISREG(there.st_mode) and there.st_mode & 0o222 == 0 and there.st_nlink == 1
        return private and _digest(fd) == ref.key
    finally:
        os.close(fd)


def _copy(handle: OpenBlob, directory: int, ref: BlobRef) -> bool:
    temporary = f".{secrets.token_hex(8)}.part"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400, dir_fd=directory)
    try:
        digest = _digest(fd) if _reflinked(handle.fd, fd) else _copied(handle, fd)
        if digest != ref.key:
            return False
        os.rename(temporary, ref.name, src_dir_fd=directory, dst_dir_fd=directory)
        temporary = ""
    finally:
        os.close(fd)
        if temporary:
            os.unlink(temporary, dir_fd=directory)
    return True


def _reflinked(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # most file systems cannot
        return False
    return True


def _copied(handle: OpenBlob, target: int) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := handle.read(PIECE, offset):
        digest.update(piece)
        write_all(target, piece)
        offset += len(piece)
    return digest.hexdigest()


def _digest(fd: int) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := os.pread(fd, PIECE, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
