"""Values that are too large for a store of small ones: files in `high-availability.storageDir`, pointers in the store.

A record of the store is either the value itself or a pointer: the name, the size and the SHA-256 of a file. The file is
written and made durable first, then the pointer, so a pointer always has its file; a crash in between leaves a file that
nothing points to. Such orphans are collected by the leader (see LargeValues.collect).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from firesteel.ha.protocols import Epoch

T = TypeVar("T")
logger = logging.getLogger(__name__)

_INLINE = b"v"
_POINTER = b"p"
_NAME = re.compile(r"([0-9]{10,})-[0-9a-f]{32}-[0-9a-f]{64}")
_NAME_BYTES = re.compile(_NAME.pattern.encode())
_THREADS = 4


class DamagedValueError(Exception):
    """A record is of no known form, or its file is gone or is not what was written. Says why."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a large value is, and how to know it again."""

    name: str
    size: int
    sha256: str

    @staticmethod
    def of(value: bytes, epoch: Epoch) -> Pointer:
        """A new one: no two writes share a file, so that collecting what one left never takes what another needs."""
        digest = hashlib.sha256(value).hexdigest()
        return Pointer(f"{epoch:010d}-{uuid.uuid4().hex}-{digest}", len(value), digest)

    def encode(self) -> bytes:
        return _POINTER + json.dumps({"name": self.name, "size": self.size, "sha256": self.sha256}).encode()

    @staticmethod
    def decode(record: bytes) -> Pointer | None:
        """The pointer in a record; None when the value itself is there. Raises DamagedValueError."""
        if record.startswith(_INLINE):
            return None
        try:
            if not record.startswith(_POINTER):
                raise ValueError(f"it begins with {record[:1]!r}")
            match json.loads(record[1:]):
                case {"name": str(name), "size": int(size), "sha256": str(digest)} if _NAME.fullmatch(name):
                    return Pointer(name, size, digest)
            raise ValueError("its pointer lacks something")
        except (ValueError, RecursionError) as error:
            raise DamagedValueError(f"it is not of a form that this Firesteel knows ({error})") from None

    def check(self, value: bytes | None) -> bytes:
        """`value`, if it is what this points to."""
        if value is None:
            raise DamagedValueError(f"its file {self.name} in high-availability.storageDir is gone")
        if len(value) != self.size or hashlib.sha256(value).hexdigest() != self.sha256:
            raise DamagedValueError(
                f"its file {self.name} in high-availability.storageDir is damaged: "
                f"{len(value)} bytes of {self.size}, or other ones"
            )
        return value


def epoch_of(name: str) -> Epoch | None:
    """The leadership that wrote a file; None for what is none of ours."""
    found = _NAME.fullmatch(name)
    return Epoch(int(found[1])) if found else None


class ValueFiles(Protocol):
    """A directory of files that are written once. Blocks: threads call it. Raises StoreError and its kinds."""

    def write(self, name: str, value: bytes) -> None:
        """Durable when it returns."""
        ...

    def read(self, name: str) -> bytes | None:
        """None when there is no such file."""
        ...

    def names(self) -> list[str]: ...

    def delete(self, name: str) -> None:
        """No error when it is gone already."""
        ...


class LargeValues:
    """Packs values into records and back. Belongs to one event loop.

    Args:
        limit: The longest record, in bytes, that holds its value itself.
    """

    def __init__(self, files: ValueFiles, *, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._held: set[str] = set()
        """Files that a write of this process points to soon, or pointed to without having been told that it did not."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ha-storage")

    def is_large(self, value: bytes) -> bool:
        return len(value) + len(_INLINE) > self._limit

    def inline(self, record: bytes) -> bytes | None:
        """The value that is in the record itself; None when it is in a file, or cannot be had."""
        return record[len(_INLINE) :] if record.startswith(_INLINE) else None

    @contextlib.asynccontextmanager
    async def packed(self, value: bytes, epoch: Epoch, *, refused: tuple[type[Exception], ...]) -> AsyncIterator[bytes]:
        """The record to write in the body of the `async with`; a large value is in its file by then.

        Args:
            refused: Errors of the body which say that the record was certainly not written.
        """
        if not self.is_large(value):
            yield _INLINE + value
            return
        pointer = await self._do(Pointer.of, value, epoch)
        self._held.add(pointer.name)
        try:
            await self._do(self._files.write, pointer.name, value)
        except BaseException:
            # No pointer was sent. What there is of the file is collected like any other that nothing points to.
            self._held.discard(pointer.name)
            raise
        try:
            yield pointer.encode()
        except refused:
            self._held.discard(pointer.name)
            raise
        # After any other error the pointer may be there, or be there soon: the file is held for as long as this epoch.
        self._held.discard(pointer.name)

    async def unpack(self, record: bytes) -> bytes:
        """The value of a record.

        Raises:
            DamagedValueError: It cannot be had any more. Read the record again first: it may have been replaced meanwhile.
            StoreUnavailableError: The file is out of reach.
        """
        pointer = Pointer.decode(record)
        if pointer is None:
            return record[len(_INLINE) :]
        return await self._do(lambda: pointer.check(self._files.read(pointer.name)))

    async def collect(self, epoch: Epoch, records: Callable[[], Awaitable[Iterable[bytes]]]) -> int:
        """Delete the files that nothing points to and nothing ever will; returns how many.

        The name of a file tells which leadership wrote it, and only the newest one can write pointers. So those of earlier
        ones that have no pointer by now never get one; of this one's own, those that a write of this process has under way
        are held; and those of later ones, which a leader that was paused right here may meet, are not touched.

        Args:
            epoch: Of the caller. It must have been the newest at some moment before this call.
            records: Reads all records of the store. Called once, after the files were listed.
        """
        names = await self._do(self._files.names)
        self._held = {n for n in self._held if (by := epoch_of(n)) is not None and by >= epoch}
        candidates = {n for n in names if (by := epoch_of(n)) is not None and by <= epoch} - self._held
        if not candidates:
            return 0
        orphans = candidates - await self._do(_pointed, await records())
        for name in sorted(orphans):
            await self._do(self._files.delete, name)
        if orphans:
            logger.info("collected %d files of the store that nothing points to", len(orphans))
        return len(orphans)

    async def close(self) -> None:
        # Without waiting for a file system that hangs: nobody needs its answer any more.
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _do(self, action: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, action, *args)


def _pointed(records: Iterable[bytes]) -> set[str]:
    """The files that records name: also damaged ones, and those of a newer Firesteel, whatever their form."""
    kept = (record for record in records if not record.startswith(_INLINE))
    return {name.group().decode() for record in kept for name in _NAME_BYTES.finditer(record)}
