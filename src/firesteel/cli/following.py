"""Following the log of a job: which lines of its event stream are to be shown. This module does no I/O.

A stream begins with the last lines that were logged before. The first time these are old lines, of which a user
may want only a few. After a break they show what was missed, and repeat what was shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.client.events import JobEvent

MEMORY = 1000
"""Lines that a stream begins with at most, so more of what was shown need not be remembered."""


@dataclass(frozen=True, slots=True)
class LogLine:
    stream: str
    """`stdout` or `stderr`."""
    text: str


class LogLines:
    """Give it the events in their order, and `flush` it when none came for a moment.

    Args:
        limit: how many of the lines that are there already are wanted, of each of standard output and error; None for all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._shown: dict[tuple[int, str], deque[str]] = {}
        self._beginning: list[JobEvent] | None = []
        """The first log events of a stream, all of one moment, until it is certain that there are no more of them."""
        self._first_stream = True

    def take(self, event: JobEvent) -> list[LogLine]:
        """The lines that are known to be news by now."""
        if event.kind == "snapshot":
            lines = self.flush()
            self._beginning = []
            return lines
        if event.kind != "log":
            return self.flush()
        if self._beginning is not None:
            if not self._beginning or self._beginning[0].at == event.at:
                self._beginning.append(event)
                return []
            return self.flush() + self._show(_key(event), _lines(event))
        return self._show(_key(event), _lines(event))

    def flush(self) -> list[LogLine]:
        """What was held back; nothing more of the beginning comes."""
        if not self._beginning:
            return []
        found: dict[tuple[int, str], list[str]] = {}
        for event in self._beginning:
            found.setdefault(_key(event), []).extend(_lines(event))
        self._beginning = None
        first, self._first_stream = self._first_stream, False
        news: list[LogLine] = []
        for key, lines in found.items():
            if first and self._limit is not None:
                wanted = lines[max(0, len(lines) - self._limit) :]
            else:
                wanted = missed(self._shown.get(key, ()), lines)
            self._remember(key, lines)
            news += [LogLine(key[1], line) for line in wanted]
        return news

    @property
    def holds(self) -> bool:
        """Whether `flush` would give anything."""
        return bool(self._beginning)

    def _show(self, key: tuple[int, str], lines: list[str]) -> list[LogLine]:
        self._remember(key, lines)
        return [LogLine(key[1], line) for line in lines]

    def _remember(self, key: tuple[int, str], lines: Sequence[str]) -> None:
        self._shown.setdefault(key, deque(maxlen=MEMORY)).extend(lines)


def missed(shown: Sequence[str], recent: list[str]) -> list[str]:
    """The part of `recent`, the last lines of a log, that follows what was shown of it.

    Where a log repeats itself this may be in doubt; then it is the shorter part.
    """
    before = list(shown)
    if not before:
        return recent
    for end in range(len(recent), 0, -1):
        known = min(end, len(before))
        if recent[end - known : end] == before[len(before) - known :]:
            return recent[end:]
    return recent


def _key(event: JobEvent) -> tuple[int, str]:
    attempt = event.data.get("attempt")
    return attempt if isinstance(attempt, int) else 0, str(event.data.get("stream", "stdout"))


def _lines(event: JobEvent) -> list[str]:
    lines = event.data.get("lines")
    return [str(line) for line in lines] if isinstance(lines, list) else []
