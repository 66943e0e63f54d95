"""What the pipeline must compute, in plain Python: the rule of the watermark, one file per batch.

The watermark of a batch is the latest event of the batches before it, less 15 minutes. A window whose end it has reached is
closed and written with that batch; an event that comes in a later batch and belongs to a closed window is dropped.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

WINDOW = timedelta(minutes=10)
DELAY = timedelta(minutes=15)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowCount(NamedTuple):
    window_start: datetime
    window_end: datetime
    action: str
    events: int


class Outcome(NamedTuple):
    written: list[WindowCount]
    """By window and action."""
    dropped: list[int]
    """Ids of the events that came too late."""
    open: list[WindowCount]
    """Windows that the watermark has not passed yet; Spark keeps them in its state."""


class _Event(NamedTuple):
    event_id: int
    action: str
    happened_at: datetime


def outcome(data: Path) -> Outcome:
    """The files in the order of their modification times, as Spark reads them."""
    counts: Counter[tuple[datetime, str]] = Counter()
    dropped: list[int] = []
    closed = EPOCH  # windows that end here or earlier were written by earlier batches
    latest = EPOCH
    for file in sorted((data / "events").glob("*.json"), key=lambda f: f.stat().st_mtime_ns):
        batch = [_event(line) for line in file.read_text("utf-8").splitlines()]
        for event in batch:
            if _start(event.happened_at) + WINDOW <= closed:
                dropped.append(event.event_id)
            else:
                counts[_start(event.happened_at), event.action] += 1
        closed = max(closed, latest - DELAY)
        latest = max([latest, *(e.happened_at for e in batch)])
    # A last batch without data moves the watermark once more.
    closed = max(closed, latest - DELAY)
    rows = [WindowCount(start, start + WINDOW, action, n) for (start, action), n in sorted(counts.items())]
    return Outcome(
        [r for r in rows if r.window_end <= closed], sorted(dropped), [r for r in rows if r.window_end > closed]
    )


def _event(line: str) -> _Event:
    data = json.loads(line)
    return _Event(data["event_id"], data["action"], datetime.fromisoformat(data["happened_at"]))


def _start(at: datetime) -> datetime:
    return at - (at - EPOCH) % WINDOW
