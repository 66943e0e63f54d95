"""The fenced store in ZooKeeper.

The version of a value is the id of the transaction that wrote it last (`mzxid`): it grows with each write of the whole
ensemble, and so also across a delete and a new write. The servers can only check the data version of a node, which starts
anew with each node. That is enough: while `epoch` is the newest, which the same transaction checks, only the leader that was
granted it writes, and in that leader writes of one path wait for each other. So what was read of a node under that lock,
after the epoch was granted, is still true when the following write is done, or the write's check of the epoch fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Transaction,
)

from firesteel.errors import (
    FencingError,
    StoreBrokenError,
    StoreError,
    StoreFailingError,
    StoreUnavailableError,
    VersionConflictError,
)
from firesteel.ha.protocols import NEW, Epoch, Stored
from firesteel.ha.rules import check_epoch, check_path, check_version
from firesteel.ha.storage import DamagedValueError, LargeValues
from firesteel.ha.zookeeper.client import MultiRead
from firesteel.ha.zookeeper.errors import translated
from firesteel.ha.zookeeper.layout import Layout
from firesteel.ha.zookeeper.session import Session
from firesteel.ha.zookeeper.writer import FencedWriter

logger = logging.getLogger(__name__)

_READ_TOGETHER = 32
_READS_UNDER_WAY = 2
"""One answer is in transit while the next is made. More would only delay proofs of life behind them."""
_REMEMBERED = 20_000
_REFUSED = (FencingError, VersionConflictError, StoreBrokenError, StoreFailingError)
_TRIES = 10


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node as this process left it."""

    epoch: Epoch
    """The epoch that wrote it. What was seen in one leadership proves nothing in another."""
    version: int
    data_version: int


