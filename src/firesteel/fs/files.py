"""Small durable files: written whole or not at all, private where they hold secrets."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any, BinaryIO


def private_dir(path: Path) -> Path:
    """Make a directory, with its parents, that only its owner can enter; an existing one stays as it is."""
    if not path.parent.exists():
        private_dir(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomically(path: Path, data: str | bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace `path` by a file with this content; a crash leaves the old file or the new one, never a torn one."""
    raw = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        write_all(fd, raw)
        if durable:
            os.fsync(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def durable_dir(path: Path) -> Path:
    """A private directory whose name will survive a power cut."""
    if not path.is_dir():
        private_dir(path)
        sync_dir(path.parent)
    return path


def sync_dir(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    left = memoryview(data)
    while left:  # a disk that is nearly full takes a part and says so only in the number of bytes
        left = left[os.write(fd, left) :]


def write_json(path: Path, value: Any, *, mode: int = 0o600, durable: bool = True) -> None:
    write_atomically(path, json.dumps(value, indent=1) + "\n", mode=mode, durable=durable)


class NotAPlainFileError(ValueError):
    """A pipe, a device, a link or a directory where a file should be. Code of a job can put one among its own files."""


def open_plain(path: str | Path, flags: int = 0, *, dir_fd: int | None = None) -> BinaryIO:
    """Open a file for reading. Never waits for a pipe's writer: the threads that read files are shared by all (S24).

    Raises NotAPlainFileError, also for a link where `flags` have O_NOFOLLOW, or OSError when there is nothing that could be
    opened.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise NotAPlainFileError(f"{path} is a link") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotAPlainFileError(f"{path} is not a plain file")
    return os.fdopen(fd, "rb")


LARGEST_FOREIGN_JSON = 64 << 20


def read_json(path: Path, *, foreign: bool = False) -> Any:
    """The value in a JSON file; None when the file is missing. ValueError when it is not a file, or not JSON.

    `foreign`: a job may have written it, so links are not followed and its size is limited.
    """
    try:
        with open_plain(path, os.O_NOFOLLOW if foreign else 0) as f:
            if foreign and os.fstat(f.fileno()).st_size > LARGEST_FOREIGN_JSON:
                raise ValueError(f"{path} is larger than {LARGEST_FOREIGN_JSON} bytes")
            return json.loads(f.read(LARGEST_FOREIGN_JSON) if foreign else f.read())
    except FileNotFoundError:
        return None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None


def tail(path: Path, lines: int = 40, limit: int = 64 * 1024) -> str:
    """The last lines of a log, up to `limit` bytes; empty for a link, which a job can put in place of its log."""
    try:
        with open_plain(path, os.O_NOFOLLOW) as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(0, size - limit))
            text = f.read().decode(errors="replace")
    except (FileNotFoundError, NotAPlainFileError):
        return ""
    return "\n".join(text.splitlines()[-lines:])
