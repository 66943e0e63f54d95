"""A lock between the processes of one machine, which goes with whoever holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusively(lock: Path) -> Iterator[None]:
    """Wait for the lock that the file `lock` stands for, and hold it. The file is made where it is missing, and stays."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
