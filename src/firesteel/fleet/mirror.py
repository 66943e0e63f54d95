"""Files of attempts on workers, copied to the leader's disk when somebody wants to read them, and when an attempt has ended.

A copy grows by what is new, so whoever follows a log on another host reads the copy as if the attempt ran here.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firesteel.attempts.log_files import FILES, OPERATORS, RESULT
from firesteel.errors import FiresteelError
from firesteel.fleet.view import WorkerSessions
from firesteel.fs.files import private_dir
from firesteel.layout import attempt_directory
from firesteel.rpc.calls import attempt_args
from firesteel.types import AttemptId, JobID

logger = logging.getLogger(__name__)

MIRRORED = (*FILES.values(), OPERATORS, RESULT)
MISSING = -1
LARGEST = 64 << 20
"""Bytes of one file that are copied; the rest stays where it is."""
FRESH_SECONDS = 0.2
"""A copy that was made a moment ago will do."""
COPY_SECONDS = 10.0
"""How long a reader waits for a worker that does not answer; it gets what is here."""


class LogMirror:
    """`root/<job id>/attempts/<n>` has copies of what is in the attempt's directory on its worker."""

    def __init__(self, root: Path, fleet: Callable[[], WorkerSessions]) -> None:
        """`fleet` raises NotLeadingError while another node leads."""
        self.root = root
        self._fleet = fleet
        self._copied: dict[JobID, float] = {}
        self._locks: dict[JobID, asyncio.Lock] = {}

    async def copy(self, job_id: JobID) -> None:
        """Copy what is new in the files of a job on workers. What cannot be had is left as it is here."""
        try:
            fleet = self._fleet()
        except FiresteelError:
            return
        found = fleet.attempts_of(job_id)
        if not found or time.monotonic() - self._copied.get(job_id, -FRESH_SECONDS) < FRESH_SECONDS:
            return
        lock = self._locks.setdefault(job_id, asyncio.Lock())
        async with lock:
            try:
                async with asyncio.timeout(COPY_SECONDS):
                    for worker, attempt in found:
                        await self._copy_attempt(fleet, worker, attempt)
            except (TimeoutError, FiresteelError, OSError) as error:
                logger.warning("files of job %s on another host are not copied: %s", job_id, error or "no answer")
        self._copied[job_id] = time.monotonic()
        if len(self._copied) > 1000:
            self._copied.clear()
            self._locks.clear()

    async def _copy_attempt(self, fleet: WorkerSessions, worker: str, attempt: AttemptId) -> None:
        directory = attempt_directory(self.root, attempt)
        while True:
            have = await asyncio.to_thread(_sizes, directory)
            args = {**attempt_args(attempt), "have": have}
            parts: list[Mapping[str, Any]] = await fleet.call(worker, "read_files", args)
            if not parts:
                return
            await asyncio.to_thread(_append, directory, parts)


def _sizes(directory: Path) -> dict[str, int]:
    """What is here; a file that is complete counts as too large to be copied on."""
    found = {}
    for name in MIRRORED:
        try:
            found[name] = (directory / name).stat().st_size
        except OSError:
            found[name] = MISSING
    return {name: size for name, size in found.items() if size < LARGEST}


def _append(directory: Path, parts: list[Mapping[str, Any]]) -> None:
    """Nothing but what was asked for is written, whatever a worker answers (S47)."""
    for part in parts:
        name, offset = part["file"], part["offset"]
        if name not in MIRRORED:
            continue
        path = directory / name
        private_dir(path.parent)
        with path.open("r+b" if path.exists() else "w+b") as file:
            if not 0 <= offset <= min(file.seek(0, os.SEEK_END), LARGEST):
                continue
            file.truncate(offset)
            file.seek(offset)
            file.write(base64.b64decode(part["data"]))
