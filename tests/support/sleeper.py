"""A process that only runs, in place of a driver or an engine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from firesteel.processes import ProcessIdentity

_PROGRAM = "import time; print('up', flush=True); time.sleep(600)"


@contextlib.contextmanager
def sleeper() -> Iterator[ProcessIdentity]:
    """In a group of its own, as drivers and engines are."""
    child = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    found = ProcessIdentity.of(child.pid)
    assert found is not None
    try:
        yield found
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
