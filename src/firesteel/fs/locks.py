"""A lock between the processes of one machine, which is released when its holder ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusively(lock: Path) -> Iterator[None]:
    """Wait for the lock that the file `lock` stands for, and hold it. A missing file is created, and stays."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
