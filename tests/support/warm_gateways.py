"""Warm JVMs for classic drivers: one is always waiting, so that a program with RDDs does not wait for Java."""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path

from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineSpec
from firesteel.worker.gateway import Gateway, start_gateway


class WarmGateways:
    """Keeps one unused JVM of one spec. Pays wherever more than one classic script is run."""

    def __init__(self, root: Path, spec: EngineSpec, options: LaunchOptions) -> None:
        self._root = root
        self._spec = spec
        self._options = options
        self._lock = threading.Lock()
        self._waiting: Gateway | None = self._start()

    def take(self, spec: EngineSpec) -> Gateway | None:
        """The waiting JVM, if it is of this spec and still lives; the next one is started at once."""
        if spec != self._spec:
            return None
        with self._lock:
            taken, self._waiting = self._waiting, self._start()
        return taken if taken is not None and taken.process.alive else None

    def close(self) -> None:
        with self._lock:
            if self._waiting is not None:
                self._waiting.stop(grace=0)
                shutil.rmtree(self._waiting.home, ignore_errors=True)
                self._waiting = None

    def _start(self) -> Gateway:
        return start_gateway(self._root / uuid.uuid4().hex[:12], self._spec, self._options, app_name="firesteel-script")
