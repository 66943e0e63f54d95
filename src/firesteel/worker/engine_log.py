"""Keeps the log of an engine for as long as a job that failed on it is remembered.

While an attempt runs, its directory holds a second name (a hard link) for the file: an engine that ends removes only
its own name. An attempt that did not finish keeps the end of the log as it was then; one that finished keeps nothing.
The copy is removed with the other files of the job.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.engines.record import EngineRecord
from firesteel.fs.files import NotAPlainFileError, open_plain, write_atomically

ENGINE_LOG = "engine.log"
KEPT_BYTES = 256 << 10
"""Bytes of the end of the log that are kept for each attempt that did not finish."""


def begin(engine: EngineRecord | None, engines: Path, directory: AttemptDirectory) -> None:
    """The attempt is about to run on `engine`, whose directory is below `engines`.

    The log of an engine that several owners use contains lines about all of them, so none of them gets it.
    """
    if engine is None or engine.spec.owner is None:
        return
    with contextlib.suppress(OSError):  # no such file, another file system: then there is none
        os.link(engines / engine.engine_id / "engine.log", directory.root / ENGINE_LOG)


def end(directory: AttemptDirectory, *, finished: bool) -> None:
    """The attempt is over. May be repeated."""
    kept = directory.root / ENGINE_LOG
    with contextlib.suppress(OSError, NotAPlainFileError):
        if finished:
            kept.unlink(missing_ok=True)
        elif kept.lstat().st_nlink > 1:
            with open_plain(kept, os.O_NOFOLLOW) as log:  # the job could have put something else there
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - KEPT_BYTES))
                text = log.read(KEPT_BYTES)
            if size > KEPT_BYTES:
                text = b"[the first %d bytes are left out]\n" % (size - KEPT_BYTES) + text.partition(b"\n")[2]
            write_atomically(kept, text, durable=False)
