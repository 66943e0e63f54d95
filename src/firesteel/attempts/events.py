"""A driver's event log, and the readers that follow it as it grows.

A stream may run for months, so the log is kept in two files: when the current one is full it becomes the previous one,
and the new one begins with a summary of all that came before.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from firesteel.attempts.progress import SO_FAR, ProgressView, is_event
from firesteel.fs.files import NotAPlainFileError, open_plain

LIMIT_BYTES = 4 << 20
"""When an event log is full. There are at most two of them."""

_CHUNK = 1 << 20


def previous(path: Path) -> Path:
    """Where a full log goes: `events.jsonl` becomes `events.1.jsonl`."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


class EventLog:
    """One JSON object a line. May be written to by several threads of the driver."""

    def __init__(self, path: Path, *, limit: int = LIMIT_BYTES) -> None:
        self._path = path
        self._limit = limit
        # A thread that is cancelled in the middle of a line must still be able to report its end.
        self._lock = threading.RLock()
        self._view = ProgressView()
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def emit(self, kind: str, **values: Any) -> None:
        event = {"t": round(time.time(), 3), "type": kind, **values}
        with self._lock:
            if self._file.tell() > self._limit:
                self._rotate()
            self._view.fold(event)
            self._write(event)

    def close(self) -> None:
        self._file.close()

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(json.dumps(event) + "\n")

    def _rotate(self) -> None:
        """A cancel may strike between any two lines: until the last one we write on to a file that is there."""
        if self._path.exists():
            self._path.replace(previous(self._path))
        fresh = self._path.open("a", buffering=1, encoding="utf-8")
        full, self._file = self._file, fresh
        self._write({"t": round(time.time(), 3), "type": SO_FAR, "view": self._view.to_json()})
        full.close()


class LineTail:
    """Reads a file as it grows; a half-written last line waits for its rest. Follows a log into its next file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._inode = 0

    def new(self) -> str:
        """Whole lines that were not read yet, up to a bounded size; empty when there are none."""
        try:
            with open_plain(self._path, os.O_NOFOLLOW) as f:
                found = os.fstat(f.fileno())
                if self._inode and found.st_ino != self._inode:
                    if rest := self._rest_of_previous():
                        return rest
                    self._position = 0
                elif found.st_size < self._position:
                    self._position = 0
                self._inode = found.st_ino
                return self._read(f)
        except FileNotFoundError:
            return self._rest_of_previous()
        except NotAPlainFileError:
            return ""

    def _rest_of_previous(self) -> str:
        try:
            with open_plain(previous(self._path), os.O_NOFOLLOW) as f:
                return self._read(f) if os.fstat(f.fileno()).st_ino == self._inode else ""
        except (FileNotFoundError, NotAPlainFileError):
            return ""

    def _read(self, f: BinaryIO) -> str:
        f.seek(self._position)
        data = f.read(_CHUNK)
        whole, newline, _ = data.rpartition(b"\n")
        if not newline:
            if len(data) == _CHUNK:  # a line without end: never mind it
                self._position += _CHUNK
            return ""
        self._position += len(whole) + 1
        return whole.decode(errors="replace")


class EventTail:
    def __init__(self, path: Path) -> None:
        self._lines = LineTail(path)

    def new(self) -> list[dict[str, Any]]:
        events = []
        for line in self._lines.new().splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue  # torn by a kill, or by a cancel in the middle of the line
            if isinstance(event, dict):
                events.append(event)
        return events


class ProgressTail:
    """The view of an event log that grows. May be asked by several threads."""

    __slots__ = ("_events", "_lock", "_view")

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._events = EventTail(path)
        self._view = ProgressView()

    def look(self) -> dict[str, Any]:
        with self._lock:
            for _ in range(2 * LIMIT_BYTES // _CHUNK):
                events = self._events.new()
                if not events:
                    break
                for event in events:
                    if is_event(event):  # the log is the job's to write
                        self._view.fold(event)
            return self._view.to_json()
