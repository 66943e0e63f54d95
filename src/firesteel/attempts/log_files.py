"""The files of an attempt that others may read: their names, and how they are opened although a job may have changed them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from firesteel.attempts.attempt import OUTPUT
from firesteel.fs.files import NotAPlainFileError, open_plain

_ATTEMPTS = "attempts"
OPERATORS, RESULT = f"{OUTPUT}/operators.json", f"{OUTPUT}/result.json"
"""The driver's records of Spark's operators, and of the end of its attempt."""
FILES = {
    "stdout": f"{OUTPUT}/stdout.log",
    "stderr": f"{OUTPUT}/stderr.log",
    "events": f"{OUTPUT}/events.jsonl",
    "jvm": "jvm.log",
    "engine": "engine.log",
}
"""The names of logs, and their files. Nothing else can be requested (S4)."""


def regular(path: Path) -> os.stat_result | None:
    """The status of a plain file; None for anything else. A job may have put a link or a pipe there (S4)."""
    try:
        with _parent(path) as parent:
            there = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    return there if stat.S_ISREG(there.st_mode) else None


@contextlib.contextmanager
def _parent(path: Path) -> Iterator[int]:
    """The directory of a file, opened. A job that is not confined can change the directory of its attempt
    (`<job id>/attempts/<n>`, and `output` in it), so links in it are not followed."""
    parts = path.parent.parts
    depth = next((n for n in (3, 4) if parts[-n + 1 : -n + 2] == (_ATTEMPTS,)), 0)
    ours, theirs = path.parents[depth], parts[len(parts) - depth :]
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    parent = os.open(ours, flags)
    try:
        for name in theirs:
            inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
            os.close(parent)
            parent = inner
        yield parent
    finally:
        os.close(parent)


def open_regular(path: Path) -> BinaryIO:
    """Open a plain file for reading. Raises FileNotFoundError for anything else, and never waits for the writer of a pipe."""
    try:
        with _parent(path) as parent:
            return open_plain(path.name, os.O_NOFOLLOW, dir_fd=parent)
    except (OSError, NotAPlainFileError) as error:
        raise FileNotFoundError(str(path)) from error
