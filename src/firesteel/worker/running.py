"""The process that acts for a worker of this host, as it says itself once a leader has taken it."""

from __future__ import annotations

import os
from pathlib import Path

from firesteel.fs.files import read_json, write_json
from firesteel.processes import ProcessIdentity

FILE = "running.json"


def say_running(home: Path, epoch: int) -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    write_json(home / FILE, {"pid": me.pid, "started": me.started, "epoch": epoch}, durable=False)


def running_worker(home: Path) -> ProcessIdentity | None:
    """The process, if it runs."""
    data = read_json(home / FILE)
    try:
        process = ProcessIdentity(data["pid"], data["started"]) if isinstance(data, dict) else None
    except (KeyError, TypeError):
        return None
    return process if process is not None and process.alive else None
