"""The file system operations that the commit of a file sink needs, and the file system that a path stands for.

`FileStore` is the whole interface: `LocalStore` and `FsspecStore` implement it, and the protocol in `log` and `staged`
is written against it. Paths are the store's own spelling (no scheme); the sink keeps the user's spelling for Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from firesteel.errors import CommitConflictError, EnvironmentNotReadyError, InvalidPipelineError, Problem
from firesteel.fs.urls import file_system


class PathKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"


class Move(NamedTuple):
    source: str
    target: str
    size: int


class FileStore(Protocol):
    """Synchronous file operations. Each one is durable when it returns; none of the batch ones is atomic as a whole."""

    @property
    def renames_directories(self) -> bool:
        """Whether a directory can be renamed in one step."""

    def kind(self, path: str) -> PathKind | None:
        """The kind of the entry at `path`; None when there is none."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a small file; None when there is none."""

    def names(self, directory: str) -> list[str]:
        """Names of the direct children; empty when there is no such directory."""

    def sizes(self, root: str, within: Iterable[str] = ("",)) -> dict[str, int]:
        """Every file, hidden or not, below the sub-directories `within` of `root`: path from `root` → bytes."""

    def sizes_of(self, paths: Sequence[str]) -> list[int | None]:
        """Bytes of each of `paths`, None for those that are missing."""

    def make_directory(self, path: str) -> None:
        """Make `path` and its parents; nothing to do where directories are not things."""

    def create(self, path: str, data: bytes) -> bool:
        """Make `path` hold `data`, whole or not at all, unless it exists. True when `path` now holds `data`."""

    def write(self, path: str, data: bytes) -> None:
        """Put `data` at `path`, replacing any previous content."""

    def touch(self, path: str) -> None:
        """Make `path` an empty file, without a temporary beside it."""

    def move(self, moves: Sequence[Move]) -> None:
        """Carry out every move. A source that is gone is fine when its target has the size: another process did it.

        Raises:
            CommitConflictError: source and target are both missing.
        """

    def rename_directory(self, source: str, target: str) -> bool:
        """Rename a directory in one step; `target` does not exist. False when there is no directory at `source`."""

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; a missing one is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; missing is fine."""

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Remove those of `directories` that are empty, in the given order. Never removes one that is not."""


def lost(move: Move, size: int | None) -> CommitConflictError:
    """The error for a decided file that is neither staged nor in place."""
    found = "does not exist" if size is None else f"has {size} bytes"
    return CommitConflictError(
        f"the staged file {move.source} is gone and {move.target} {found}, but {move.size} bytes were committed: "
        "something other than Firesteel removed or replaced it — restore the file, or delete the sink's directory "
        "under _firesteel and run the job again under a new id"
    )


_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "memory": "memory"}
_AZURE = {"abfs", "abfss", "wasb", "wasbs"}
_HDFS = {"hdfs", "webhdfs", "swebhdfs"}
_FIXES = {
    "s3": "pip install s3fs",
    "gs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "hdfs": "set JAVA_HOME, HADOOP_HOME and CLASSPATH for libhdfs, or use the storage option protocol: webhdfs",
    "webhdfs": "pip install requests",
}


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The fsspec file system that a path stands for, and the path as that file system spells it."""

    protocol: str
    root: str
    options: Mapping[str, Any] = field(default_factory=dict)


def locate(path: str, vertex: str, options: Mapping[str, Any]) -> FileLocation:
    """What `path`, as Spark understands it, means to fsspec.

    `options` go to the fsspec file system as they are (keys, endpoints, `host`, `port`). One key is ours: `protocol`
    names the fsspec protocol to use, so that `hdfs://` can be reached as `webhdfs` where no libhdfs is installed.

    Raises:
        InvalidPipelineError: the path is relative, or of a file system that no commit is known for.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        local = path.removeprefix("file:")
        if not local.startswith("/"):
            fix = "use an absolute path: Spark may run in another directory"
            raise InvalidPipelineError([Problem(f"'{path}' is not absolute", fix, vertex=vertex, field="path")])
        return FileLocation("file", local.rstrip("/"))
    if scheme == "file":
        return FileLocation("file", "/" + rest.strip("/"))
    given = {k: v for k, v in options.items() if k != "protocol"}
    authority, _, inside = rest.partition("/")
    inside = inside.strip("/")
    if scheme in _HDFS:
        protocol = options.get("protocol", "hdfs" if scheme == "hdfs" else "webhdfs")
        return FileLocation(protocol, f"/{inside}", {**_hdfs_address(scheme, protocol, authority), **given})
    if scheme in _AZURE:
        container, _, account = authority.partition("@")
        named = {"account_name": account.split(".")[0]} if account else {}
        return FileLocation("abfs", f"{container}/{inside}".rstrip("/"), {**named, **given})
    if scheme in _OBJECT_STORES:
        root = f"{authority}/{inside}".rstrip("/")
        return FileLocation(_OBJECT_STORES[scheme], f"/{root}" if scheme == "memory" else root, given)
    fix = "use a local path, hdfs, s3a, gs or abfss, or set delivery: at-least-once"
    message = f"exactly-once delivery is not supported for '{scheme}://'"
    raise InvalidPipelineError([Problem(message, fix, vertex=vertex, field="path")])


def _hdfs_address(scheme: str, protocol: str, authority: str) -> dict[str, Any]:
    user, _, address = authority.rpartition("@")
    host, _, port = address.partition(":")
    named: dict[str, Any] = {"host": host} if host else {}
    if user:
        named["user"] = user
    if port and (protocol == "hdfs") == (scheme == "hdfs"):  # the RPC port says nothing about the HTTP one
        named["port"] = int(port)
    if scheme == "swebhdfs":
        named["use_https"] = True
    return named


def open_store(location: FileLocation) -> FileStore:
    """The store of a location.

    Raises:
        EnvironmentNotReadyError: the client of that file system is not installed.
    """
    if location.protocol == "file":
        from firesteel.fs.local import LocalStore

        return LocalStore()
    from firesteel.fs.remote import FsspecStore

    try:
        fs = file_system(location.protocol, **location.options)
    except (ImportError, OSError) as e:
        fix = _FIXES.get(location.protocol, "install its fsspec client")
        raise EnvironmentNotReadyError(f"cannot open a sink on {location.protocol}://: {e} — {fix}") from e
    return FsspecStore(
        fs,
        renames=location.protocol in _HDFS,
        # pyarrow's rmdir deletes recursively; only WebHDFS refuses a directory that is not empty.
        refuses_rmdir=location.protocol == "webhdfs",
        slow_copy=location.protocol == "abfs",
    )
