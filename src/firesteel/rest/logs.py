"""Logs of drivers and nodes, by range and from the end. Everything is read off the event loop."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from firesteel.attempts.log_files import FILES, OPERATORS, RESULT, open_regular, regular
from firesteel.types import JobID

__all__ = ["FILES", "OPERATORS", "RESULT", "JobLogs", "LogFile", "json_object", "open_regular", "read_range", "regular"]

CHUNK = 1 << 18
LARGEST_JSON = 16 << 20
"""Bytes that are parsed at once, during which nothing else runs."""
_ATTEMPTS = "attempts"
_ATTEMPT = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class LogFile:
    name: str
    size: int
    modified: float


async def _nothing(_: JobID) -> None:
    pass


class JobLogs:
    """Logs of attempts, below `<cluster>/jobs/<job id>/attempts/<n>`; those of other hosts below `<cluster>/mirror`, in the
    same way, once they have been copied from there."""

    def __init__(
        self, root: Path, mirror: Path | None = None, copy: Callable[[JobID], Awaitable[None]] = _nothing
    ) -> None:
        """`copy`: has what is new in the files of a job on other hosts copied to `mirror`."""
        self._root = root
        self._mirror = mirror
        self._copy = copy

    async def refresh(self, job_id: JobID) -> None:
        """Have the files here as they are now, wherever the attempts run. To be called before files are read."""
        await self._copy(job_id)

    def path(self, job_id: JobID, attempt: int, name: str) -> Path | None:
        """None for a name that is not in FILES."""
        file = FILES.get(name)
        return None if file is None else self.directory(job_id, attempt) / file

    def directory(self, job_id: JobID, attempt: int) -> Path:
        """The directory of an attempt."""
        here = self._root / job_id / _ATTEMPTS / str(attempt)
        if self._mirror is not None and not here.is_dir():
            there = self._mirror / job_id / _ATTEMPTS / str(attempt)
            if there.is_dir():
                return there
        return here

    async def attempts(self, job_id: JobID) -> list[int]:
        """The attempts that have files, oldest first."""
        await self.refresh(job_id)
        return await asyncio.to_thread(self.attempt_numbers, job_id)

    def attempt_numbers(self, job_id: JobID) -> list[int]:
        """`attempts`, for threads."""
        roots = [self._root] if self._mirror is None else [self._root, self._mirror]
        found = set[int]()
        for root in roots:
            try:
                found.update(int(n) for n in os.listdir(root / job_id / _ATTEMPTS) if _ATTEMPT.fullmatch(n))
            except FileNotFoundError:
                continue
        return sorted(found)

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
