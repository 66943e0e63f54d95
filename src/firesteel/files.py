"""Small durable files: written whole or not at all, private where they hold secrets."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any


def private_dir(path: Path) -> Path:
    """Make a directory, with its parents, that only its owner can enter; one that is there stays as it is."""
    if not path.parent.exists():
        private_dir(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomically(path: Path, data: str | bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace `path` by a file with this content; a crash leaves the old file or the new one, never a torn one."""
    raw = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        left = memoryview(raw)
        while left:  # a disk that is nearly full takes a part and says so only in the number of bytes
            left = left[os.write(fd, left) :]
        if durable:
            os.fsync(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def write_json(path: Path, value: Any, *, mode: int = 0o600, durable: bool = True) -> None:
    write_atomically(path, json.dumps(value, indent=1) + "\n", mode=mode, durable=durable)


def read_json(path: Path) -> Any:
    """The value in a JSON file; None when the file is not there."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def tail(path: Path, lines: int = 40, limit: int = 64 * 1024) -> str:
    """The last lines of a log, reading no more than `limit` bytes."""
    try:
        with path.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(0, size - limit))
            text = f.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
