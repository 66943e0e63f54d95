"""What the commit of a file sink needs from a file system, and which file system a path means.

`FileStore` is the whole seam: `LocalStore` and `FsspecStore` implement it, the protocol in `log` and `staged` is
written against it. Paths are the store's own spelling (no scheme); the sink keeps the user's spelling for Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from firesteel.errors import CommitConflictError, EnvironmentNotReadyError, InvalidPipelineError, Problem


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"


class Move(NamedTuple):
    source: str
    target: str
    size: int


class FileStore(Protocol):
    """Synchronous file operations. Each one is durable when it returns; none of the batch ones is atomic as a whole."""

    def kind(self, path: str) -> Kind | None:
        """What stands at `path`; None when nothing does."""

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
        """Put `data` at `path`, whatever was there."""

    def touch(self, path: str) -> None:
        """Make `path` an empty file, without a temporary beside it."""

    def move(self, moves: Sequence[Move]) -> None:
        """Carry out every move. A source that is gone is fine when its target has the size: somebody else did it.

        Raises:
            CommitConflictError: source and target are both missing.
        """

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; a missing one is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; missing is fine."""

    def remove_empty(self, directories: Iterable[str]) -> None:
        """Remove those of `directories` that are empty, in the given order. Never removes one that is not."""


def lost(move: Move, size: int | None) -> CommitConflictError:
    """The error for a decided file that is neither staged nor in place."""
    found = "is not there" if size is None else f"has {size} bytes"
    return CommitConflictError(
        f"the staged file {move.source} is gone and {move.target} {found}, {move.size} bytes were committed: "
        "something other than Firesteel removed or replaced it — restore the file, or delete the sink's directory "
        "under _firesteel and run the job again under a new id"
    )


_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "memory": "memory"}
_AZURE = {"abfs", "abfss", "wasb", "wasbs"}
_HDFS = {"hdfs", "webhdfs", "swebhdfs"}
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "hdfs": "pyarrow", "webhdfs": "requests"}


def open_store(path: str, vertex: str, options: Mapping[str, Any]) -> tuple[FileStore, str]:
    """The store that holds `path`, and `path` as that store spells it.

    `options` go to the fsspec file system as they are (keys, endpoints, `host`, `port`). One key is ours: `protocol`
    names the fsspec protocol to use, so that `hdfs://` can be reached as `webhdfs` where no libhdfs is installed.
    """
    from firesteel.sinks.local import LocalStore

    scheme, separator, rest = path.partition("://")
    if not separator:
        local = path.removeprefix("file:")
        if not local.startswith("/"):
            raise _bad_path(
                vertex, f"'{path}' is not absolute", "write the full path: Spark and Firesteel differ in cwd"
            )
        return LocalStore(), local.rstrip("/") or "/"
    if scheme == "file":
        return LocalStore(), "/" + rest.lstrip("/").rstrip("/")
    if scheme in _HDFS:
        return _open_hdfs(scheme, rest, options)
    authority, _, key = rest.partition("/")
    key = key.strip("/")
    if scheme in _AZURE:
        container, _, account = authority.partition("@")
        named = {"account_name": account.split(".")[0]} if account else {}
        fs = _filesystem("abfs", {**named, **options})
        return _remote(fs, slow_copy=True), f"{container}/{key}".rstrip("/")
    if scheme in _OBJECT_STORES:
        root = f"{authority}/{key}".rstrip("/")
        return _remote(_filesystem(_OBJECT_STORES[scheme], options)), f"/{root}" if scheme == "memory" else root
    raise _bad_path(
        vertex,
        f"no exactly-once commit is known for '{scheme}://'",
        "use a local path, hdfs, s3a, gs or abfss, or set delivery: at-least-once",
    )


def _open_hdfs(scheme: str, rest: str, options: Mapping[str, Any]) -> tuple[FileStore, str]:
    protocol = options.get("protocol", "hdfs" if scheme == "hdfs" else "webhdfs")
    authority, _, path = rest.partition("/")
    user, _, address = authority.rpartition("@")
    host, _, port = address.partition(":")
    named: dict[str, Any] = {"host": host} if host else {}
    if user:
        named["user"] = user
    if port and (protocol == "hdfs") == (scheme == "hdfs"):  # the RPC port says nothing about the HTTP one
        named["port"] = int(port)
    if scheme == "swebhdfs":
        named["use_https"] = True
    fs = _filesystem(protocol, {**named, **options})
    # pyarrow's rmdir deletes recursively; only WebHDFS refuses a directory that is not empty.
    return _remote(fs, renames=True, refuses_rmdir=protocol == "webhdfs"), "/" + path.strip("/")


def _remote(fs: Any, *, renames: bool = False, refuses_rmdir: bool = False, slow_copy: bool = False) -> FileStore:
    from firesteel.sinks.remote import FsspecStore

    return FsspecStore(fs, renames=renames, refuses_rmdir=refuses_rmdir, slow_copy=slow_copy)


def _filesystem(protocol: str, options: Mapping[str, Any]) -> Any:
    import fsspec

    try:
        return fsspec.filesystem(protocol, **{k: v for k, v in options.items() if k != "protocol"})
    except ImportError as e:
        package = _PACKAGES.get(protocol, protocol)
        raise EnvironmentNotReadyError(f"a sink on {protocol}:// needs a package: pip install {package} ({e})") from e


def _bad_path(vertex: str, message: str, fix: str) -> InvalidPipelineError:
    return InvalidPipelineError([Problem(message, fix, vertex=vertex, field="path")])
