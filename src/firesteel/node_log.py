"""The log of a node that runs in the background: it rotates, even for output that does not come from logging (S43).

The command that starts the node opens the file as its standard output and error, so that no output of a node that dies early
is lost. From then on the node manages it: a full file becomes `node.log.1`, and output of the interpreter or of libraries
goes to the new file too. Several nodes may share the file: when one has rotated it, the others follow.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from firesteel.config.sections import LogFormat
from firesteel.fs.locks import exclusively
from firesteel.log_context import JsonFormatter, TextFormatter

MAX_BYTES = 16 << 20
KEPT = 4


class NodeLog(RotatingFileHandler):
    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=kept, encoding="utf-8", errors="replace")

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - as in logging
        self._follow()
        return bool(super().shouldRollover(record))

    def doRollover(self) -> None:  # noqa: N802 - as in logging
        old = _identity(self.stream.fileno()) if self.stream else None
        with exclusively(Path(self.baseFilename).with_name(f".{Path(self.baseFilename).name}.lock")):
            if old == _identity(self.baseFilename):  # else another node was faster
                super().doRollover()
            else:
                self._reopen()
        self._redirect(old)

    def _follow(self) -> None:
        """Reopen the file if another process has rotated the log."""
        old = _identity(self.stream.fileno()) if self.stream else None
        if old != _identity(self.baseFilename):
            self._reopen()
            self._redirect(old)

    def _reopen(self) -> None:
        if self.stream:
            self.stream.close()
        self.stream = self._open()

    def _redirect(self, old: tuple[int, int] | None) -> None:
        """Send standard output and error to the log file."""
        if self.stream is None or old is None:
            return
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):
                if _identity(descriptor) == old:
                    os.dup2(self.stream.fileno(), descriptor)


def log_to(path: Path | None) -> None:
    """Write the log to a file that rotates, or to standard error."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr) if path is None else NodeLog(path)
    handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def log_as(line_format: LogFormat) -> None:
    """Set the log format once the configuration is known; until then lines are text."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter() if line_format is LogFormat.JSON else TextFormatter())


def _identity(file: int | str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
