"""One process at a time acts for a worker: a lock that the kernel lets go of however the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def acting_for(home: Path, worker: str) -> Iterator[bool]:
    """Whether this process may act for the worker whose directory is `home`; until the block is left."""
    descriptor = os.open(home / f"{worker}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
