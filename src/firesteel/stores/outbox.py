"""OutboxStore: messages to the outside that must not be lost, stored until they are delivered or given up.

    outbox/<channel>/<message id>

A message is stored before anybody tries to send it, so the next leader sends what this one could not. Sending one twice is
harmless: its id stays the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.ha.protocols import Epoch, StateStore
from firesteel.records import from_json, to_json

from .codec import UnreadableRecordError, decode, encode

logger = logging.getLogger(__name__)

_PREFIX = "outbox"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    message_id: str
    """Letters, digits, dots, dashes and underscores; unique within the channel."""
    created_at: float
    body: Mapping[str, Any]


class OutboxStore:
    def __init__(self, store: StateStore, channel: str) -> None:
        self._store = store
        self._prefix = f"{_PREFIX}/{channel}"

    async def put(self, message: OutboxMessage, *, epoch: Epoch) -> None:
        """Store a message. Repeating it is harmless."""
        await self._store.put(f"{self._prefix}/{message.message_id}", encode(to_json(message)), epoch=epoch)

    async def list(self) -> Sequence[OutboxMessage]:
        """The messages that were not delivered yet, oldest first. Unreadable ones are logged and skipped."""
        found = []
        for path, stored in (await self._store.list(self._prefix)).items():
            try:
                found.append(decode(path, stored.value, lambda data: from_json(data, OutboxMessage)))
            except UnreadableRecordError as error:
                logger.error("skipping an unreadable message: %s", error)
        return sorted(found, key=lambda m: m.created_at)

    async def delete(self, message_id: str, *, epoch: Epoch) -> None:
        await self._store.delete(f"{self._prefix}/{message_id}", epoch=epoch)
