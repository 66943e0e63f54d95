"""Decides whether the rows of a short job are worth counting.

Asking Spark for the rows of a job costs the engine about as much as a sixth of a trivial job. For a job of seconds that is
nothing; for hundreds of trivial jobs in a row it would be a good part of what the machine can do. So a short one is counted
when there is a token left: they come back at a steady rate, and a few may be used at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from pathlib import Path

LONG_SECONDS = 5.0
"""A job of that length is always counted. A trivial one takes more than a second on an engine that is busy."""
PER_SECOND = 1.0
BURST = 20.0


def book_of(jobs: Path, engine_id: str) -> Path:
    """The book of an engine, below the directory of all jobs."""
    return jobs / ".counted" / engine_id


def forget_old_books(jobs: Path) -> None:
    """Remove books that were not written for a day: their tokens are full again, or their engine is gone."""
    with contextlib.suppress(OSError):
        for book in (jobs / ".counted").iterdir():
            if time.time() - book.stat().st_mtime > 86400:
                book.unlink(missing_ok=True)


def worth_counting(took: float, book: Path, now: float | None = None) -> bool:
    """`book` is a file that the drivers of one engine share."""
    if took >= LONG_SECONDS:
        return True
    moment = time.time() if now is None else now
    with contextlib.suppress(OSError):
        book.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(OSError, ValueError), book.open("a+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        said = f.read().split()
        tokens, at = (float(said[0]), float(said[1])) if len(said) == 2 else (BURST, moment)
        tokens = min(BURST, tokens + max(0.0, moment - at) * PER_SECOND)
        granted = tokens >= 1
        f.truncate(0)
        f.write(f"{tokens - granted:.6f} {moment:.6f}")
        return granted
    return True  # a book that cannot be kept costs a little speed, not the numbers
