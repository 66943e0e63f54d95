"""A shard: a ConfigMap with some of the paths, and the effects of one update of it. Pure: it knows no server.

    data:        epoch           the leadership that may write here
                 holder          the contender that was granted it
                 last-version    the latest version of any value here
                 paths           {"graphs/x": 12, ...}, the version of each
    binaryData:  "12"            the record of that version

An update is computed from one read, and is only written if nothing has changed since: the resourceVersion of the object
guards the epoch and the values alike.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from firesteel.errors import StoreBrokenError, StoreError
from firesteel.ha.kubernetes.names import SHARD, Names
from firesteel.ha.protocols import NEW, Epoch
from firesteel.ha.rules import check_epoch, check_version

FORMAT = "1"
CAPACITY = 700_000
"""The size of one shard in bytes. A ConfigMap may have a mebibyte, which this is when sent in base64."""
SMALL = 300
"""The longest record that may use the reserved space of a shard; a pointer to a file is shorter."""
RESERVED = 200_000
"""Space in a shard that is reserved for small records, so that values that do not fit can become pointers."""

_NUMBER = re.compile(r"[0-9]{1,18}")


class ShardFullError(StoreError):
    """There is no space for the value, but a pointer to it may still fit. Nothing was written."""


class ClaimRefusedError(Exception):
    """The state has an epoch that is not older than the one that claims it."""

    def __init__(self, newest: Epoch) -> None:
        self.newest = newest
        super().__init__(f"the state already belongs to epoch {newest}")


@dataclass(frozen=True, slots=True)
class ShardEntry:
    version: int
    record: str
    """The value in base64, as it is sent: most of a shard is passed through unchanged."""

    @property
    def size(self) -> int:
        return len(self.record) * 3 // 4

    def decoded(self) -> bytes:
        return base64.b64decode(self.record)


@dataclass(frozen=True, slots=True)
class Shard:
    name: str
    metadata: Mapping[str, Any]
    """The object as it was read, with labels and annotations of others."""
    instance: str
    """The instance of the cluster's state; see root.py."""
    shards: int
    epoch: Epoch
    holder: str
    last_version: int
    entries: Mapping[str, ShardEntry]

    @staticmethod
    def made(names: Names, name: str, *, instance: str, shards: int, epoch: Epoch, holder: str) -> Shard:
        """A new shard, which is not written yet."""
        metadata = {"name": name, "namespace": names.namespace, "labels": names.labels(SHARD)}
        return Shard(name, metadata, instance, shards, epoch, holder, 0, {})

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Shard:
        """Read a shard. Raises StoreBrokenError when it is malformed."""
        metadata = raw["metadata"]
        name = metadata["name"]
        data = raw.get("data") or {}
        if (known := data.get("format")) != FORMAT:
            raise StoreBrokenError(
                f"ConfigMap '{name}' has format {known!r:.40}, but this Firesteel knows {FORMAT}; "
                "run the version that wrote it, or undo the edit"
            )
        values = raw.get("binaryData") or {}
        try:
            versions = orjson.loads(data["paths"])
            # A record that was removed by hand is unreadable, but does not affect the others.
            entries = {
                path: ShardEntry(int(version), values.get(str(version), "")) for path, version in versions.items()
            }
            return Shard(
                name=name,
                metadata=_own(metadata),
                instance=data["instance"],
                shards=_number(data["shards"]),
                epoch=Epoch(_number(data["epoch"])),
                holder=data["holder"],
                last_version=max(_number(data["last-version"]), *(e.version for e in entries.values()), 0),
                entries=entries,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreBrokenError(
                f"ConfigMap '{name}' is damaged: {error!r:.200}; undo the edit, or restore it from a backup"
            ) from error

    def raw(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            # The server would keep a list of who wrote which key, which costs time and is never read.
            "metadata": {**self.metadata, "managedFields": [{}]},
            "data": {
                "format": FORMAT,
                "instance": self.instance,
                "shards": str(self.shards),
                "epoch": str(self.epoch),
                "holder": self.holder,
                "last-version": str(self.last_version),
                "paths": _paths(self.entries),
            },
            "binaryData": {str(entry.version): entry.record for entry in self.entries.values()},
        }

    def stored(self, metadata: Mapping[str, Any]) -> Shard:
        """This shard, as the server stored it."""
        return replace(self, metadata=_own(metadata))

    @property
    def size(self) -> int:
        """The approximate size in bytes, as the server counts it."""
        return 500 + sum(len(path) + 30 + entry.size for path, entry in self.entries.items())

    def same_content(self, other: Shard) -> bool:
        return self == replace(other, metadata=self.metadata)

    def below(self, prefix: str) -> Iterator[tuple[str, ShardEntry]]:
        return ((path, entry) for path, entry in self.entries.items() if path.startswith(f"{prefix}/"))


class ShardBatch:
    """The requests of one update. Each sees the effects of those before it; a refused request leaves no trace."""

    def __init__(self, found: Shard) -> None:
        self._found = found
        self._epoch = found.epoch
        self._holder = found.holder
        self._last_version = found.last_version
        self._entries: dict[str, ShardEntry] | None = None
        """A copy, made on the first change."""
        self._size: int | None = None
        self.changes = 0
        """The number of changes so far; with none, there is nothing to write."""

    def result(self) -> Shard:
        return replace(
            self._found,
            epoch=self._epoch,
            holder=self._holder,
            last_version=self._last_version,
            entries=self._found.entries if self._entries is None else self._entries,
        )

    def put(self, path: str, record: bytes, epoch: Epoch, expected: int | None) -> int:
        self.check(path, epoch, expected)
        entry = ShardEntry(self._last_version + 1, base64.b64encode(record).decode())
        size = self._current_size() + len(path) + 30 + entry.size - self._size_of(path)
        if size > CAPACITY - (RESERVED if len(record) > SMALL else 0):
            raise ShardFullError(
                f"ConfigMap '{self._found.name}' has no space for '{path}'; keep fewer ended jobs (jobstore.max-capacity)"
            )
        self._changed_entries()[path] = entry
        self._last_version = entry.version
        self._size = size
        self.changes += 1
        return entry.version

    def delete(self, path: str, epoch: Epoch, expected: int | None) -> bool:
        self.check(path, epoch, expected)
        if self._version(path) == NEW:
            return False
        self._size = self._current_size() - self._size_of(path)
        del self._changed_entries()[path]
        self.changes += 1
        return True

    def claim(self, epoch: Epoch, holder: str) -> None:
        """Let this leadership write here, and no earlier one."""
        if (self._epoch, self._holder) == (epoch, holder):
            return  # claimed by an earlier try whose answer was lost
        if self._epoch >= epoch:
            raise ClaimRefusedError(self._epoch)
        self._epoch, self._holder = epoch, holder
        self.changes += 1

    def check(self, path: str, epoch: Epoch, expected: int | None) -> None:
        """Raise the error with which a write would be refused, if it would be."""
        check_epoch(epoch, self._epoch, f"a write of '{path}'")
        check_version(path, self._version(path), expected)

    def _version(self, path: str) -> int:
        entry = self._now().get(path)
        return entry.version if entry else NEW

    def _now(self) -> Mapping[str, ShardEntry]:
        return self._found.entries if self._entries is None else self._entries

    def _changed_entries(self) -> dict[str, ShardEntry]:
        if self._entries is None:
            self._entries = dict(self._found.entries)
        return self._entries

    def _current_size(self) -> int:
        return self._found.size if self._size is None else self._size

    def _size_of(self, path: str) -> int:
        entry = self._now().get(path)
        return len(path) + 30 + entry.size if entry else 0


def _own(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "managedFields"}


def _paths(entries: Mapping[str, ShardEntry]) -> str:
    return orjson.dumps({path: entry.version for path, entry in entries.items()}, option=orjson.OPT_SORT_KEYS).decode()


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r:.40} is not a number")
    return int(text)
