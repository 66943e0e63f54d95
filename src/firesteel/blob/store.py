"""The BlobStore keeps files by their content, with owners and quotas. It is the storage part of the BlobServer."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from pathlib import Path
from typing import ParamSpec, TypeVar

from firesteel.blob.accounts import Account, Accounts, Reservation
from firesteel.blob.delivery import Deliveries
from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.blob.shelf import PIECE, SHARDS, BlobInfo, OpenBlob, Shelf, owner_mark
from firesteel.blob.threads import Threads, to_the_end
from firesteel.blob.upload import IncomingBlob
from firesteel.errors import (
    BlobNotFoundError,
    InvalidRequestError,
    Problem,
    StoreFailingError,
    TooLargeError,
)

__all__ = ["BlobInfo", "BlobStore"]

P = ParamSpec("P")
T = TypeVar("T")
Infos = list[BlobInfo]
Keys = list[BlobKey]
THREADS = 4


class BlobStore:
    """Files by their content.

    An `owner` is a name, and sees only what it uploaded itself: a file of another owner looks like one that does not
    exist (S19), even when both uploaded the same bytes. None stands for callers that see all files.

    Every method may raise StoreFailingError when the disk is full or fails; what was stored before is as it was.
    """

    def __init__(self, root: Path, *, max_size: int, quota: int, now: Callable[[], float] = time.time) -> None:
        self._shelf = Shelf(root, now)
        self._max_size = max_size
        self._accounts = Accounts(quota)
        self._deliveries = Deliveries()
        self._now = now
        self._threads = Threads(THREADS, "blob")

    async def open(self) -> None:
        """Make the directories, and remove what uploads left whose process was killed. Before anything else."""
        await self._do("be opened", self._shelf.open)

    async def close(self) -> None:
        await self._threads.close()

    # In

    async def put(self, chunks: AsyncIterator[bytes], *, owner: str, expected: BlobKey | None = None) -> BlobInfo:
        """Store what `chunks` brings, a piece at a time. It can be read once this has returned, and never before (I17).

        The same bytes again cost no space and make the file young. When this raises, or is cancelled, nothing is left of
        the upload; only a cancellation in the last instant may come too late, and the file is there whole.

        Raises:
            TooLargeError: More than the largest file; the rest was not read.
            QuotaExceededError: More than the owner may keep, with what its other uploads are bringing in.
            InvalidRequestError: The bytes are not those that were `expected`.
        """
        upload = IncomingBlob(self._shelf.uploads)
        mark = owner_mark(owner)
        try:
            with (await self._account(mark)).reserve(expected) as reservation:
                await self._receive(chunks, upload, reservation)
                key = await self._do("store the file", upload.finish, self._now())
                if expected is not None and key != expected:
                    raise _unexpected(key, expected)
                # Not to be torn from its accounting by a cancellation.
                await to_the_end(self._install(upload, key, mark, reservation))
        finally:
            await self._threads.run(upload.discard)
        return BlobInfo(key, upload.size, self._now())

    async def _receive(self, chunks: AsyncIterator[bytes], upload: IncomingBlob, reservation: Reservation) -> None:
        size = 0
        gathered = bytearray()  # a client may send single bytes: not each is worth a thread
        async for chunk in chunks:
            size += len(chunk)
            if size > self._max_size:
                raise TooLargeError(f"a file may have at most {self._max_size:,} bytes (blob.max-size)")
            reservation.grow(len(chunk))
            gathered += chunk
            if len(gathered) >= PIECE:
                await self._do("store the file", upload.write, gathered)
                gathered = bytearray()
        await self._do("store the file", upload.write, gathered)

    async def _install(self, upload: IncomingBlob, key: BlobKey, mark: str, reservation: Reservation) -> None:
        await self._do("store the file", self._shelf.install, upload, key, mark)
        reservation.keep(key, upload.size)

    async def touch(self, keys: Collection[BlobKey], *, owner: str | None = None) -> None:
        """Make these files young. A job that names them is accepted after this, and needs them from then on.

        Raises:
            BlobNotFoundError: Names all that are missing. The others are young.
        """
        mark = _mark_of(owner)
        missing = [k for k in sorted(set(keys)) if not await self._do("keep the file", self._shelf.refresh, k, mark)]
        if missing:
            raise _missing(*missing)

    # Out

    async def visible(self, key: BlobKey, owner: str | None) -> bool:
        return await self._do("be read", self._shelf.find, key, _mark_of(owner)) is not None

    async def info(self, key: BlobKey, owner: str | None = None) -> BlobInfo:
        info = await self._do("be read", self._shelf.find, key, _mark_of(owner))
        if info is None:
            raise _missing(key)
        return info

    async def list(self, owner: str | None) -> Infos:
        """The newest first."""
        infos = await self._do("be read", self._shelf.infos, _mark_of(owner))
        return sorted(infos, key=lambda i: (-i.created, i.key))

    async def usage(self, owner: str) -> int:
        """How much of the quota files take, each a block of 4096 bytes at least. What is under way is not in it."""
        return (await self._account(owner_mark(owner))).stored

    async def open_read(
        self, key: BlobKey, owner: str | None = None, *, offset: int = 0, length: int | None = None
    ) -> tuple[BlobInfo, AsyncGenerator[bytes, None]]:
        """A file, and its bytes from `offset` on, `length` of them or as many as there are.

        A client that got all bytes got the right ones (I17). A whole file is checked as it is read: each piece is held
        back until the next one is read, and the last one until the digest of all is known to be the key. If it is not,
        the iterator raises BlobNotFoundError where the last piece would have come, and a client that was told the size
        has too few bytes. A part of a file cannot be checked like that; so the whole file is, before this returns, once
        for each change of the file.

        The file may be removed meanwhile: it can be read to its end.

        Raises:
            BlobNotFoundError: There is none; or its bytes are damaged, and it was put aside.
            InvalidRequestError: `offset` is behind the end.
        """
        handle = await self._open(key, owner)
        info = handle.info
        try:
            end = info.size if length is None else min(info.size, offset + length)
            if not 0 <= offset <= end:
                part = f"{length} bytes from {offset} on" if length is not None else f"byte {offset}"
                raise InvalidRequestError([Problem(f"the file {key} has only {info.size} bytes: cannot read {part}")])
            if (offset, end) == (0, info.size):
                return info, self._whole(key, handle)
            if not await self._do("be read", self._shelf.sound, key, handle):
                raise await self._damaged(key, handle)
            return info, self._part(handle, offset, end)
        except BaseException:
            handle.close()
            raise

    async def _whole(self, key: BlobKey, handle: OpenBlob) -> AsyncGenerator[bytes, None]:
        digest = hashlib.sha256()
        held = b""
        offset = 0
        try:
            while piece := await self._do("be read", handle.read_into, digest, offset):
                if held:
                    yield held
                held = piece
                offset += len(piece)
            if digest.hexdigest() != key:
                raise await self._damaged(key, handle)
            if held:
                yield held
        finally:
            handle.close()

    async def _part(self, handle: OpenBlob, offset: int, end: int) -> AsyncGenerator[bytes, None]:
        try:
            while offset < end and (piece := await self._do("be read", handle.read, min(PIECE, end - offset), offset)):
                yield piece
                offset += len(piece)
        finally:
            handle.close()

    async def materialize(self, ref: BlobRef, into: Path) -> Path:
        """A read-only copy for the process of a job: `<into>/<16 digits of the key>/<name>`.

        Checked while it is copied, and there whole or not at all. Again, it costs a look at the copy; one that was
        changed since is replaced.

        Raises:
            BlobNotFoundError: There is no such file; or its bytes are damaged, and it was put aside.
        """
        what = "copy the file"
        if await self._do(what, self._deliveries.is_there, ref, into):
            return self._deliveries.target(ref, into)
        handle = await self._open(ref.key, None)
        try:
            path = await self._do(what, self._deliveries.deliver, handle, ref, into)
            if path is None:
                raise await self._damaged(ref.key, handle)
        finally:
            handle.close()
        return path

    async def _open(self, key: BlobKey, owner: str | None) -> OpenBlob:
        handle = await self._do("be read", self._shelf.open_file, key, _mark_of(owner))
        if handle is None:
            raise _missing(key)
        return handle

    async def _damaged(self, key: BlobKey, handle: OpenBlob) -> BlobNotFoundError:
        await self._do("put the damaged file aside", self._shelf.put_aside, key, handle)
        self._accounts.drop(key)
        return BlobNotFoundError(
            f"the file {key} was damaged on the server's disk and was quarantined; upload it again"
        )

    # Away

    async def delete(self, key: BlobKey, owner: str | None) -> None:
        """Take a file from its owner, or (None) from all. The bytes are removed with the last owner, at once and even
        if a job needs them: check that first.

        Raises:
            BlobNotFoundError: There is none, or it is not this owner's.
        """
        account = None if owner is None else await self._account(owner_mark(owner))
        await to_the_end(self._delete(key, _mark_of(owner), account))

    async def _delete(self, key: BlobKey, mark: str | None, account: Account | None) -> None:
        if not await self._do("delete the file", self._shelf.release, key, mark):
            raise _missing(key)
        (account or self._accounts).drop(key)

    async def collect(self, needed: Collection[BlobKey], *, grace: float) -> Keys:
        """Remove the files that nothing needs and that were not wanted for `grace` seconds; returns their keys.

        Find out what is needed first, then call this: what is accepted in between was touched, and is young (I13).
        A file that is uploaded or touched in the very instant stays. Two processes that work in one directory can
        collect, upload and touch at any time: each file is removed by only one of them, if it was not wanted between
        check and removal; a process that does want it then keeps it, or is told that it is gone (see `disk`).
        """
        keep = frozenset(needed)
        removed: Keys = []
        for shard in SHARDS:  # one at a time, so that a cancelled call ends soon
            gone = await self._do("be cleaned", self._shelf.collect, shard, keep, grace)
            for key in gone:
                self._accounts.drop(key)
            removed += gone
        await self._do("be cleaned", self._shelf.tidy, grace)
        await self._do("be cleaned", self._shelf.mend)
        self._accounts.forget()
        return removed

    async def _account(self, mark: str) -> Account:
        return self._accounts.get(mark) or self._accounts.learn(
            mark, await self._do("be read", self._shelf.sizes, mark)
        )

    async def _do(self, what: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._threads.run(call, *args, **kwargs)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = f"the file store could not {what}: the disk is full; free some space on the server's disk"
            else:
                message = f"the file store could not {what}: {error.strerror or error}; check the server's disk"
            raise StoreFailingError(message) from error


def _mark_of(owner: str | None) -> str | None:
    return None if owner is None else owner_mark(owner)


def _missing(*keys: BlobKey) -> BlobNotFoundError:
    return BlobNotFoundError(
        f"no such file: {', '.join(keys)} (never uploaded, or removed because no job needed it); upload it again"
    )


def _unexpected(key: BlobKey, expected: BlobKey) -> InvalidRequestError:
    problem = Problem(
        f"the received bytes have the SHA-256 {key}, not {expected} as announced",
        "upload the file again; if this happens again, something on the network path changes it",
    )
    return InvalidRequestError([problem])
