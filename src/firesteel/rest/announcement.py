"""The file in which clients of the same user find this machine's nodes. Only the owner can read or write it.

Several nodes of one cluster may run on a machine. The file describes the latest one and lists all of them, so that a client
of a node that dies knows the next one. A node that ends removes its entry; the others remove the entry of a node that was
killed. Where several hosts share the directory, each keeps the entries of the others, and clients use those of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.fs.files import read_json, write_json
from firesteel.hosts import Host, this_host
from firesteel.layout import REST_FILE
from firesteel.processes import ProcessIdentity

logger = logging.getLogger(__name__)

NODES = "nodes"
"""The key under which the file lists all nodes, including the one that it describes."""
LOOK_SECONDS = 2.0
_LOCK_SECONDS = 0.2
"""A node that was suspended while writing must not block others: after so many seconds they write without the lock."""

Node = dict[str, Any]


class Announcement:
    def __init__(self, directory: Path, content: Node) -> None:
        me = ProcessIdentity.of(os.getpid())
        assert me is not None
        self._file = directory / REST_FILE
        self._lock = directory / "rest.lock"
        self._content: Node = {**content, "pid": me.pid, "started": me.started, "host": str(this_host())}
        self._over = False

    def write(self) -> None:
        """Make this the node that the file describes."""
        with self._locked():
            self._write(self._content, [*self._others(), self._content])

    async def keep(self) -> None:
        """Stay listed, whatever other nodes do, and remove nodes that were killed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._over:
                return
            try:
                await asyncio.to_thread(self._tidy)
            except OSError as error:
                logger.warning("this node cannot be announced in %s: %s", self._file, error)

    def take_back(self) -> None:
        """Remove this node, which ends: clients then find another node, or start one."""
        if self._over:
            return
        self._over = True
        with contextlib.suppress(OSError), self._locked():
            there = self._read()
            others = self._others()
            if others:
                said = [n for n in others if _same(n, there)]
                self._write((said or others)[-1], others)
            elif _same(self._content, there) or not _alive(there):
                self._file.unlink(missing_ok=True)

    def others(self) -> list[Node]:
        """The other running nodes of this machine."""
        with contextlib.suppress(OSError):
            return [n for n in self._others() if not _is_elsewhere(n)]
        return []

    def _tidy(self) -> None:
        there = self._read()
        listed = _listed(there)
        if _alive(there) and all(map(_alive, listed)) and any(_same(self._content, n) for n in listed):
            return
        with self._locked():
            if not self._over:
                there, others = self._read(), self._others()
                self._write(there if _alive(there) else self._content, [*others, self._content])

    def _others(self) -> list[Node]:
        there = self._read()
        # A file without a list was written by a node of an earlier version.
        listed = _listed(there) or ([there] if there else [])
        return [n for n in listed if not _same(n, self._content) and _alive(n)]

    def _read(self) -> Node:
        try:
            said = read_json(self._file)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    def _write(self, about: Node, nodes: list[Node]) -> None:
        write_json(
            self._file, {**about, NODES: [{k: v for k, v in n.items() if k != NODES} for n in nodes]}, durable=False
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("a") as lock:
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.005)
            yield


def running_nodes(directory: Path) -> list[Node]:
    """The running nodes of this machine that are announced in a cluster's directory, as far as it can be read."""
    try:
        content = read_json(directory / REST_FILE)
    except (OSError, ValueError):
        return []
    listed = _listed(content) if isinstance(content, dict) else []
    return [n for n in listed if not _is_elsewhere(n) and _alive(n)]


def _listed(content: Node) -> list[Node]:
    listed = content.get(NODES)
    return [n for n in listed if isinstance(n, dict)] if isinstance(listed, list) else []


def _same(one: Node, other: Node) -> bool:
    """Whether two entries are the same node. A process may have several nodes, each at its own address."""
    return all(one.get(k) == other.get(k) for k in ("pid", "started", "address"))


def _is_elsewhere(node: Node) -> bool:
    host = Host.parse(str(node.get("host", "")))
    return host is not None and host.is_elsewhere(this_host(), seen=False)


def _alive(node: Node) -> bool:
    """Whether the node runs or, on another host, may run."""
    if _is_elsewhere(node):
        return True
    try:
        return ProcessIdentity(node["pid"], node["started"]).alive
    except (KeyError, TypeError, ValueError):
        return False
