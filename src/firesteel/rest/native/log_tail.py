"""New content in the files of a job's attempts: progress and log lines. Everything here blocks, for use in threads."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.attempts.events import ProgressTail
from firesteel.masking import mask_text
from firesteel.rest.logs import JobLogs, open_regular, regular
from firesteel.types import JobID

logger = logging.getLogger(__name__)

STREAMS = ("stdout", "stderr")
READ = 64 * 1024
"""The number of bytes of one file that are read at a time."""
FAR_BEHIND = 1 << 20
"""A log that grows faster than this is not sent line by line."""
RECENT_LINES = 1000
"""The number of lines that a new listener gets first, in at most READ bytes."""
LINES_PER_EVENT = 200
LONGEST_LINE = 2000


@dataclass(frozen=True, slots=True)
class Progress:
    view: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lines:
    attempt: int
    stream: str
    lines: list[str] = field(default_factory=list)


News = Progress | Lines


class LogTail:
    """Reads a file as it grows, from `position` on; a half-written last line waits for its rest."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self._path = path
        self.position = position

    @classmethod
    def at_end(cls, path: Path) -> LogTail:
        """Treat all complete lines in the file as read."""
        tail = cls(path)
        try:
            with open_regular(path) as f:
                size = f.seek(0, os.SEEK_END)
                start = f.seek(max(0, size - READ))
                tail.position = start + f.read(size - start).rfind(b"\n") + 1
        except FileNotFoundError:
            pass
        return tail

    def recent(self) -> list[str]:
        """The last lines before those that `new` returns next."""
        start = max(0, self.position - READ)
        try:
            with open_regular(self._path) as f:
                f.seek(start)
                data = f.read(self.position - start)
        except FileNotFoundError:
            return []
        lines = _lines(data.removesuffix(b"\n")) if data else []
        return lines[1:][-RECENT_LINES:] if start else lines[-RECENT_LINES:]

    def new(self, *, over: bool = False) -> list[str]:
        """A bounded number of complete lines that were not read yet. `over`: the file will not grow any more, so the last
        line is complete."""
        note: list[str] = []
        try:
            with open_regular(self._path) as f:
                size = os.fstat(f.fileno()).st_size
                if size < self.position:
                    self.position = 0
                if size - self.position > FAR_BEHIND:
                    left_out = size - READ - self.position
                    note = [f"[{left_out:,} bytes are omitted here; see the log of the attempt]"]
                    self.position += left_out
                f.seek(self.position)
                data = f.read(READ)
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        last = over and self.position + len(data) >= size
        if last or (not end and len(data) == READ):  # an endless line is cut
            end = len(data)
        self.position += end
        return note + _lines(data[:end].removesuffix(b"\n")) if end else note


class JobTail:
    """The files of one job, attempt after attempt. One caller at a time."""

    def __init__(self, logs: JobLogs, job_id: JobID) -> None:
        self._logs = logs
        self._job_id = job_id
        self._attempt = 0
        self._events: Path | None = None
        self._progress: ProgressTail | None = None
        self.shown: dict[str, Any] = {}
        """The progress that was reported last; empty when there is none."""
        self._tails: dict[str, LogTail] = {}

    def begin(self) -> None:
        """Treat the current content as known. Call this first."""
        numbers = self._logs.attempt_numbers(self._job_id)
        if numbers:
            self._turn_to(numbers[-1], at_end=True)
            self._read_progress()

    def recent(self) -> list[News]:
        """The last log lines of the attempt, up to where `news` continues."""
        return [n for stream, tail in self._tails.items() for n in self._as_news(stream, tail.recent())]

    def news(self, *, over: bool = False) -> list[News]:
        """What is new since the last call. `over`: the job has ended."""
        numbers = self._logs.attempt_numbers(self._job_id)
        found: list[News] = []
        for number in numbers:
            if number > self._attempt:
                found += self._read(over=True)
                self._turn_to(number)
        return found + self._read(over=over)

    def _turn_to(self, attempt: int, *, at_end: bool = False) -> None:
        self._attempt = attempt
        events = self._logs.path(self._job_id, attempt, "events")
        assert events is not None
        self._events, self._progress = events, ProgressTail(events)
        for stream in STREAMS:
            path = self._logs.path(self._job_id, attempt, stream)
            assert path is not None
            self._tails[stream] = LogTail.at_end(path) if at_end else LogTail(path)

    def _read(self, *, over: bool) -> list[News]:
        found: list[News] = []
        for stream, tail in self._tails.items():
            for _ in range(FAR_BEHIND // READ + 1 if over else 1):
                found += self._as_news(stream, tail.new(over=over))
        return found + ([Progress(self.shown)] if self._read_progress() else [])

    def _read_progress(self) -> bool:
        """Whether the progress has changed."""
        if self._events is None or self._progress is None or regular(self._events) is None:
            return False  # reading a pipe would never end
        try:
            view = self._progress.look()
        except Exception as error:
            # The file belongs to a process that runs user code: whatever it writes there must not end a stream.
            logger.warning("the progress of job %s cannot be parsed: %r", self._job_id, error)
            return False
        view.pop("checkpoints", None)  # part of the statistics; a snapshot has them elsewhere
        if view == self.shown or not view["updated_at"]:
            return False
        self.shown = view
        return True

    def _as_news(self, stream: str, lines: list[str]) -> Iterator[Lines]:
        for start in range(0, len(lines), LINES_PER_EVENT):
            yield Lines(self._attempt, stream, lines[start : start + LINES_PER_EVENT])


def _lines(data: bytes) -> list[str]:
    return [_shown(line) for line in data.decode(errors="replace").split("\n")]


def _shown(line: str) -> str:
    cut = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
    return mask_text(cut)
