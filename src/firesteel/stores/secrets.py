"""Secrets that the nodes of a cluster share, and nobody else has."""

from __future__ import annotations

import secrets

from firesteel.errors import VersionConflictError
from firesteel.ha.protocols import NEW, Epoch, StateStore

_PATH = "cluster/node-key"
_BYTES = 32


async def ensure_node_key(store: StateStore, epoch: Epoch) -> None:
    """The first leader of a cluster draws the key with which nodes vouch for callers; it stays."""
    if await store.get(_PATH) is None:
        try:
            await store.put(_PATH, secrets.token_bytes(_BYTES), epoch=epoch, expected=NEW)
        except VersionConflictError:
            pass  # an answer got lost, and the write had happened


class NodeKey:
    """Reads the key once."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._key: bytes | None = None

    async def __call__(self) -> bytes:
        """Random bytes that nobody else has, as long as the cluster has no key yet: nothing is taken for signed then."""
        if self._key is None:
            stored = await self._store.get(_PATH)
            if stored is None or len(stored.value) != _BYTES:
                return secrets.token_bytes(_BYTES)
            self._key = stored.value
        return self._key
