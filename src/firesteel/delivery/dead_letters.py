"""Messages that could not be delivered, one JSON object per line, for a person to look at. Blocks; threads call it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LARGEST = 16 << 20
"""Bytes after which the file is set aside; one older file is kept."""


class DeadLetters:
    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, message_id: str, body: Mapping[str, Any], reason: str) -> None:
        line = json.dumps({"id": message_id, "at": time.time(), "reason": reason, "message": dict(body)})
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._file.exists() and self._file.stat().st_size > LARGEST:
            self._file.replace(self._file.with_name(f"{self._file.name}.1"))
        with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as f:
            f.write(f"{line}\n")
