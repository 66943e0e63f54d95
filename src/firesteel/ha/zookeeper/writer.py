"""Fenced writes, many in one transaction: those requested while another transaction is under way are combined.

Each transaction begins with a check that the data version of the epoch's node is the writer's epoch. So a write of a stale
leader fails in the ensemble itself, at the very point in the order of all writes at which it would have happened (I7).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
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
from firesteel.errors import FencingError, StoreBrokenError, StoreError
from firesteel.ha.group_commit import GroupCommit, QueuedWrite, WriteOutcome
from firesteel.ha.protocols import Epoch
from firesteel.ha.rules import check_epoch
from firesteel.ha.zookeeper.errors import ABOUT_A_NODE, translated
from firesteel.ha.zookeeper.layout import Layout
from firesteel.ha.zookeeper.session import Session

_TOGETHER = 64
"""Writes in one transaction."""
_BYTES_TOGETHER = 512 * 1024
"""The size of all its values except the first: servers refuse requests of a megabyte (`jute.maxbuffer`)."""
_UNDER_WAY = 2
"""The number of concurrent transactions: one that the servers process, and one in transit."""
_WORTH_ANOTHER = 8
"""A second transaction is sent when so many writes wait: small ones cost the servers as much as large ones."""
_LARGEST_EPOCH = 2**31 - 1

_NOT_TO_BLAME = (RolledBackError, RuntimeInconsistency)
"""The result of the other operations of a transaction in which one has failed."""


class StaleEpochError(Exception):
    """The check of the epoch failed. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Write(QueuedWrite):
    epoch: Epoch
    operations: Sequence[Any]
    size: int


class FencedWriter:
    """Writes of one path must not be under way at the same time: two in one transaction would have the same version."""

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self._tasks = OwnedTasks("zookeeper-writer", lambda error: None)
        self._group = GroupCommit(
            session.where,
            self._commit,
            tasks=self._tasks,
            fits=_fits,
            at_once=_UNDER_WAY,
            worth_another=_WORTH_ANOTHER,
        )

    async def write(self, epoch: Epoch, operations: Sequence[Any], *, size: int = 0, doing: str) -> Any:
        """Return the result of the last of `operations` once all of them are durable.

        Raises:
            FencingError: `epoch` is not the newest. Nothing was written.
            ABOUT_A_NODE: One of the operations failed. Nothing was written.
            StoreUnavailableError: They may or may not have been done.
        """
        if 1 <= epoch <= _LARGEST_EPOCH:  # -1 would match any version
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            try:
                return await self._group.submit(_Write(future, epoch, operations, size))
            except StaleEpochError:
                pass
        check_epoch(epoch, await self.newest_epoch(), doing)
        raise FencingError(f"{doing} was refused: it was sent by the leader of epoch {epoch}, which is not the newest")

    async def newest_epoch(self) -> Epoch:
        stat = await self._session.read(Sync(self._layout.cluster), Exists(self._layout.epoch, None))
        if stat is None:
            raise self._gone()
        return Epoch(stat.version)

    async def close(self) -> None:
        """End. Pending writes may or may not happen."""
        await self._tasks.close()

    async def _commit(self, group: Sequence[_Write]) -> list[WriteOutcome]:
        operations = [CheckVersion(self._layout.epoch, group[0].epoch)]
        for write in group:
            operations += write.operations
        try:
            answers = await self._session.request(Transaction(operations))
        except ABOUT_A_NODE as whole:  # an error of the whole, as each operation has its own result
            raise translated(whole, self._session.where) from whole
        failed = first_error(answers)
        if failed is None:
            ends = itertools.accumulate(len(write.operations) for write in group)
            return [write.done(answers[end]) for write, end in zip(group, ends, strict=True)]
        index, error = failed
        if index == 0:
            stale = StaleEpochError() if isinstance(error, BadVersionError) else self._gone_or(error)
            return [write.failed(stale) for write in group]
        if len(group) == 1:
            about_a_node = isinstance(error, ABOUT_A_NODE)
            return [group[0].failed(error if about_a_node else translated(error, self._session.where))]
        # One of them is to blame, and nothing was written. Done one by one, only that one fails.
        alone = await asyncio.gather(*(self._alone(write) for write in group if not write.future.done()))
        return [outcome for outcomes in alone for outcome in outcomes]

    async def _alone(self, write: _Write) -> list[WriteOutcome]:
        try:
            return await self._commit([write])
        except StoreError as error:
            return [write.failed(error)]

    def _gone_or(self, error: Exception) -> StoreError:
        return self._gone() if isinstance(error, NoNodeError) else translated(error, self._session.where)

    def _gone(self) -> StoreBrokenError:
        return StoreBrokenError(
            f"{self._session.where}: the znode {self._layout.epoch}, which holds the epoch, was deleted; stop all nodes of "
            f"the cluster, restore {self._layout.cluster} or delete all of it, and start again"
        )


def _fits(group: Sequence[_Write], write: _Write) -> bool:
    if len(group) == _TOGETHER or write.epoch != group[0].epoch:
        return False
    return sum(other.size for other in group) + write.size <= _BYTES_TOGETHER


def first_error(answers: Sequence[Any]) -> tuple[int, Exception] | None:
    """The operation of a transaction that failed, with its error; None when none did."""
    for index, answer in enumerate(answers):
        if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
            return index, answer
    return None