class ZooKeeperStateStore:
    """Reads see every write that was acknowledged before they began, by any node.

    Args:
        leads: Whether it is certain that this node leads.
    """

    def __init__(
        self,
        session: Session,
        layout: Layout,
        writer: FencedWriter,
        values: LargeValues,
        *,
        acl: list[Any],
        leads: Callable[[], bool],
    ) -> None:
        self._session = session
        self._layout = layout
        self._writer = writer
        self._values = values
        self._acl = acl
        self._leads = leads
        self._barrier = Transaction([CheckVersion(layout.epoch, -1)])
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._locks: dict[str, _CountedLock] = {}
        self._closed = False

    # -- reading --------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Stored | None:
        self._check(path)
        damaged: bytes | None = None
        while True:
            try:
                record, stat = await self._up_to_date(GetData(self._layout.node(path), None))
            except NoNodeError:
                return None
            record = record or b""  # kazoo returns None for no bytes
            try:
                return Stored(await self._values.unpack(record), stat.mzxid)
            except DamagedValueError as error:
                if record == damaged:
                    logger.error("the value of '%s' in %s cannot be read: %s", path, self._session.where, error)
                    return Stored(record, stat.mzxid)
                damaged = record  # try once more: a new value may have been written and the old file deleted

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        nodes = {path: self._layout.node(path) for path in await self.paths(prefix)}
        found = await self._read(nodes)
        listed: dict[str, Stored | None] = {}
        elsewhere: list[str] = []
        for path, (record, version) in found.items():
            value = self._values.inline(record)
            listed[path] = None if value is None else Stored(value, version)
            if value is None:
                elsewhere.append(path)
        read = await asyncio.gather(*(self._unpacked(path, *found[path]) for path in elsewhere))
        listed |= zip(elsewhere, read, strict=True)
        return {path: stored for path, stored in listed.items() if stored is not None}

    async def paths(self, prefix: str) -> Sequence[str]:
        self._check(prefix)
        directory, begin = self._layout.below(prefix)
        paths = await self._paths_in(directory)
        return sorted(path for name, path in paths.items() if name.startswith(begin))

    async def _paths_in(self, directory: str) -> dict[str, str]:
        """The paths by name of the node."""
        try:
            names = await self._up_to_date(GetChildren(directory, None))
        except NoNodeError:
            return {}
        return {name: path for name in names if (path := self._layout.path(directory, name)) is not None}

    async def _read(self, nodes: Mapping[str, str]) -> dict[str, tuple[bytes, int]]:
        """Records and versions by path, in the order of `nodes`, without deleted ones."""
        paths = list(nodes)
        limit = asyncio.Semaphore(_READS_UNDER_WAY)

        async def read(some: Sequence[str]) -> list[Any]:
            async with limit:
                answers: list[Any] = await self._session.read(MultiRead([GetData(nodes[path], None) for path in some]))
                return answers

        groups = [paths[n : n + _READ_TOGETHER] for n in range(0, len(paths), _READ_TOGETHER)]
        answers = [answer for group in await asyncio.gather(*map(read, groups)) for answer in group]
        found: dict[str, tuple[bytes, int]] = {}
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, tuple):
                found[path] = (answer[0], answer[1].mzxid)
            elif not isinstance(answer, NoNodeError):
                raise self._unreadable(path, answer)
        return found

    async def _unpacked(self, path: str, record: bytes, version: int) -> Stored | None:
        try:
            return Stored(await self._values.unpack(record), version)
        except DamagedValueError:
            return await self.get(path)  # which reads again and logs the error

    async def _up_to_date(self, request: Any) -> Any:
        """The answer to a read that misses nothing.

        A server may lag behind, and the leader of the ensemble may acknowledge a write through another server before it has
        applied it itself, which its `sync` does not wait for. After a write of our own it cannot lag behind that write, so a
        write that changes nothing is sent first. Our leader needs none: other nodes wrote before it took the epoch, which
        was a write of this session.
        """
        return await self._session.read(*([] if self._leads() else [self._barrier]), request)

    async def records(self) -> Iterable[bytes]:
        """All records, none older than this call."""
        generation = self._session.generation
        directories: list[str] = await self._session.read(self._barrier, GetChildren(self._layout.state, None))
        found: list[bytes] = []
        for name in directories:
            directory = f"{self._layout.state}/{name}"
            try:  # including nodes that are not ours: they might hold pointers too
                children = await self._session.read(GetChildren(directory, None))
            except NoNodeError:
                continue
            read = await self._read({child: f"{directory}/{child}" for child in children})
            found += [record for record, _ in read.values()]
        if self._session.generation != generation:  # the server of a new session may lag behind
            raise StoreUnavailableError(f"the session with {self._session.where} ended during a read; read again")
        return found

    # -- writing --------------------------------------------------------------------------------------------------

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        self._check(path)
        async with self._alone(path), self._packed(path, value, epoch) as record:
            # Nothing is expected and nothing is known: most likely there is no node, and the write itself will show it.
            known = None if expected == NEW and path not in self._seen else await self._known(path, epoch, expected)
            node = self._layout.node(path)
            # A new node is made empty and then written, in one transaction: only a write returns its version.
            make = [Create(node, b"", self._acl, 0), SetData(node, record, 0)]
            change = [SetData(node, record, known.data_version if known and expected is not None else -1)]
            there = known is not None if expected is not None else path in self._seen
            for _ in range(_TRIES):
                try:
                    stat = await self._write(path, epoch, change if there else make, size=len(record))
                except NodeExistsError:
                    if expected is not None:
                        raise self._conflict(path, expected) from None
                    there = True
                except NoNodeError:
                    if there and expected is not None:
                        raise self._conflict(path, expected) from None
                    if not there:
                        await self._make_directory(path, epoch)
                    there = False
                except BadVersionError:
                    raise self._conflict(path, expected) from None
                else:
                    self._remember(path, _Seen(epoch, stat.mzxid, stat.version))
                    return int(stat.mzxid)
            raise StoreError(
                f"'{path}' in {self._session.where} is being changed by another program; stop that program"
            )

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        self._check(path)
        async with self._alone(path):
            known = await self._known(path, epoch, expected)
            if expected == NEW:
                await self._writer.write(epoch, [], doing=f"a write of '{path}'")
                return False
            data_version = known.data_version if known else -1
            try:
                await self._write(path, epoch, [Delete(self._layout.node(path), data_version)])
            except NoNodeError:
                if expected is not None:
                    raise self._conflict(path, expected) from None
                return False
            except BadVersionError:
                raise self._conflict(path, expected) from None
            return True

    async def close(self) -> None:
        self._closed = True

    @contextlib.asynccontextmanager
    async def _packed(self, path: str, value: bytes, epoch: Epoch) -> AsyncIterator[bytes]:
        if self._values.is_large(value):  # no file for a value that would be refused anyway
            check_epoch(epoch, await self._writer.newest_epoch(), f"a write of '{path}'")
        async with self._values.packed(value, epoch, refused=_REFUSED) as record:
            yield record

    async def _write(self, path: str, epoch: Epoch, operations: Sequence[Any], size: int = 0) -> Any:
        self._seen.pop(path, None)  # whatever the outcome
        return await self._writer.write(epoch, operations, size=size, doing=f"a write of '{path}'")

    async def _known(self, path: str, epoch: Epoch, expected: int | None) -> _Seen | None:
        """The node of a path, which has the `expected` version; None when there is none, or no version is expected."""
        if expected is None:
            return None
        seen = self._seen.get(path)
        if seen is None or seen.epoch != epoch:
            stat = await self._up_to_date(Exists(self._layout.node(path), None))
            seen = _Seen(epoch, stat.mzxid, stat.version) if stat else None
        try:
            check_version(path, seen.version if seen else NEW, expected)
        except VersionConflictError:
            # A stale epoch is the more important error.
            await self._writer.write(epoch, [], doing=f"a write of '{path}'")
            raise
        return seen

    async def _make_directory(self, path: str, epoch: Epoch) -> None:
        node = Create(self._layout.directory(path), b"", self._acl, 0)
        with contextlib.suppress(NodeExistsError):
            try:
                await self._writer.write(epoch, [node], doing=f"a write of '{path}'")
            except NoNodeError:
                raise StoreBrokenError(
                    f"{self._session.where}: the znode {self._layout.state} was deleted; stop all nodes of the cluster, "
                    f"restore {self._layout.cluster} or delete all of it, and start again"
                ) from None

    def _conflict(self, path: str, expected: int | None) -> VersionConflictError:
        return VersionConflictError(
            f"'{path}' was not written: the writer expected {'no value' if expected == NEW else expected}, "
            "but it was written or deleted since; read it again"
        )

    def _remember(self, path: str, seen: _Seen) -> None:
        self._seen[path] = seen
        self._seen.move_to_end(path)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    @contextlib.asynccontextmanager
    async def _alone(self, path: str) -> AsyncIterator[None]:
        """Writes of one path, one after the other, in the order of the calls."""
        lock = self._locks.setdefault(path, _CountedLock())
        lock.users += 1
        try:
            async with lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[path]

    def _check(self, path: str) -> None:
        check_path(path)
        if self._closed or self._session.closed:
            raise StoreError(f"the store in {self._session.where} is closed; open it again")

    def _unreadable(self, path: str, error: Exception) -> StoreError:
        return translated(error, f"{self._session.where}: '{path}'")


class _CountedLock(asyncio.Lock):
    users = 0
