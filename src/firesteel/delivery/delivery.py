"""Messages of one channel, sent in the background.

Nothing waits for a delivery. Messages that were stored in the outbox are retried until they are delivered or too old, across
leaders, and then become dead letters; others are tried a few times. Memory is bounded: with too many messages the oldest ones
that are not stored are dropped, and stored ones wait in the store.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.concurrency import Backoff, OwnedTasks
from firesteel.errors import FencingError, StoreError
from firesteel.ha.protocols import Epoch
from firesteel.stores.outbox import OutboxMessage, OutboxStore

from .dead_letters import DeadLetters

logger = logging.getLogger(__name__)

AT_ONCE = 4
MOST_WAITING = 2000
TRIES_WITHOUT_STORE = 3
RELIST_SECONDS = 60.0


class UndeliverableError(Exception):
    """The receiver refused the message for good; sending it again would not help."""


Send = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Sends a message, given its id and its body. Raises UndeliverableError, or anything else to be tried again."""


@dataclass(order=True, slots=True)
class _Waiting:
    due: float
    number: int
    message: OutboxMessage = field(compare=False)
    stored: bool = field(compare=False)
    delays: Iterator[float] = field(compare=False)
    tries: int = field(default=0, compare=False)


class MessageDelivery:
    """One channel of one leadership."""

    def __init__(
        self,
        channel: str,
        send: Send,
        *,
        outbox: OutboxStore,
        epoch: Epoch,
        dead_letters: DeadLetters,
        on_error: Callable[[BaseException], None],
        backoff: Backoff = Backoff(1.0, 300.0),  # noqa: B008 - frozen
        give_up_after: float = 86_400.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._channel = channel
        self._send = send
        self._outbox = outbox
        self._epoch = epoch
        self._dead_letters = dead_letters
        self._backoff = backoff
        self._give_up_after = give_up_after
        self._now = now
        self._tasks = OwnedTasks(f"delivery-{channel}", on_error)
        self._heap: list[_Waiting] = []
        self._known: set[str] = set()
        self._numbers = itertools.count()
        self._news = asyncio.Event()
        self._sending = 0

    def start(self) -> None:
        self._tasks.start(self._deliver(), "deliver")
        self._tasks.start(self._recover(), "recover")

    async def close(self) -> None:
        """Stop sending. What is in the outbox is for the next leader."""
        await self._tasks.close()

    def offer(self, message_id: str, body: Mapping[str, Any]) -> None:
        """Send a message if that is possible; never waits, and may lose it."""
        if message_id not in self._known:
            self._add(OutboxMessage(message_id, self._now(), body), stored=False)

    async def keep(self, message_id: str, body: Mapping[str, Any]) -> None:
        """Send a message for certain: when this returns, it is stored. Raises StoreError, FencingError."""
        message = OutboxMessage(message_id, self._now(), body)
        await self._outbox.put(message, epoch=self._epoch)
        if message_id not in self._known:
            self._add(message, stored=True)

    @property
    def waiting(self) -> int:
        return len(self._heap) + self._sending

    def _add(self, message: OutboxMessage, *, stored: bool) -> None:
        if len(self._heap) >= MOST_WAITING:
            if stored:
                return  # it is read from the store when there is room
            logger.warning("%s: too many messages wait, and %s is dropped", self._channel, message.message_id)
            return
        self._known.add(message.message_id)
        entry = _Waiting(0.0, next(self._numbers), message, stored, self._backoff.delays())
        heapq.heappush(self._heap, entry)
        self._news.set()

    async def _recover(self) -> None:
        """Read what earlier leaders stored and did not deliver, and what memory had no room for."""
        while True:
            try:
                for message in await self._outbox.list():
                    if message.message_id not in self._known:
                        self._add(message, stored=True)
            except FencingError:
                raise
            except StoreError as error:
                logger.warning("%s: the outbox cannot be read: %s", self._channel, error)
            await asyncio.sleep(RELIST_SECONDS)

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            while self._heap and self._sending < AT_ONCE and self._heap[0].due <= loop.time():
                self._sending += 1
                self._tasks.start(self._try(heapq.heappop(self._heap)), "send")
            pause = self._heap[0].due - loop.time() if self._heap and self._sending < AT_ONCE else None
            try:
                async with asyncio.timeout(None if pause is None else max(pause, 0.001)):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _try(self, entry: _Waiting) -> None:
        message = entry.message
        try:
            await self._send(message.message_id, message.body)
        except FencingError:
            raise
        except Exception as error:
            entry.tries += 1
            for_good = isinstance(error, UndeliverableError)
            old = self._now() - message.created_at > self._give_up_after
            if for_good or old or (not entry.stored and entry.tries >= TRIES_WITHOUT_STORE):
                logger.warning("%s: %s could not be delivered: %s", self._channel, message.message_id, error)
                await self._bury(entry, str(error) or type(error).__name__)
            else:
                entry.due = asyncio.get_running_loop().time() + next(entry.delays)
                if entry.tries == 1:
                    logger.info("%s: %s will be sent again: %s", self._channel, message.message_id, error)
                heapq.heappush(self._heap, entry)
        else:
            await self._done(entry)
        finally:
            self._sending -= 1
            self._news.set()

    async def _bury(self, entry: _Waiting, reason: str) -> None:
        if entry.stored:
            try:
                await asyncio.to_thread(self._dead_letters.write, entry.message.message_id, entry.message.body, reason)
            except OSError as error:
                logger.error("%s: the dead letter could not be written: %s", self._channel, error)
        await self._done(entry)

    async def _done(self, entry: _Waiting) -> None:
        if entry.stored:
            try:
                await self._outbox.delete(entry.message.message_id, epoch=self._epoch)
            except FencingError:
                raise
            except StoreError as error:
                # It is sent again, by this leader or the next one, which is harmless.
                logger.warning("%s: %s stays in the outbox: %s", self._channel, entry.message.message_id, error)
        self._known.discard(entry.message.message_id)
