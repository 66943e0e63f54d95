"""The names of a cluster's objects, and the labels that distinguish them from others."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

from firesteel.errors import InvalidConfigError, Problem, StoreBrokenError

SHARDS = 64
"""The number of shards of a new cluster; an existing one keeps its number. A shard is written whole with every change, and a
new leader has to claim all of them."""

LONGEST_CLUSTER_ID = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

_APP = "app"
_CLUSTER = "firesteel/cluster-id"
_KIND = "firesteel/kind"
LEADER, ROOT, SHARD = "leader", "state", "state-shard"


class Names:
    """The names and labels of one cluster's objects in one namespace."""

    def __init__(self, namespace: str, cluster_id: str) -> None:
        self.namespace = namespace
        self.cluster_id = cluster_id
        self.lease = f"{cluster_id}-leader"
        self.root = f"{cluster_id}-state"

    @staticmethod
    def checked(namespace: str, cluster_id: str) -> Names:
        """Raises InvalidConfigError with all problems."""
        problems = []
        fix = f"write up to {LONGEST_CLUSTER_ID} of a-z, 0-9 and -, with a letter or digit at both ends"
        for field, text in (("high-availability.cluster-id", cluster_id), ("kubernetes.namespace", namespace)):
            if len(text) > LONGEST_CLUSTER_ID or not _LABEL.fullmatch(text):
                problems.append(Problem(f"'{text}' is not a valid name in Kubernetes", fix, field=field))
        if problems:
            raise InvalidConfigError(problems)
        return Names(namespace, cluster_id)

    def shard(self, number: int) -> str:
        return f"{self.cluster_id}-state-{number:02d}"

    def shards(self, count: int) -> list[str]:
        return [self.shard(number) for number in range(count)]

    def shard_of(self, path: str, count: int) -> str:
        return self.shard(zlib.crc32(path.encode()) % count)

    def labels(self, kind: str) -> dict[str, str]:
        return {_APP: "firesteel", _CLUSTER: self.cluster_id, _KIND: kind}

    def selector(self, kind: str) -> str:
        return ",".join(f"{key}={value}" for key, value in self.labels(kind).items())

    def check_ours(self, found: Mapping[str, Any], kind: str) -> None:
        """Refuse an object of another owner under one of our names."""
        metadata = found.get("metadata") or {}
        labels = metadata.get("labels") or {}
        if any(labels.get(key) != value for key, value in self.labels(kind).items()):
            raise StoreBrokenError(
                f"{found.get('kind', 'object')} '{metadata.get('name')}' in namespace '{self.namespace}' does not belong to "
                f"this cluster: it lacks the labels {self.selector(kind)}; set another high-availability.cluster-id, "
                "or put the labels back if they were removed"
            )
