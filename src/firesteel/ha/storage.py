"""Values that are too large for the store: they are files in `high-availability.storageDir`, with pointers in the store.

A record of the store is either the value itself or a pointer: the name, the size and the SHA-256 of a file. The file is
written and made durable first, then the pointer, so a pointer always has its file. A crash in between leaves an orphaned
file, which the leader collects (see LargeValues.collect).
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
    """A record has an unknown form, or its file is missing or damaged; the text says which."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a large value is, and how to verify it."""

    name: str
    size: int
    sha256: str

    @staticmethod
    def of(value: bytes, epoch: Epoch) -> Pointer:
        """A new pointer. No two writes share a file, so that collecting an orphan never deletes a file in use."""
        digest = hashlib.sha256(value).hexdigest()
        return Pointer(f"{epoch:010d}-{uuid.uuid4().hex}-{digest}", len(value), digest)

    def encode(self) -> bytes:
        return _POINTER + json.dumps({"name": self.name, "size": self.size, "sha256": self.sha256}).encode()

    @staticmethod
    def decode(record: bytes) -> Pointer | None:
        """The pointer in a record; None when the record holds the value itself. Raises DamagedValueError."""
        if record.startswith(_INLINE):
            return None
        try:
            if not record.startswith(_POINTER):
                raise ValueError(f"it begins with {record[:1]!r}")
            match json.loads(record[1:]):
                case {"name": str(name), "size": int(size), "sha256": str(digest)} if _NAME.fullmatch(name):
                    return Pointer(name, size, digest)
            raise ValueError("its pointer is incomplete")
        except (ValueError, RecursionError) as error:
            raise DamagedValueError(f"it has a form that this Firesteel does not know ({error})") from None

    def check(self, value: bytes | None) -> bytes:
        """Return `value` if it matches the pointer. Raises DamagedValueError."""
        if value is None:
            raise DamagedValueError(f"its file {self.name} in high-availability.storageDir is missing")
        if len(value) != self.size or hashlib.sha256(value).hexdigest() != self.sha256:
            raise DamagedValueError(
                f"its file {self.name} in high-availability.storageDir is damaged: "
                f"it has {len(value)} bytes of {self.size}, or another content"
            )
        return value


def epoch_of(name: str) -> Epoch | None:
    """The epoch that wrote a file; None if the file is not ours."""
    found = _NAME.fullmatch(name)
    return Epoch(int(found[1])) if found else None


class ValueFiles(Protocol):
    """A directory of files that are written once. Its methods block, for use in threads, and raise StoreError."""

    def write(self, name: str, value: bytes) -> None:
        """Write a file; it is durable on return."""
        ...

    def read(self, name: str) -> bytes | None:
        """None when there is no such file."""
        ...

    def names(self) -> list[str]: ...

    def delete(self, name: str) -> None:
        """Delete a file; a missing one is not an error."""
        ...


class LargeValues:
    """Packs values into records and back. Belongs to one event loop.

    Args:
        limit: The size in bytes of the longest record that holds its value itself.
    """

    def __init__(self, files: ValueFiles, *, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._held: set[str] = set()
        """Files that a write of this process is about to point to, or may point to because its answer was lost."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ha-storage")

    def is_large(self, value: bytes) -> bool:
        return len(value) + len(_INLINE) > self._limit

    def inline(self, record: bytes) -> bytes | None:
        """The value in the record itself; None when it is in a file, or unreadable."""
        return record[len(_INLINE) :] if record.startswith(_INLINE) else None

    @contextlib.asynccontextmanager
    async def packed(self, value: bytes, epoch: Epoch, *, refused: tuple[type[Exception], ...]) -> AsyncIterator[bytes]:
        """The record to write in the body of the `async with`; a large value is already in its file.

        Args:
            refused: Errors of the body after which the record is certain not to have been written.
        """
        if not self.is_large(value):
            yield _INLINE + value
            return
        pointer = await self._do(Pointer.of, value, epoch)
        self._held.add(pointer.name)
        try:
            await self._do(self._files.write, pointer.name, value)
        except BaseException:
            # No pointer was sent. What there is of the file is collected like any other orphan.
            self._held.discard(pointer.name)
            raise
        try:
            yield pointer.encode()
        except refused:
            self._held.discard(pointer.name)
            raise
        # After any other error the pointer may be stored, or be stored soon: the file is kept for as long as this epoch.
        self._held.discard(pointer.name)

    async def unpack(self, record: bytes) -> bytes:
        """The value of a record.

        Raises:
            DamagedValueError: It is lost. Read the record again first: it may have been replaced meanwhile.
            StoreUnavailableError: The file is out of reach.
        """
        pointer = Pointer.decode(record)
        if pointer is None:
            return record[len(_INLINE) :]
        return await self._do(lambda: pointer.check(self._files.read(pointer.name)))

    async def collect(self, epoch: Epoch, records: Callable[[], Awaitable[Iterable[bytes]]]) -> int:
        """Delete the files that nothing points to and never will; returns their number.

        The name of a file tells which epoch wrote it, and only the newest epoch can write pointers. So a file of an earlier
        epoch that has no pointer by now never gets one. Files of this epoch are kept while a write of this process is under
        way. Files of later epochs, which a leader that was paused here may see, are not touched.

        Args:
            epoch: The caller's. It must have been the newest at some moment before this call.
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
            logger.info("collected %d orphaned files of the store", len(orphans))
        return len(orphans)

    async def close(self) -> None:
        # Without waiting for a file system that hangs: its answer is no longer needed.
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _do(self, action: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, action, *args)


def _pointed(records: Iterable[bytes]) -> set[str]:
    """The files that records name, including records that are damaged or written by a newer Firesteel."""
    kept = (record for record in records if not record.startswith(_INLINE))
    return {name.group().decode() for record in kept for name in _NAME_BYTES.finditer(record)}
