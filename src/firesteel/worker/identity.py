"""The id of the worker that a directory belongs to: drawn once, and the same for every process that ever acts for it."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from firesteel.errors import EnvironmentNotReadyError
from firesteel.fs.files import durable_dir, read_json, sync_dir, write_json
from firesteel.hosts import this_host

WORKER_FILE = "worker.json"
_ID = re.compile(r"w[0-9a-f]{16}")


def worker_id(home: Path) -> str:
    """The id of this host's worker whose directory is `home`. The first process to ask draws it; of two at once, both get the
    same. Hosts that share a directory each have a file in it: what one of them runs, the others cannot see.

    Raises EnvironmentNotReadyError when the file that holds it is damaged: a new id would be a new worker, which would
    not have what the old one had.
    """
    machine = this_host().machine or this_host().name
    path = durable_dir(home) / WORKER_FILE
    worker = _drawn(path, machine)
    if worker.machine not in ("", machine):
        name = hashlib.sha256(machine.encode()).hexdigest()[:16]
        worker = _drawn(home / f"worker-{name}.json", machine)
    return worker.id


@dataclass(frozen=True, slots=True)
class _Worker:
    id: str
    machine: str


def _drawn(path: Path, machine: str) -> _Worker:
    if (known := _read(path)) is not None:
        return known
    with tempfile.TemporaryDirectory(prefix=".worker-", dir=path.parent) as aside:
        drawn = Path(aside) / WORKER_FILE
        write_json(drawn, {"id": f"w{secrets.token_hex(8)}", "machine": machine})
        try:
            os.link(drawn, path)  # whole, and only if nobody else was first
        except FileExistsError:
            pass
        sync_dir(path.parent)
    known = _read(path)
    if known is None:
        raise EnvironmentNotReadyError(f"{path} was removed while this worker was starting; start it again")
    return known


def _read(path: Path) -> _Worker | None:
    try:
        data = read_json(path)
    except ValueError as error:
        raise _damaged(path) from error
    if data is None:
        return None
    known = data.get("id") if isinstance(data, dict) else None
    if not isinstance(known, str) or not _ID.fullmatch(known):
        raise _damaged(path)
    return _Worker(known, str(data.get("machine") or ""))


def _damaged(path: Path) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{path} does not hold the id of a worker; restore it, or remove it if no job of this cluster has to be taken over "
        "on this host"
    )
