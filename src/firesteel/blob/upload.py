"""An upload in progress, and the removal of interrupted ones."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
from pathlib import Path

from firesteel.blob.disk import look, names, set_time
from firesteel.blob.keys import BlobKey
from firesteel.fs.files import write_all

logger = logging.getLogger(__name__)
SETTLING = 60.0
"""Younger leftovers are left alone: their upload may not have locked them yet."""
UNLOCKABLE = 86400.0
"""Where the file system knows no locks, only age tells a dead upload from a slow one."""


class IncomingBlob:
    """A temporary file that cannot be read under any key. Its creator must call `discard` at the end, in any case.

    It is locked while its process lives; the kernel releases the lock when the process is killed, so that `sweep` can
    tell.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"{secrets.token_hex(16)}.part"
        self.size = 0
        self._digest = hashlib.sha256()
        self._fd = -1

    def write(self, piece: bytes | bytearray) -> None:
        self._open()
        write_all(self._fd, piece)
        self._digest.update(piece)
        self.size += len(piece)

    def finish(self, when: float) -> BlobKey:
        """Make the content durable, as young as `when`; its key."""
        self._open()
        set_time(self._fd, when)
        os.fsync(self._fd)
        return BlobKey(self._digest.hexdigest())

    def discard(self) -> None:
        """Let go of it, and of the temporary file unless it was moved to where it belongs. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the temporary file %s could not be removed yet: %s", self.path, error)

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            _lock(self._fd)


def sweep(directory: Path, now: float) -> int:
    """Remove the temporary files of uploads whose process was killed; returns their number."""
    removed = 0
    for name in names(directory):
        path = directory / name
        there = look(path)
        if there is not None and now - there.st_mtime > SETTLING and _dead(path, now - there.st_mtime):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _dead(path: Path, age: float) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        locked = _lock(fd)
    finally:
        os.close(fd)
    return age > UNLOCKABLE if locked is None else locked


def _lock(fd: int) -> bool | None:
    """True: the lock is ours. False: another process holds it. None: the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
