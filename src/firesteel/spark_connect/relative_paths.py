"""Resolves relative paths in a script as `python program.py` would: against the directory where it was started.

Spark resolves them in the JVM, whose working directory is that of an engine (or of a JVM that was started ahead of time). So
they are made absolute before they get there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_PATH_OPTIONS = ("checkpointlocation", "path")


def absolute(path: str | None, base: Path) -> str | None:
    """`path`, made absolute unless it is, or names a file system."""
    if not path or urlsplit(path).scheme or Path(path).is_absolute():
        return path
    return str(base / path)


def for_connect(base: Path) -> None:
    """Where PySpark's Connect client puts a path into a plan: reads, writes, and streams of both."""
    from pyspark.sql.connect import plan
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    read = plan.DataSource.plan
    write = plan.WriteOperation.command
    start = DataStreamWriter._start_internal

    def read_plan(self: Any, session: Any) -> Any:
        self._paths = [absolute(p, base) for p in self._paths or []]
        return read(self, session)

    def write_command(self: Any, session: Any) -> Any:
        self.path = absolute(self.path, base)
        return write(self, session)

    def start_internal(self: Any, path: str | None = None, *args: Any, **kwargs: Any) -> Any:
        for options in (self._write_proto.options, kwargs):
            for name in [n for n in options if n.lower() in _PATH_OPTIONS]:
                options[name] = absolute(options[name], base)
        return start(self, absolute(path, base), *args, **kwargs)

    plan.DataSource.plan = read_plan
    plan.WriteOperation.command = write_command
    DataStreamWriter._start_internal = start_internal


def for_classic(base: Path) -> None:
    """Hadoop takes the working directory from a property of the JVM when its file system is first used."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    SparkContext._jvm.java.lang.System.setProperty("user.dir", str(base))
