"""All nodes of a cluster on one host use one data directory, so that a new leader finds what another node started."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from firesteel.config import Configuration
from firesteel.engines.record import EngineDirectory
from firesteel.errors import InvalidConfigError, Problem, StoreUnavailableError, VersionConflictError
from firesteel.ha.protocols import NEW, Epoch, StateStore
from firesteel.hosts import this_host
from firesteel.layout import ClusterLayout
from firesteel.rest.announcement import running_nodes


class OneDirectory:
    """The leader records the directory of its host in the store; a node with another directory is refused while anything of
    the cluster runs from the recorded one."""

    def __init__(self, configuration: Configuration) -> None:
        host = this_host()
        self._path = f"cluster/directory-{hashlib.sha256(f'{host.name}/{host.machine}'.encode()).hexdigest()[:16]}"
        self._mine = configuration.data.dir.resolve()
        self._cluster = ClusterLayout.of(configuration).home

    async def check(self, store: StateStore) -> None:
        """Check at the start of a node. If the store is unavailable, the leader checks again later."""
        try:
            stored = await store.get(self._path)
        except StoreUnavailableError:
            return
        if stored is not None:
            await asyncio.to_thread(self._refuse, Path(stored.value.decode(errors="replace")))

    async def note(self, store: StateStore, epoch: Epoch) -> None:
        """Record the directory. The leader calls this before it serves."""
        stored = await store.get(self._path)
        value = str(self._mine).encode()
        if stored is not None and stored.value == value:
            return
        if stored is not None:
            await asyncio.to_thread(self._refuse, Path(stored.value.decode(errors="replace")))
        try:
            await store.put(self._path, value, epoch=epoch, expected=NEW if stored is None else stored.version)
        except VersionConflictError:
            pass  # the write had happened, but its answer was lost

    def _refuse(self, other: Path) -> None:
        if other.resolve() == self._mine:
            return
        there = other / self._cluster.relative_to(self._cluster.parents[1])
        if what := _running(there):
            problem = Problem(
                f"{what} of this cluster runs on this host with the data directory {other}, and this node has {self._mine}; "
                "a leader here would see neither its engines nor the files of its jobs",
                f"use the same directory for all nodes of a host (-Ddata.dir={other}), or another high-availability.cluster-id",
                field="data.dir",
            )
            raise InvalidConfigError([problem])


def _running(directory: Path) -> str | None:
    if nodes := running_nodes(directory):
        return f"a node (process {nodes[0].get('pid')})"
    if not ClusterLayout(directory).engines.is_dir():
        return None
    engines = [r for r in EngineDirectory(directory).alive() if not r.shared]
    return f"an engine ({engines[0].engine_id})" if engines else None
