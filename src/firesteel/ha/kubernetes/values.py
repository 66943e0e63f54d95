"""Values that do not fit into a shard: they are kept in files, with pointers in the shard."""

from __future__ import annotations

from firesteel.ha.storage import LargeValues

INLINE = 8 * 1024
"""The longest record in a shard. Every change writes the whole shard, and etcd keeps each version for minutes."""


class Bulky(bytes):
    """A small value that goes into a file because its shard is full."""


class ShardValues(LargeValues):
    def is_large(self, value: bytes) -> bool:
        return isinstance(value, Bulky) or super().is_large(value)
