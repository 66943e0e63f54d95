"""Files on HDFS and object stores, through fsspec.

Two dialects. HDFS renames atomically and a rename refuses an existing target; object stores copy and delete, and create
exclusively by a conditional put. Calls that expand globs (`fs.mv`, `fs.rm` of the base class) are avoided: a path may
well contain `[` or `*`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from firesteel.fs.store import Move, PathKind, lost

T = TypeVar("T")
R = TypeVar("R")

_MOVE_TRIES = 3
_COPY_SECONDS = 600.0
"""How long a copy that the service does in the background may take before we give up (and roll forward later)."""


class FsspecStore:
    """FileStore over an fsspec file system; batches run on a small thread pool, as each call is a round trip."""

    def __init__(
        self,
        fs: Any,
        *,
        renames: bool = False,
        refuses_rmdir: bool = False,
        slow_copy: bool = False,
        workers: int = 16,
    ) -> None:
        """
        Args:
            renames: `fs.mv` is one atomic rename that never replaces a file, and directories are real (HDFS).
            refuses_rmdir: a non-recursive `fs.rm` of a directory fails when it is not empty.
            slow_copy: `fs.cp_file` may return before the copy is complete (Azure).
        """
        self._fs = fs
        self._renames = renames
        self._refuses_rmdir = refuses_rmdir
        self._slow_copy = slow_copy
        self._workers = workers

    @property
    def renames_directories(self) -> bool:
        return self._renames

    def _map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) < 2 or self._workers < 2:
            return [function(i) for i in items]
        pool = ThreadPoolExecutor(min(self._workers, len(items)), thread_name_prefix="firesteel-sink")
        try:
            return list(pool.map(function, items))
        finally:
            pool.shutdown(cancel_futures=True)

    def kind(self, path: str) -> PathKind | None:
        info = self._info(path)
        return None if info is None else PathKind.DIRECTORY if info["type"] == "directory" else PathKind.FILE

    def _info(self, path: str) -> dict[str, Any] | None:
        self._fs.invalidate_cache()  # object store clients remember listings; other processes write here too
        try:
            info: dict[str, Any] = self._fs.info(path)
            return info
        except FileNotFoundError:
            return None

    def _size(self, path: str) -> int | None:
        info = self._info(path)
        return None if info is None or info["type"] == "directory" else int(info["size"])

    def read(self, path: str) -> bytes | None:
        try:
            data: bytes = self._fs.cat_file(path)
            return data
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        self._fs.invalidate_cache()
        try:
            paths = self._fs.ls(directory, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({name for p in paths if (name := p.rstrip("/").rpartition("/")[2]) and not _same(p, directory)})

    def sizes(self, root: str, within: Iterable[str] = ("",)) -> dict[str, int]:
        self._fs.invalidate_cache()
        found: dict[str, int] = {}
        for part in self._map(lambda w: self._find(f"{root}/{w}" if w else root), list(within)):
            found.update((path[len(root.strip("/")) + 1 :], size) for path, size in part.items())
        return found

    def _find(self, directory: str) -> dict[str, int]:
        """Path without outer slashes → bytes."""
        try:
            infos = self._fs.find(directory, detail=True)
        except FileNotFoundError:
            return {}
        return {
            name.strip("/"): int(info["size"])
            for name, info in infos.items()
            if info.get("type") == "file" and not _same(name, directory)
        }

    def sizes_of(self, paths: Sequence[str]) -> list[int | None]:
        return self._map(self._size, paths)

    def make_directory(self, path: str) -> None:
        if self._renames:
            self._fs.makedirs(path, exist_ok=True)

    def create(self, path: str, data: bytes) -> bool:
        failure: Exception | None = None
        try:
            if self._renames:
                self._create_by_rename(path, data)
            else:
                self._fs.pipe_file(path, data, mode="create")
        except Exception as e:  # each client has its own word for "exists already"; what stands there decides
            failure = e
        now = self.read(path)
        if now is None:
            raise failure or FileNotFoundError(f"{path} vanished right after it was written")
        # Reading back also settles a put whose answer was lost and that the client then repeated.
        return now == data

    def _create_by_rename(self, path: str, data: bytes) -> None:
        temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        self._fs.pipe_file(temporary, data)
        try:
            self._fs.mv(temporary, path)
        finally:
            if self._info(temporary) is not None:  # WebHDFS answers a refused rename with success
                self._fs.rm_file(temporary)

    def write(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(path, data)

    def touch(self, path: str) -> None:
        self._fs.pipe_file(path, b"")

    def move(self, moves: Sequence[Move]) -> None:
        if self._renames:
            self._map(self.make_directory, sorted({_parent(m.target) for m in moves}))
            self._map(self._rename, moves)
        else:
            self._map(self._copy, moves)

    def _rename(self, move: Move) -> None:
        failure: Exception | None = None
        for _ in range(_MOVE_TRIES):
            try:
                self._fs.mv(move.source, move.target)
            except (OSError, RuntimeError) as e:
                failure = e
            size = self._size(move.target)
            if size == move.size:
                return
            if self._size(move.source) is None:
                raise lost(move, size)
            self.make_directory(_parent(move.target))
        raise failure or OSError(f"{move.source} cannot be renamed to {move.target}")

    def _copy(self, move: Move) -> None:
        try:
            self._fs.cp_file(move.source, move.target)
            if self._slow_copy:
                self._await_copy(move)
            self._fs.rm_file(move.source)
        except FileNotFoundError:
            size = self._size(move.target)
            if size != move.size:
                raise lost(move, size) from None

    def _await_copy(self, move: Move) -> None:
        give_up = time.monotonic() + _COPY_SECONDS
        while self._size(move.target) != move.size:
            if time.monotonic() > give_up:
                raise TimeoutError(
                    f"the copy of {move.source} to {move.target} is not complete; it will be retried later"
                )
            time.sleep(0.2)

    def rename_directory(self, source: str, target: str) -> bool:
        if self.kind(source) is not PathKind.DIRECTORY:
            return False
        with contextlib.suppress(OSError, RuntimeError):  # each client has its own word for it; what is there decides
            self._fs.mv(source, target)
        return self.kind(target) is PathKind.DIRECTORY and self.kind(source) is not PathKind.DIRECTORY

    def remove(self, paths: Iterable[str]) -> None:
        self._map(self._remove, list(paths))

    def _remove(self, path: str) -> None:
        try:
            self._fs.rm_file(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        if self._renames:
            if self._info(path) is not None:
                self._fs.rm(path, recursive=True)
            return
        self._fs.invalidate_cache()
        prefix = path[: len(path) - len(path.lstrip("/"))]
        self.remove([prefix + found for found in self._find(path)])

    def remove_empty(self, directories: Iterable[str]) -> None:
        if not self._refuses_rmdir:
            return
        for directory in directories:
            try:
                self._fs.rm(directory, recursive=False)
            except (OSError, RuntimeError):
                pass


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _same(a: str, b: str) -> bool:
    return a.strip("/") == b.strip("/")
