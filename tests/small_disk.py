"""A disk that is soon full."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def small_disk() -> Iterator[Path | None]:
    """A real file system of a few hundred KB; None where this user may not mount one."""
    directory = Path(tempfile.mkdtemp(prefix="firesteel-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(directory)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield directory if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)
        directory.rmdir()
