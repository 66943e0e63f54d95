"""The id of the worker that a directory belongs to: drawn once, and the same for every process that ever acts for it."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path

from firesteel.errors import EnvironmentNotReadyError
from firesteel.fs.files import durable_dir, read_json, sync_dir, write_json

WORKER_FILE = "worker.json"
_ID = re.compile(r"w[0-9a-f]{16}")


def worker_id(home: Path) -> str:
    """The id of the worker whose directory is `home`. Whoever asks first draws it; of two at once, both get the same.

    Raises EnvironmentNotReadyError when the file that holds it is damaged: a new id would be a new worker, which would
    not have what the old one had.
    """
    path = durable_dir(home) / WORKER_FILE
    if (known := _read(path)) is not None:
        return known
    with tempfile.TemporaryDirectory(prefix=".worker-", dir=home) as aside:
        drawn = Path(aside) / WORKER_FILE
        write_json(drawn, {"id": f"w{secrets.token_hex(8)}"})
        try:
            os.link(drawn, path)  # whole, and only if nobody else was first
        except FileExistsError:
            pass
        sync_dir(home)
    known = _read(path)
    if known is None:
        raise EnvironmentNotReadyError(f"{path} was removed while this worker was starting; start it again")
    return known


def _read(path: Path) -> str | None:
    try:
        data = read_json(path)
    except ValueError as error:
        raise _damaged(path) from error
    if data is None:
        return None
    known = data.get("id") if isinstance(data, dict) else None
    if not isinstance(known, str) or not _ID.fullmatch(known):
        raise _damaged(path)
    return known


def _damaged(path: Path) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{path} does not hold the id of a worker; restore it, or remove it if no job of this cluster has to be taken over "
        "on this host"
    )
