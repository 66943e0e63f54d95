"""The directory of a BlobStore. Everything here blocks, so it is called from threads; any number of them.

    <root>/<first two digits>/<key>     the bytes; their age (mtime) is when they were last wanted
    <root>/owners/<owner's hash>/<key>  an empty file: this owner uploaded them, then
    <root>/uploads/                     files on their way in
    <root>/quarantine/                  files whose bytes were not what their name says, for a person to look at

Nothing needs to be read before it can be used, and no two things have to be changed at once. The bytes are stored
before the mark of their owner: a process that is killed in between leaves bytes that no owner sees and that the
collector removes. The bytes are removed before their marks: a process that is killed in between leaves marks without
bytes, which do not count.

Inside one process a lock per first two digits of the key keeps the steps of one file apart. What two processes on one
directory do to each other is said in `disk`, and comes down to this: a file that is uploaded or wanted in the same
instant in which the other process removes it stays, or is reported as gone and can be uploaded again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from firesteel.blob.disk import (
    Stamp,
    look,
    names,
    put_back,
    refresh,
    same_age,
    set_time,
    take_away,
)
from firesteel.blob.keys import BlobKey, is_blob_key, parse_blob_key
from firesteel.blob.upload import IncomingBlob, sweep
from firesteel.errors import BlobNotFoundError
from firesteel.fs.files import durable_dir, sync_dir

logger = logging.getLogger(__name__)
PIECE = 1 << 20
"""How much is read or written at once."""
QUARANTINED_FOR = 7 * 86400.0
_REMEMBERED = 4096
SHARDS = tuple(f"{n:02x}" for n in range(256))


@dataclass(frozen=True, slots=True)
class BlobInfo:
    key: BlobKey
    size: int
    created: float
    """When the asking owner last uploaded it; for callers that see all files, when it was last wanted."""


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


class OpenBlob:
    """An open file, which stays readable when it is removed or replaced. Closes itself with its last reference."""

    def __init__(self, fd: int, info: BlobInfo) -> None:
        self.fd = fd
        self.info = info

    def read(self, count: int, offset: int) -> bytes:
        return os.pread(self.fd, count, offset)

    def read_into(self, digest: Digest, offset: int) -> bytes:
        piece = self.read(PIECE, offset)
        digest.update(piece)
        return piece

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class Shelf:
    def __init__(self, root: Path, now: Callable[[], float]) -> None:
        self.root = root
        self.uploads = root / "uploads"
        self._owners = root / "owners"
        self._quarantine = root / "quarantine"
        self._now = now
        self._locks = {shard: threading.Lock() for shard in SHARDS}
        self._verified: dict[BlobKey, Stamp] = {}

    def open(self) -> None:
        """Make the directories, and repair what killed processes left."""
        for directory in (self.root, self.uploads, self._owners, self._quarantine):
            durable_dir(directory)
        self.mend()

    def mend(self) -> None:
        """Finish or undo what was left half done. Harmless to live processes that are in the middle of something."""
        if removed := sweep(self.uploads, self._now()):
            logger.info("removed leftovers of %d interrupted uploads in %s", removed, self.uploads)
        for shard in SHARDS:
            with self._locks[shard]:
                put_back(self.root / shard, self._now())
        for mark in names(self._owners):
            put_back(self._owners / mark, self._now())

    # One file

    def install(self, upload: IncomingBlob, key: BlobKey, mark: str) -> None:
        """Put finished bytes where they belong, and note whose they are.

        Bytes that are there already are replaced: that costs no space, makes them young, and heals them if they are
        damaged. When this raises, what was not there before is not there now.
        """
        path = self._path(key)
        with self._lock(key):
            durable_dir(path.parent)
            new = look(path) is None
            marked = look(self._mark(mark, key)) is not None
            mine = os.lstat(upload.path).st_ino
            upload.path.replace(path)
            try:
                sync_dir(path.parent)
                self._put_mark(mark, key)
                if not refresh(path, self._now()):
                    raise BlobNotFoundError(f"the file {key} was deleted while it was being uploaded; upload it again")
            except (OSError, BlobNotFoundError):
                if new:
                    take_away(path, lambda s: s.st_ino == mine)
                if not marked:
                    self._mark(mark, key).unlink(missing_ok=True)
                raise

    def find(self, key: BlobKey, mark: str | None = None) -> BlobInfo | None:
        """The file; None when there is none, or it is not this owner's: the answers are indistinguishable (S19)."""
        with self._lock(key):
            return self._find(key, mark)

    def open_file(self, key: BlobKey, mark: str | None = None) -> OpenBlob | None:
        with self._lock(key):
            info = self._find(key, mark)
            if info is None:
                return None
            try:
                return OpenBlob(os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), info)
            except FileNotFoundError:
                return None

    def refresh(self, key: BlobKey, mark: str | None = None) -> bool:
        """Make a file young, so that the collector leaves it. False: there is none."""
        with self._lock(key):
            return self._find(key, mark) is not None and refresh(self._path(key), self._now())

    def release(self, key: BlobKey, mark: str | None) -> bool:
        """Take a file from one owner, or from all; it goes with the last one. False: there is none."""
        path = self._path(key)
        with self._lock(key):
            there = look(path)
            if there is None or self._find(key, mark) is None:
                return False
            for owner in self._marks_of(key) if mark is None else [mark]:
                self._mark(owner, key).unlink(missing_ok=True)
            if not self._marks_of(key):
                take_away(path, partial(same_age, there))
        return True

    # Their content

    def sound(self, key: BlobKey, handle: OpenBlob) -> bool:
        """Whether the bytes are those of the key. Read whole once; then again only after the file has changed."""
        stamp = Stamp.of(os.fstat(handle.fd))
        if self._verified.get(key) == stamp:
            return True
        digest = hashlib.sha256()
        offset = 0
        while piece := handle.read(PIECE, offset):
            digest.update(piece)
            offset += len(piece)
        if digest.hexdigest() != key:
            return False
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[key] = stamp
        return True

    def put_aside(self, key: BlobKey, handle: OpenBlob) -> None:
        """Move the damaged file that is open here into quarantine, unless a sound one has replaced it meanwhile."""
        damaged = os.fstat(handle.fd).st_ino  # no other file can have this number while the handle is open
        aside = self._quarantine / f"{key}.{secrets.token_hex(4)}"
        with self._lock(key):
            moved = take_away(self._path(key), lambda s: s.st_ino == damaged, aside)
        if moved:
            set_time(aside, self._now())
            logger.error("the bytes of file %s are damaged; it was moved to %s", key, aside)

    # All files

    def infos(self, mark: str | None) -> list[BlobInfo]:
        keys = self._keys() if mark is None else (BlobKey(n) for n in names(self._owners / mark) if is_blob_key(n))
        return [info for key in keys if (info := self.find(key, mark)) is not None]

    def sizes(self, mark: str) -> dict[BlobKey, int]:
        return {info.key: info.size for info in self.infos(mark)}

    def collect(self, shard: str, needed: Collection[BlobKey], grace: float) -> list[BlobKey]:
        return [k for k in self._keys(shard) if k not in needed and self._collect_one(k, grace)]

    def tidy(self, grace: float) -> None:
        """Remove the marks of what is gone, and what has been in quarantine for long."""
        for mark in names(self._owners):
            for name in names(self._owners / mark):
                path = self._owners / mark / name
                there = look(path)
                if there is None or not self._older(there, grace):
                    continue
                if not is_blob_key(name) or look(self._path(BlobKey(name))) is None:
                    take_away(path, partial(same_age, there))
        for name in names(self._quarantine):
            path = self._quarantine / name
            if (there := look(path)) is not None and self._older(there, QUARANTINED_FOR):
                path.unlink(missing_ok=True)

    def _collect_one(self, key: BlobKey, grace: float) -> bool:
        path = self._path(key)
        with self._lock(key):
            there = look(path)
            if there is None or not self._older(there, grace):
                return False
            # Before the bytes go: a mark that is put while they do is put for new bytes, and has another age.
            marks = {m: s for m in self._marks_of(key) if (s := look(self._mark(m, key))) is not None}
            if not take_away(path, partial(same_age, there)):
                return False
            for mark, seen in marks.items():
                take_away(self._mark(mark, key), partial(same_age, seen))
        self._verified.pop(key, None)
        return True

    def _older(self, there: os.stat_result, age: float) -> bool:
        return self._now() - there.st_mtime > age

    def _find(self, key: BlobKey, mark: str | None) -> BlobInfo | None:
        there = look(self._path(key))
        if there is None or not stat.S_ISREG(there.st_mode):
            return None
        dated = there if mark is None else look(self._mark(mark, key))
        return None if dated is None else BlobInfo(key, there.st_size, dated.st_mtime)

    def _keys(self, shard: str | None = None) -> Iterator[BlobKey]:
        for directory in SHARDS if shard is None else (shard,):
            yield from (BlobKey(n) for n in names(self.root / directory) if is_blob_key(n))

    def _marks_of(self, key: BlobKey) -> list[str]:
        return [m for m in names(self._owners) if look(self._mark(m, key)) is not None]

    def _put_mark(self, mark: str, key: BlobKey) -> None:
        path = self._mark(mark, key)
        durable_dir(path.parent)
        for _ in range(100):  # each further round needs another process that takes it away in this very instant
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            os.close(fd)
            if refresh(path, self._now()):
                sync_dir(path.parent)
                return
        raise FileNotFoundError(f"{path} keeps being removed")

    def _lock(self, key: BlobKey) -> threading.Lock:
        return self._locks[parse_blob_key(key)[:2]]

    def _path(self, key: BlobKey) -> Path:
        return self.root / key[:2] / parse_blob_key(key)  # unchecked by the caller: no other path is made here (S4)

    def _mark(self, mark: str, key: BlobKey) -> Path:
        return self._owners / mark / key


def owner_mark(owner: str) -> str:
    """An owner as the name of a directory, safe for any characters in the owner's name (S5)."""
    return hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()
