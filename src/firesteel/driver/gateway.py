"""The driver's side of the JVM that was started for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from firesteel.attempts.gateway_home import PIPE, connection, log_of, written_process
from firesteel.errors import EngineStartError
from firesteel.fs.files import tail


def take(home: Path, timeout: float = 60.0) -> None:
    """Keep the JVM alive from here on, and let PySpark find it."""
    try:
        # Without waiting: if the process that started the JVM died before us, the JVM is gone, and the pipe has no
        # reader.
        _HELD.append(os.open(home / PIPE, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        raise EngineStartError("the JVM of the classic driver is gone", tail(log_of(home))) from error
    port, secret = connection(home, written_process(home), timeout)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)


_HELD: list[int] = []
"""Open for as long as this process lives."""
