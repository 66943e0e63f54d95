"""Values that do not fit into a shard: in files, with pointers in the shard."""

from __future__ import annotations

from firesteel.ha.storage import LargeValues

INLINE = 8 * 1024
"""The longest record in a shard. With every change the shard is written whole, and etcd keeps each of those for minutes."""


class Bulky(bytes):
    """A value that goes into a file though it is small: its shard is full."""


class ShardValues(LargeValues):
    def is_large(self, value: bytes) -> bool:
        return isinstance(value, Bulky) or super().is_large(value)
