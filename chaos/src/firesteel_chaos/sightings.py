"""What can be seen of a cluster on its own host without asking it: drivers, engines, nodes, and notes of wrapped nodes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firesteel.engines.record import RECORD, EngineDirectory
from firesteel.processes import ProcessIdentity

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Driver:
    job: str
    attempt: int
    process: ProcessIdentity
    taken: float
    """When it took the attempt, by the wall clock of the host."""
    working: bool
    """It is there, and has not told its result: what it still does after that is of no consequence."""
    over: float | None = None
    """When its attempt got its result, by the wall clock, if it has one."""


_Changes = dict[tuple[str, int, ProcessIdentity], Driver]


def _alive(process: ProcessIdentity) -> bool:
    return process.alive


class Drivers:
    """The drivers below a directory of jobs. Directories in which nothing happens are not read again and again.

    Args:
        lives: whether a process lives that the directory names; those of a host of its own have pids of that host.
    """

    def __init__(self, jobs: Path, lives: Callable[[ProcessIdentity], bool] = _alive) -> None:
        self._jobs = jobs
        self._lives = lives
        self._quiet: dict[str, float] = {}
        """Jobs without a driver at work, and when their attempts were last looked at (as the time of the directory)."""
        self._known: dict[tuple[str, int], Driver] = {}

    def look(self) -> list[Driver]:
        """All that changed since the last look; ended ones come before those that took over from them."""
        changed: list[Driver] = []
        for home in _subdirectories(self._jobs):
            attempts = home / "attempts"
            try:
                touched = attempts.stat().st_mtime
            except OSError:
                continue
            if self._quiet.get(home.name) == touched:
                continue
            changed += self._look_at(home.name, attempts)
            working = [d for (job, _), d in self._known.items() if job == home.name and d.working]
            results = all(over_since(d) is not None for d in _subdirectories(attempts))
            if not working and results:
                self._quiet[home.name] = touched
        return changed

    def _look_at(self, job: str, attempts: Path) -> list[Driver]:
        changed: _Changes = {}
        numbers = sorted(int(d.name) for d in _subdirectories(attempts) if d.name.isdigit())
        for number in numbers:
            self._note(job, number, attempts, changed)
        working = [n for n in numbers if (job, n) in self._known and self._known[job, n].working]
        # The first may have ended after it was looked at and before the second was.
        for number in working[:-1]:
            self._note(job, number, attempts, changed)
        ended = [d for d in changed.values() if not d.working]
        return ended + [d for d in changed.values() if d.working]

    def _note(self, job: str, number: int, attempts: Path, changed: _Changes) -> None:
        before = self._known.get((job, number))
        now = _driver(job, number, attempts / str(number), before, self._lives)
        if now is None or now == before:
            return
        if before is not None and before.working and now.process != before.process and not self._lives(before.process):
            # Its name was written over after it had gone: that it has gone is news too.
            changed[job, number, before.process] = replace(before, working=False)
        self._known[job, number] = now
        changed[job, number, now.process] = now


def _driver(
    job: str, number: int, directory: Path, before: Driver | None, lives: Callable[[ProcessIdentity], bool]
) -> Driver | None:
    file = directory / "driver.json"
    try:
        taken = file.stat().st_mtime
        said = json.loads(file.read_text())
        process = ProcessIdentity(said["pid"], said["started"])
    except (OSError, ValueError, KeyError, TypeError):
        # One that goes on to another attempt takes its name away.
        return (
            None if before is None else Driver(job, number, before.process, before.taken, False, over_since(directory))
        )
    if before is not None and process == before.process:
        taken = before.taken
    over = over_since(directory)
    return Driver(job, number, process, taken, over is None and lives(process), over)


def over_since(directory: Path) -> float | None:
    """When an attempt got its result, by the wall clock; None when it has none. One is the leader's, the other the driver's."""
    for result in (directory / "result.json", directory / "output" / "result.json"):
        with contextlib.suppress(OSError):
            return result.stat().st_mtime
    return None


def _subdirectories(directory: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(directory), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


class Engines:
    """The engines that were started from some directories. One that was seen is looked at until it is gone, also when its
    directory has been cleared up by then."""

    def __init__(self, *homes: Path, lives: Callable[[ProcessIdentity], bool] = _alive) -> None:
        self._homes = homes
        self._lives = lives
        self._alive: dict[str, ProcessIdentity] = {}

    def look(self) -> list[tuple[str, ProcessIdentity, bool]]:
        """Name, process, whether it lives."""
        seen = dict(self._alive)
        for home in self._homes:
            # Made only where there is one: looking must leave no trace.
            if any(home.glob(f"engines/*/{RECORD}")):
                seen |= {r.engine_id: r.process for r in EngineDirectory(home).all() if r.process is not None}
        found = [(name, process, self._lives(process)) for name, process in seen.items()]
        self._alive = {name: process for name, process, alive in found if alive}
        return found


def ancestor(pid: int, among: set[int]) -> int | None:
    """Which of some processes a process descends from."""
    for _ in range(8):
        if pid in among:
            return pid
        try:
            pid = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        if pid <= 1:
            return None
    return None


def usage(pid: int) -> dict[str, int] | None:
    """Memory, threads and descriptors of a process; None when it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines() if ":" in line
        )
        return {
            "rss_kb": int(status["VmRSS"].split()[0]),
            "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(_PROC / str(pid) / "fd")),
        }
    except (OSError, KeyError, ValueError):
        return None


class Witnesses:
    """What wrapped nodes wrote down of their own writes: files of JSON lines that grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def look(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in sorted(self._directory.glob("*.jsonl")):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                new = lines.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            found += [json.loads(line) for line in whole.splitlines()]
        return found
