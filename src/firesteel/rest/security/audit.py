"""The audit log of changes and refusals: one JSON object per line, in a file that only its owner can read.

Requests never wait for it. They put a record into a bounded queue, and a thread writes it. Records that do not fit or cannot
be written are counted, and the count is written once writing works again: gaps are visible.

It does not use `logging.handlers`: those do not share a file with other processes, never sync to disk, and drop what does
not fit silently. A version that overrides all of that was longer than this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from firesteel.fs.files import private_dir
from firesteel.masking import mask_text

logger = logging.getLogger(__name__)

Outcome = Literal["done", "failed", "refused"]
_QUEUE = 10_000
_BATCH = 500
_LONGEST_PATH = 512
_COMPLAIN_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One request that changed something, tried to, or was refused."""

    request_id: str
    peer: str
    method: str
    path: str
    """The path without its query string, which may hold anything."""
    status: int | None
    """None when the client disconnected before the answer."""
    outcome: Outcome
    principal: str | None = None
    role: str | None = None
    owner: str | None = None
    job_id: str | None = None
    suppressed: int = 0
    """The number of refusals before this one that were not written because there were too many."""

    def line(self, at: datetime) -> bytes:
        shown = {"time": at.isoformat(timespec="milliseconds"), **asdict(self)}
        path = mask_text(self.path[: 4 * _LONGEST_PATH])
        shown["path"] = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."
        return json.dumps({k: v for k, v in shown.items() if v not in (None, 0)}).encode() + b"\n"


class AuditLog:
    """The audit log at `path`, and the thread that writes it while the log is open.

    At `max_bytes` the file becomes `<name>.1`, the former `<name>.1` becomes `<name>.2`, and so on; `keep` of them are kept.
    Several processes may write one log.
    """

    def __init__(self, path: Path, *, max_bytes: int = 64 * 1024 * 1024, keep: int = 5) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._queue: queue.Queue[bytes | None] = queue.Queue(_QUEUE)
        self._lost = 0
        self._losing = threading.Lock()
        self._torn = False
        self._complained_at = float("-inf")
        self._thread: threading.Thread | None = None
        self._closing = False

    def start(self) -> None:
        assert self._thread is None, "the audit log is open"
        self._thread = threading.Thread(target=self._write_all, name="audit-log", daemon=True)
        self._thread.start()

    def close(self, timeout: float = 10.0) -> None:
        """Write the queued records and end the thread, waiting at most `timeout` seconds for a disk that hangs."""
        if self._thread is None or self._closing:
            return
        self._closing = True
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)  # wakes the thread, which is awake if the queue is full
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.error(
                "the audit log %s was still being written when it was closed; its last records are lost", self._path
            )

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, record: AuditRecord) -> None:
        """Queue a record. Never blocks and never raises: a request must not depend on it."""
        try:
            self._queue.put_nowait(record.line(datetime.now(UTC)))
        except queue.Full:
            self._lose(1)

    def _write_all(self) -> None:
        while True:
            lines = self._next_batch()
            if lines:
                self._write(lines)
            if self._closing and self._queue.empty():
                return

    def _next_batch(self) -> list[bytes]:
        lines: list[bytes] = []
        with contextlib.suppress(queue.Empty):
            first = self._queue.get()
            lines += [first] if first is not None else []
            while len(lines) < _BATCH:
                line = self._queue.get_nowait()
                lines += [line] if line is not None else []
        return lines

    def _write(self, lines: list[bytes]) -> None:
        lost = self._lost
        gap = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "lost_records": lost}
        before = [json.dumps(gap).encode() + b"\n"] if lost else []
        try:
            self._append(b"".join([*before, *lines]))
        except OSError as error:
            self._lose(len(lines))
            now = time.monotonic()
            if now - self._complained_at >= _COMPLAIN_EVERY:
                self._complained_at = now
                logger.error("the audit log %s cannot be written; records are lost until it can: %s", self._path, error)
            return
        self._lose(-lost)

    def _lose(self, count: int) -> None:
        with self._losing:
            self._lost += count

    def _append(self, data: bytes) -> None:
        private_dir(self._path.parent)
        with self._locked():
            if self._size() + len(data) > self._max_bytes:
                self._rotate()
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if self._torn:  # a full disk took only a part of a line
                    data = b"\n" + data
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
                    self._torn = bool(left)
                os.fdatasync(fd)
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that keeps two processes that share the log from rotating it at once."""
        lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _rotate(self) -> None:
        if self._size() == 0:
            return
        for number in range(self._keep, 0, -1):
            older = self._numbered(number)
            newer = self._numbered(number - 1) if number > 1 else self._path
            if newer.exists():
                newer.replace(older)
        if self._keep == 0:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
