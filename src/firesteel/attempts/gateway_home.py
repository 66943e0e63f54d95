"""The directory of a JVM that was started for a classic driver, by which it is found and reached."""

from __future__ import annotations

import struct
import time
from pathlib import Path

from firesteel.engines.launcher import WORK
from firesteel.errors import EngineStartError
from firesteel.fs.files import tail
from firesteel.processes import ProcessIdentity

PIPE = "stdin"
"""The JVM lives for as long as a process holds the other end."""


def connection_file(home: Path) -> Path:
    """Where the JVM says how it is reached; it also tells the JVMs of this machine apart."""
    return home / WORK / "connection"


def connection(home: Path, process: ProcessIdentity | None, timeout: float) -> tuple[int, str]:
    """Port and secret of a gateway, once it has written them."""
    file = connection_file(home)
    deadline = time.monotonic() + timeout
    while not file.exists():
        if time.monotonic() > deadline or (process is not None and not process.alive):
            raise EngineStartError("the JVM of the classic driver did not start", tail(log_of(home)))
        time.sleep(0.01)
    data = file.read_bytes()
    port, length = struct.unpack("!ii", data[:8])
    return port, data[8 : 8 + length].decode()


def written_process(home: Path) -> ProcessIdentity | None:
    """The JVM of a gateway, for processes that did not start it; None when it is gone."""
    try:
        pid = int((home / "pid").read_text())
    except (OSError, ValueError):
        return None
    found = ProcessIdentity.of(pid)
    try:
        marked = str(connection_file(home)).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        marked = True  # no /proc here: the pid file is all there is
    return found if marked else None


def log_of(home: Path) -> Path:
    """What the JVM writes. Of an attempt, beside its other logs: the home goes when the attempt has ended."""
    return (home.parent if home.name.startswith("jvm-") else home) / "jvm.log"
