"""Fenced writes, many in one transaction: what is asked for while another is under way becomes durable together.

Each transaction begins with a check that the data version of the epoch's node is the writer's epoch. So a write of a stale
leader fails in the ensemble itself, at the very point in the order of all writes at which it would have been done (I7).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import (  # type: ignore[import-untyped]
    BadVersionError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.serialization import CheckVersion, Exists, Sync, Transaction  # type: ignore[import-untyped]

from firesteel.concurrency import OwnedTasks
from firesteel.errors import FencingError, StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import check_epoch
from firesteel.ha.zookeeper.errors import ABOUT_A_NODE, translated
from firesteel.ha.zookeeper.layout import Layout
from firesteel.ha.zookeeper.session import Session

logger = logging.getLogger(__name__)

_TOGETHER = 64
"""Writes in one transaction."""
_BYTES_TOGETHER = 512 * 1024
"""Of all values in it, but for the first: servers refuse requests of a megabyte (`jute.maxbuffer`)."""
_UNDER_WAY = 2
"""Transactions at a time: one that the servers work on, and one on its way."""
_WORTH_ANOTHER = 8
"""So many writes wait before a second one goes on its way: small ones cost the servers as much as large ones."""
_LARGEST_EPOCH = 2**31 - 1

_NOT_TO_BLAME = (RolledBackError, RuntimeInconsistency)
"""What a transaction says of those of its operations that did not fail, when another one has."""


class StaleEpochError(Exception):
    """The check of the epoch failed. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Write:
    epoch: Epoch
    operations: Sequence[Any]
    size: int
    future: asyncio.Future[Any]


class FencedWriter:
    """Writes of one path must not be under way at the same time: two in one transaction would have the same version."""

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self._waiting: deque[_Write] = deque()
        self._under_way = 0
        self._tasks = OwnedTasks("zookeeper-writer", lambda error: None)

    async def write(self, epoch: Epoch, operations: Sequence[Any], *, size: int = 0, doing: str) -> Any:
        """What the last one of `operations` answered, once all of them are durable.

        Raises:
            FencingError: `epoch` is not the newest. Nothing was written.
            ABOUT_A_NODE: One of the operations failed. Nothing was written.
            StoreUnavailableError: They may or may not have been done.
        """
        if 1 <= epoch <= _LARGEST_EPOCH:  # -1 would be any version
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Write(epoch, operations, size, future))
            self._start()
            try:
                return await future
            except StaleEpochError:
                pass
        check_epoch(epoch, await self.newest_epoch(), doing)
        raise FencingError(f"{doing} was refused: it was sent by leader {epoch}, which was not the newest")

    async def newest_epoch(self) -> Epoch:
        stat = await self._session.read(Sync(self._layout.cluster), Exists(self._layout.epoch, None))
        if stat is None:
            raise self._gone()
        return Epoch(stat.version)

    async def close(self) -> None:
        """End. What was asked for and is not answered yet may or may not happen."""
        await self._tasks.close()
        _fail(self._waiting, StoreUnavailableError(f"{self._session.where} is being left; nothing was written"))
        self._waiting.clear()

    def _start(self) -> None:
        while self._waiting and self._under_way < _UNDER_WAY:
            if self._under_way and len(self._waiting) < _WORTH_ANOTHER:
                return  # they go with the one that follows
            self._under_way += 1
            self._tasks.start(self._work(), "write")

    async def _work(self) -> None:
        try:
            await asyncio.sleep(0)  # whatever else is asked for in this turn of the event loop comes along
            while group := self._take():
                try:
                    await self._commit(group)
                except Exception as error:
                    logger.exception("a write to %s failed in an unforeseen way", self._session.where)
                    _fail(group, translated(error, self._session.where))
        finally:
            self._under_way -= 1

    def _take(self) -> list[_Write]:
        """The next writes of one epoch, leaving out those whose callers have gone away."""
        group: list[_Write] = []
        size = 0
        while self._waiting and len(group) < _TOGETHER:
            write = self._waiting[0]
            if not write.future.done():
                size += write.size
                if group and (write.epoch != group[0].epoch or size > _BYTES_TOGETHER):
                    break
                group.append(write)
            self._waiting.popleft()
        return group

    async def _commit(self, group: Sequence[_Write]) -> None:
        operations = [CheckVersion(self._layout.epoch, group[0].epoch)]
        for write in group:
            operations += write.operations
        try:
            answers = await self._session.request(Transaction(operations))
        except StoreError as unanswered:
            return _fail(group, unanswered)
        except asyncio.CancelledError:
            _fail(
                group,
                StoreUnavailableError(f"{self._session.where} is being left; a write may or may not have happened"),
            )
            raise
        failed = first_error(answers)
        if failed is None:
            done = 1
            for write in group:
                done += len(write.operations)
                if not write.future.done():
                    write.future.set_result(answers[done - 1])
            return None
        index, error = failed
        if index == 0:
            return _fail(group, StaleEpochError() if isinstance(error, BadVersionError) else self._gone_or(error))
        if len(group) == 1:
            return _fail(group, error if isinstance(error, ABOUT_A_NODE) else translated(error, self._session.where))
        # One of them is to blame, and nothing has been written. Alone, it fails alone.
        await asyncio.gather(*(self._commit([write]) for write in group if not write.future.done()))
        return None

    def _gone_or(self, error: Exception) -> StoreError:
        return self._gone() if isinstance(error, NoNodeError) else translated(error, self._session.where)

    def _gone(self) -> StoreBrokenError:
        return StoreBrokenError(
            f"{self._session.where}: the node {self._layout.epoch} was deleted, and with it who leads; stop every node of "
            f"the cluster, restore {self._layout.cluster} or delete all of it, and start again"
        )


def _fail(group: Iterable[_Write], error: Exception) -> None:
    for write in group:
        if not write.future.done():
            write.future.set_exception(error)


def first_error(answers: Sequence[Any]) -> tuple[int, Exception] | None:
    """Which operation of a transaction failed, and how; None when none did."""
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
            return index, answer
    return None
