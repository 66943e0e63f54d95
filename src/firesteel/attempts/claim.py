"""Who may run an attempt: a lock that lives and dies with a process.

A driver that is spawned late, by a leader that was paused and does not know that it no longer leads, must do nothing
when another process runs the attempt, or when the attempt is over. So the first thing that a driver does is to take the
lock of the attempt's directory, and it keeps it until it is done with the attempt, which for most is all its life. It
is a POSIX record lock: the kernel drops it however the process ends, and a child that the driver forks does not have
it. The control plane takes the same lock for the few lines in which it writes down what a driver should find: the spec
before it starts, the result of one that died.

POSIX locks belong to a process, not to a thread, and go when *any* descriptor of the file is closed in that process. Within
the control plane a guard per directory therefore stands around each use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

LOCK = "driver.lock"

NOT_MINE = 75
"""Exit code of a driver that found its attempt taken, over or called off, and did nothing."""

PATIENCE_SECONDS = 2.0
"""How long a driver waits for a holder that has not identified itself: the control plane holds the lock only
briefly."""

_POLL_SECONDS = 0.01
# type, whence, start, length, pid; or start, length, pid, type, whence.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"


def hold(root: Path, taken: tuple[Path, ...], patience: float = PATIENCE_SECONDS) -> bool:
    """In the driver: take the attempt in `root`, for life or until `let_go`. False when another process has it.

    One of the files `taken` says that the holder is a driver, or that the attempt is over: there is nothing to wait for.
    """
    fd = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + patience
    while not _try_lock(fd):
        if time.monotonic() > deadline or any(f.exists() for f in taken):
            os.close(fd)
            return False
        time.sleep(_POLL_SECONDS)
    _HELD.append(fd)
    return True


def let_go() -> None:
    """In the driver: it is done with its attempt."""
    while _HELD:
        os.close(_HELD.pop())


_HELD: list[int] = []
"""Otherwise never closed: the lock goes with the process."""


@contextlib.contextmanager
def claimed(root: Path, *, wait: float = 0.0) -> Iterator[bool]:
    """In the control plane: hold the attempt in `root` for a few lines. Gives False when another process has it, after
    `wait` seconds."""
    with _alone(root):
        fd = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + wait
            while not (locked := _try_lock(fd)) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            yield locked
        finally:
            os.close(fd)


def holder(root: Path) -> int | None:
    """In the control plane: the pid of the process that has the attempt in `root`. Looks without taking, so that a driver
    which tries in the same moment is not turned away."""
    with _alone(root):
        try:
            fd = os.open(root / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            return _holder(fd)
        finally:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # POSIX leaves it open which
        return False
    return True


def _holder(fd: int) -> int | None:
    wanted = (fcntl.F_WRLCK, os.SEEK_SET)
    asked = (0, 0, 0, *wanted) if sys.platform == "darwin" else (*wanted, 0, 0, 0)
    answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, *asked)))
    kind, pid = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else pid


class _Guard:
    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


_GUARDS: WeakValueDictionary[str, _Guard] = WeakValueDictionary()
_GUARDS_LOCK = threading.Lock()


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    key = os.path.realpath(root)
    with _GUARDS_LOCK:
        guard = _GUARDS.setdefault(key, _Guard())
    with guard.lock:
        yield
