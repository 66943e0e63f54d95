"""Reading what jobs wrote, without the help of those who wrote it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FEED_ROWS = 10
FEED_SECONDS = 0.5


class Feeder:
    """Writes files of numbers that a stream reads, each whole or not at all."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="chaos-feeder", daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        while not self._stop.wait(FEED_SECONDS):
            self.write()

    def write(self) -> None:
        rows = range(self.next, self.next + FEED_ROWS)
        hidden = self.directory / f".{self.next}"
        hidden.write_text("".join(json.dumps({"id": i}) + "\n" for i in rows))
        hidden.rename(self.directory / f"{self.next:08}.json")
        self.next += FEED_ROWS

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def ids_in(directory: Path) -> list[int]:
    """The rows of an output of files: of those files only that a commit made visible."""
    import pyarrow.parquet as pq

    return sorted(i for f in _files(directory) for i in pq.read_table(f).column("id").to_pylist())


def _files(directory: Path) -> list[Path]:
    log = directory / "_spark_metadata"
    if not log.is_dir():
        return list(directory.glob("*.parquet"))
    named: dict[str, None] = {}
    # A compacted entry holds all before it, and the name of each says its place.
    entries = [e for e in log.iterdir() if not e.name.startswith(".") and e.stem.isdigit()]
    for entry in sorted(entries, key=lambda e: int(e.stem)):
        for line in entry.read_text().splitlines()[1:]:
            named[json.loads(line)["path"].removeprefix("file://")] = None
    return [Path(f) for f in named]


@dataclass(frozen=True, slots=True)
class Count:
    expected: int
    found: int
    missing: int
    repeated: int
    strange: int
    """Rows that nobody wrote."""

    @property
    def good(self) -> bool:
        return not (self.missing or self.repeated or self.strange)

    def to_json(self) -> dict[str, Any]:
        return {
            "expected": self.expected,
            "found": self.found,
            "missing": self.missing,
            "repeated": self.repeated,
            "strange": self.strange,
        }


def compare(found: Iterable[int], expected: int) -> Count:
    """Rows against the numbers from 0 up to `expected`."""
    counts = Counter(found)
    wanted = range(expected)
    return Count(
        expected=expected,
        found=sum(counts.values()),
        missing=sum(1 for i in wanted if not counts[i]),
        repeated=sum(n - 1 for n in counts.values()),
        strange=sum(1 for i in counts if not 0 <= i < expected),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program, by its own diary."""

    pid: int
    began: float
    """By the host's monotonic clock."""
    ended: float | None
    how: str
    """finished, failed, or empty when it was cut off."""
    digest: str


def read_diary(file: Path) -> list[Run]:
    """The runs in the order in which they began. A line that was cut off ends the reading."""
    runs: list[Run] = []
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            break
        if entry["what"] == "began":
            runs.append(Run(entry["pid"], entry["at"], None, "", entry["digest"]))
            continue
        for n in reversed(range(len(runs))):
            if runs[n].pid == entry["pid"] and runs[n].ended is None:
                runs[n] = Run(entry["pid"], runs[n].began, entry["at"], entry["how"], runs[n].digest)
                break
    return runs
