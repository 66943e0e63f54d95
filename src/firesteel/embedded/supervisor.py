"""`firesteel run -d`: the same supervision as an attached run, in a process that nobody waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from firesteel.config import load_configuration
from firesteel.embedded.jobs import JobDirectory
from firesteel.embedded.runner import EmbeddedJob
from firesteel.errors import FiresteelError
from firesteel.files import tail


def detach(directory: JobDirectory, timeout: float = 15.0) -> None:
    """Start a supervisor for a job that is written down, and return once it has taken the job over."""
    log = directory.root / "supervisor.log"
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "firesteel.embedded.supervisor", str(directory.root)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout
    while directory.load().supervisor is None:
        if child.poll() is not None or time.monotonic() > deadline:
            raise FiresteelError(f"the job's supervisor did not start:\n{tail(log)}")
        time.sleep(0.02)
    child.returncode = 0  # it outlives us by design


def main(root: Path) -> int:
    directory = JobDirectory(root)
    launch = directory.launch()
    configuration = load_configuration(
        file=Path(launch["config_file"]) if launch["config_file"] else None, overrides=launch["overrides"]
    )
    job = EmbeddedJob(
        directory, directory.graph(), configuration, cwd=Path(launch["cwd"]), listener=lambda _event: None
    )
    signal.signal(signal.SIGTERM, lambda *_: job.cancel())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir(root)
    record = job.run()
    return 0 if record.failure is None else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
