"""The highest epoch that a worker has obeyed, on its disk: it obeys no lower one, also after a restart (I28)."""

from __future__ import annotations

import threading
from pathlib import Path

from firesteel.errors import FencingError
from firesteel.fs.files import read_json, write_json

FILE = "epoch.json"


class ObeyedEpochs:
    def __init__(self, home: Path) -> None:
        self._file = home / FILE
        data = read_json(self._file)
        self._highest = data["epoch"] if isinstance(data, dict) and isinstance(data.get("epoch"), int) else 0
        self._lock = threading.Lock()

    @property
    def highest(self) -> int:
        return self._highest

    def obey(self, epoch: int) -> None:
        """Durable before anything is done for a leader of that epoch. Raises FencingError for an earlier leader."""
        with self._lock:
            self._check(epoch)
            if epoch > self._highest:
                write_json(self._file, {"epoch": epoch})
                self._highest = epoch

    def check(self, epoch: int) -> None:
        with self._lock:
            self._check(epoch)

    def _check(self, epoch: int) -> None:
        if epoch < self._highest:
            raise FencingError(f"this worker obeys the leader of epoch {self._highest}, not that of epoch {epoch}")
