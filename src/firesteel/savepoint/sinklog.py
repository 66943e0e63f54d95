"""The log in which Spark's file sink notes which files belong to which batch (`_spark_metadata`). Pure.

An entry per batch, named by its number; about every tenth is a `.compact` that holds all before it. Spark reads the log
from the last compaction on, works out the interval from the names of the last two, and skips batches that are in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from firesteel.savepoint.manifest import NONE
from firesteel.savepoint.selection import TornError

LOG = "_spark_metadata"
EMPTY = b"v1"
"""An entry without files."""

_ENTRY = re.compile(r"(\d+)(\.compact)?")
_INTERVAL = 10


def number(name: str) -> int | None:
    """The batch of an entry; None for a name that is not an entry's."""
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Cut:
    required: list[str]
    optional: list[str]


def cut(names: Iterable[str], batch: int) -> Cut | None:
    """The entries that make the log as it was after `batch`; None when there is no log.

    Raises:
        TornError: one is missing.
    """
    entries = {n: b for n in names if (b := number(n)) is not None}
    if not entries:
        return None
    entries = {n: b for n, b in entries.items() if b <= batch}
    compactions = sorted(b for n, b in entries.items() if n.endswith(".compact"))
    base = compactions[-1] if compactions else 0
    missing = set(range(base, batch + 1)) - set(entries.values())
    if missing:
        raise TornError(f"{LOG}/{min(missing)}")
    required = sorted((n for n, b in entries.items() if b >= base), key=lambda n: entries[n])
    # One more compaction, so that Spark goes on with the interval that it had.
    return Cut(required, [f"{b}.compact" for b in compactions[-2:-1]])


def seed(batch: int) -> list[str]:
    """Names of empty entries that let a log continue after `batch`, whichever interval Spark is set to.

    Without them its first compaction fails, as there is nothing to compact. One compaction is enough to begin with, but
    the interval is then a divisor of its number, which may be a large prime; two say what the interval is.
    """
    if batch == NONE:
        return []
    last = (batch + 1) // _INTERVAL * _INTERVAL - 1
    if last < 2 * _INTERVAL - 1:
        return [f"{batch}.compact"]
    return [f"{last - _INTERVAL}.compact", f"{last}.compact", *(str(b) for b in range(last + 1, batch + 1))]


def paths(entry: bytes) -> dict[str, int]:
    """The files that an entry of the log names, as Spark spells their paths, with their sizes."""
    found: dict[str, int] = {}
    for line in entry.decode().splitlines()[1:]:
        status = json.loads(line)
        if status.get("action", "add") == "add" and not status.get("isDir"):
            found[unquote(status["path"])] = int(status["size"])
    return found
