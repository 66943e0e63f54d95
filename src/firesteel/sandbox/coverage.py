"""Which directories the sandbox of an engine covers, for jobs that name some that are newer than the engine.

A process is granted what is there when it starts (see `rules`). A driver starts with its job, an engine long before: a
directory that was made next to the way to the data directory meanwhile is closed to it. So the entries of the directories on
the way are noted. A job that needs one that is not among them gets an engine of the next key, which is a new one.

Where a job works in a directory on the way itself, or makes something there, no list of entries helps: it gets the whole.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from firesteel.files import open_plain, private_dir, write_json
from firesteel.sandbox.policy import SandboxPolicy

WHOLE = "whole"
"""The key of an engine from which no file is hidden. Only whoever could open them by hand gets one."""
NOTES = "sandbox.json"


class Paths(NamedTuple):
    """What a job names of this machine: absolute, without links."""

    read: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    """Read, or made when they are not there."""
    directory: tuple[str, ...] = ()
    """Where it works."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.read, *self.made, *self.directory)


class Coverage:
    """Of the owners whom `policy` trusts; the notes of all processes of one data directory are in a file there."""

    def __init__(self, policy: SandboxPolicy, data_dir: Path | None = None) -> None:
        self._hidden = policy.hidden
        self._notes = data_dir / NOTES if data_dir else None

    def whole(self, paths: Paths) -> bool:
        """Whether the job makes entries in a directory on the way."""
        entries = [self._entry(p) for p in (*paths.directory, *paths.made)]
        return any(entry is None or not os.path.lexists(entry) for entry in entries)

    def key(self, paths: Paths) -> str:
        """For the spec of an engine that the job can run on: engines of one key cover the same, or more."""
        if self.whole(paths):
            return WHOLE
        needed = {e: i for p in paths.all if (e := self._entry(p)) is not None and (i := _inode(e)) is not None}
        noted = self._read()
        if noted is None or any(noted["entries"].get(e) != i for e, i in needed.items()):
            noted = {"number": noted["number"] + 1 if noted else 0, "entries": dict(self._entries())}
            self._write(noted)
        return str(noted["number"]) if noted["number"] else ""

    def _entry(self, path: str) -> str | None:
        """The first part of the way to `path` that leads to nothing hidden; None when all of it does."""
        current = "/"
        for name in path.split("/"):
            current = os.path.join(current, name)
            if not self._on_the_way(current):
                return current
        return None

    def _on_the_way(self, path: str) -> bool:
        return any(h.startswith(f"{path.rstrip('/')}/") for h in self._hidden)

    def _entries(self) -> Iterator[tuple[str, int]]:
        ways = {str(parent) for h in self._hidden for parent in Path(h).parents}
        for directory in sorted(w for w in ways if self._on_the_way(w)):
            with contextlib.suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    if not self._on_the_way(entry.path) and not entry.is_symlink():
                        yield entry.path, entry.inode()

    def _read(self) -> dict[str, Any] | None:
        if self._notes is None:
            return None
        try:
            with open_plain(self._notes) as file:
                noted: dict[str, Any] = json.load(file)
            return noted if isinstance(noted["number"], int) and isinstance(noted["entries"], dict) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, noted: dict[str, Any]) -> None:
        if self._notes is not None:
            private_dir(self._notes.parent)
            write_json(self._notes, noted, durable=False)


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None
