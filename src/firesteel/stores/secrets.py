"""Secrets that only the nodes of a cluster share."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from firesteel.ha.protocols import Epoch, StateStore

_PATH = "cluster/node-key"
_BYTES = 32
_KEPT = 4
"""The number of leaderships whose keys are remembered: requests for an earlier one may still arrive."""


class NodeKeys:
    """The keys with which nodes vouch for callers: each leader draws one for its leadership, and the other nodes read it.

    A leaked key is worthless under the next leader. A leader only trusts keys that it drew itself, so no request can make it
    query the store.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._drawn: dict[Epoch, list[bytes]] = {}
        self._read: dict[Epoch, bytes] = {}

    async def draw(self, store: StateStore, epoch: Epoch) -> None:
        """Draw a key. Call this once this node leads, before its leadership is published."""
        key = secrets.token_bytes(_BYTES)
        self._drawn.setdefault(epoch, []).append(key)
        while len(self._drawn) > _KEPT:
            del self._drawn[min(self._drawn)]
        await store.put(_PATH, json.dumps({"epoch": epoch, "key": key.hex()}).encode(), epoch=epoch)

    def own(self, epoch: Epoch) -> Sequence[bytes]:
        """The keys that this node accepts on forwarded requests in that leadership."""
        return self._drawn.get(epoch, ())

    async def of(self, epoch: Epoch) -> bytes | None:
        """The key for requests to the leader of `epoch`; None when it is not stored yet, or no longer."""
        if (known := self._read.get(epoch)) is not None:
            return known
        stored = await self._store.get(_PATH)
        try:
            data = json.loads(stored.value) if stored is not None else {}
            drawn_in, key = Epoch(data["epoch"]), bytes.fromhex(data["key"])
        except (ValueError, KeyError, TypeError):
            return None
        if drawn_in != epoch or len(key) != _BYTES:
            return None
        self._read = {epoch: key}
        return key

    def forget(self, epoch: Epoch) -> None:
        """Read the key again next time, as the leader rejected a signature made with it."""
        self._read.pop(epoch, None)
