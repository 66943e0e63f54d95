"""Logs of drivers and nodes, by range and from the end. Everything is read off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from firesteel.attempts.attempt import OUTPUT
from firesteel.fs.files import NotAPlainFileError, open_plain
from firesteel.types import JobID

CHUNK = 1 << 18
LARGEST_JSON = 16 << 20
"""Bytes that are parsed at once, during which nothing else runs."""
_ATTEMPTS = "attempts"
_ATTEMPT = re.compile(r"[1-9][0-9]{0,8}")
OPERATORS, RESULT = f"{OUTPUT}/operators.json", f"{OUTPUT}/result.json"
"""The driver's records of Spark's operators, and of the end of its attempt."""
FILES = {
    "stdout": f"{OUTPUT}/stdout.log",
    "stderr": f"{OUTPUT}/stderr.log",
    "events": f"{OUTPUT}/events.jsonl",
    "jvm": "jvm.log",
    "engine": "engine.log",
}
"""The names of logs, and their files. Nothing else can be requested (S4)."""


@dataclass(frozen=True, slots=True)
class LogFile:
    name: str
    size: int
    modified: float


class JobLogs:
    """Logs of attempts, below `<cluster>/jobs/<job id>/attempts/<n>`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, job_id: JobID, attempt: int, name: str) -> Path | None:
        """None for a name that is not in FILES."""
        file = FILES.get(name)
        return None if file is None else self.directory(job_id, attempt) / file

    def directory(self, job_id: JobID, attempt: int) -> Path:
        """The directory of an attempt."""
        return self._root / job_id / _ATTEMPTS / str(attempt)

    async def attempts(self, job_id: JobID) -> list[int]:
        """The attempts that have files, oldest first."""
        return await asyncio.to_thread(self.attempt_numbers, job_id)

    def attempt_numbers(self, job_id: JobID) -> list[int]:
        """`attempts`, for threads."""
        directory = self._root / job_id / _ATTEMPTS
        try:
            return sorted(int(n) for n in os.listdir(directory) if _ATTEMPT.fullmatch(n))
        except FileNotFoundError:
            return []

    async def files(self, job_id: JobID, attempt: int) -> list[LogFile]:
        return await asyncio.to_thread(self._files, job_id, attempt)

    def _files(self, job_id: JobID, attempt: int) -> list[LogFile]:
        found = []
        for name in FILES:
            path = self.path(job_id, attempt, name)
            assert path is not None
            if (there := regular(path)) is not None:
                found.append(LogFile(name, there.st_size, there.st_mtime))
        return found


def regular(path: Path) -> os.stat_result | None:
    """The status of a plain file; None for anything else. A job may have put a link or a pipe there (S4)."""
    try:
        with _parent(path) as parent:
            there = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    return there if stat.S_ISREG(there.st_mode) else None


@contextlib.contextmanager
def _parent(path: Path) -> Iterator[int]:
    """The directory of a file, opened. A job that is not confined can change the directory of its attempt
    (`<job id>/attempts/<n>`, and `output` in it), so links in it are not followed."""
    parts = path.parent.parts
    depth = next((n for n in (3, 4) if parts[-n + 1 : -n + 2] == (_ATTEMPTS,)), 0)
    ours, theirs = path.parents[depth], parts[len(parts) - depth :]
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    parent = os.open(ours, flags)
    try:
        for name in theirs:
            inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
            os.close(parent)
            parent = inner
        yield parent
    finally:
        os.close(parent)


def open_regular(path: Path) -> BinaryIO:
    """Open a plain file for reading. Raises FileNotFoundError for anything else, and never waits for the writer of a pipe."""
    try:
        with _parent(path) as parent:
            return open_plain(path.name, os.O_NOFOLLOW, dir_fd=parent)
    except (OSError, NotAPlainFileError) as error:
        raise FileNotFoundError(str(path)) from error


def json_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a plain file that a job may have written; empty when there is no file, None when it holds
    something else. Blocks."""
    try:
        with open_regular(path) as f:
            found = orjson.loads(f.read(LARGEST_JSON))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


async def read_range(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    """Bytes [start, end) of a file, which may grow or disappear meanwhile."""
    position = start
    while position < end:
        data = await asyncio.to_thread(_read_at, path, position, min(CHUNK, end - position))
        if not data:
            return
        position += len(data)
        yield data


def _read_at(path: Path, position: int, size: int) -> bytes:
    try:
        with open_regular(path) as f:
            f.seek(position)
            return f.read(size)
    except FileNotFoundError:
        return b""


async def start_of_tail(path: Path, lines: int) -> int:
    """The position at which the last `lines` lines begin."""
    return await asyncio.to_thread(_start_of_tail, path, lines)


def _start_of_tail(path: Path, lines: int) -> int:
    try:
        with open_regular(path) as f:
            position = f.seek(0, os.SEEK_END)
            if lines <= 0:
                return position
            found = 0
            first = True
            while position > 0:
                step = min(CHUNK, position)
                position -= step
                f.seek(position)
                block = f.read(step)
                if first and block.endswith(b"\n"):
                    block = block[:-1]
                first = False
                index = len(block)
                while (index := block.rfind(b"\n", 0, index)) >= 0:
                    found += 1
                    if found == lines:
                        return position + index + 1
            return 0
    except FileNotFoundError:
        return 0
