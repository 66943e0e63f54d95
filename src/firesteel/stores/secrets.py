"""Secrets that the nodes of a cluster share, and nobody else has."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

from firesteel.ha.protocols import Epoch, StateStore

_PATH = "cluster/node-key"
_BYTES = 32
_KEPT = 4
"""Leaderships whose keys are remembered: requests that were meant for the last one may still come."""


class NodeKeys:
    """The keys with which nodes vouch for callers: each leader draws one for its leadership, and the others read it.

    Whoever once read a key has nothing any more when the next leader is there. A leader believes only what it drew itself, so
    nothing that a request says makes it ask the store.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._drawn: dict[Epoch, list[bytes]] = {}
        self._read: dict[Epoch, bytes] = {}

    async def draw(self, store: StateStore, epoch: Epoch) -> None:
        """To be called once this node leads, and before others are told so."""
        key = secrets.token_bytes(_BYTES)
        self._drawn.setdefault(epoch, []).append(key)
        while len(self._drawn) > _KEPT:
            del self._drawn[min(self._drawn)]
        await store.put(_PATH, json.dumps({"epoch": epoch, "key": key.hex()}).encode(), epoch=epoch)

    def own(self, epoch: Epoch) -> Sequence[bytes]:
        """What is believed of requests that were passed on to this node in that leadership."""
        return self._drawn.get(epoch, ())

    async def of(self, epoch: Epoch) -> bytes | None:
        """The key for requests to the leader of `epoch`; None when it is not there, or not there any more."""
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
        """The leader did not believe what was signed with it: read it again."""
        self._read.pop(epoch, None)
