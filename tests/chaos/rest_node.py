"""A real node with its REST door, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import find_local
from firesteel.client.errors import ClusterError
from firesteel.config import load_configuration
from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.fs.files import tail

START_SECONDS = 90


class RestNode:
    """Started when entered. When left, the node and its engines are ended, whatever their state."""

    def __init__(self, directory: Path, overrides: Mapping[str, str]) -> None:
        self.directory = directory
        self._definitions = {"data.dir": str(directory), "rest.port": "0", **overrides}
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
        self._environ = environ
        self.configuration = load_configuration(overrides=self._definitions, environ=environ)
        self.log = directory / "node.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.token = ""

    def start(self) -> None:
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firesteel.entrypoint", *(f"-D{k}={v}" for k, v in self._definitions.items())],
                stdout=output,
                stderr=output,
                env=self._environ,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = find_local(self.configuration)
            if found is not None and found.process.pid == self.process.pid and found.token is not None:
                self.address, self.token = found.address, found.token
                return
            assert self.process.poll() is None, self.log.read_text()[begin:]
            assert time.monotonic() < deadline, tail(self.log)
            time.sleep(0.05)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def client(self) -> ClusterClient:
        return ClusterClient(self.address, token=self.token)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            try:
                with self.client() as client:
                    for job in client.jobs():
                        if not job.status.terminal:
                            client.job(job.job_id).cancel()
            except ClusterError:
                pass
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        engines = EngineDirectory(self.directory / "clusters" / "default")
        for record in engines.all():
            stop_engine(engines, record, grace=5)
