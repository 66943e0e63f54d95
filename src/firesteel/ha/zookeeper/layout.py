"""The layout of the nodes.

    <path.root>/<cluster id>          the version of this layout, and the permanent name of the cluster
                /epoch                its data version is the newest epoch: a write increments it, and a check is the fence
                /leader               the address of the leader, with its epoch
                /election/latch-…     the contenders, ephemeral and sequential; the first one leads
                /state/<a>/<b>:<c>    the value of `a/b/c`; `state/+/a` is that of `a`

All segments after the first form the name of one node, so that one request lists everything below a prefix.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from firesteel.errors import InvalidConfigError, Problem, StoreBrokenError
from firesteel.ha.rules import check_path

FORMAT = 1
_LATCH = re.compile(r".*-([0-9]{10})")
_TOP = "+"
_JOINT = ":"


@dataclass(frozen=True, slots=True)
class Layout:
    cluster: str
    """The path of the cluster's own node."""

    @staticmethod
    def of(root: str, cluster_id: str) -> Layout:
        if not re.fullmatch(r"(/[^/\x00-\x1f\x7f-\x9f]+)*/?", root) or re.search(r"/\.{1,2}(/|\Z)", root) or not root:
            fix = "write an absolute path without `.` and `..`, such as /firesteel"
            field = "high-availability.zookeeper.path.root"
            raise InvalidConfigError([Problem(f"'{root}' is not a ZooKeeper path", fix, field=field)])
        if not cluster_id:
            raise InvalidConfigError([Problem("is empty", "name the cluster", field="high-availability.cluster-id")])
        name = quote(cluster_id, safe="")
        return Layout(f"{root.rstrip('/')}/{name if name.strip('.') else name.replace('.', '%2E')}")

    @property
    def epoch(self) -> str:
        return f"{self.cluster}/epoch"

    @property
    def leader(self) -> str:
        return f"{self.cluster}/leader"

    @property
    def election(self) -> str:
        return f"{self.cluster}/election"

    @property
    def state(self) -> str:
        return f"{self.cluster}/state"

    @property
    def parents(self) -> list[str]:
        """The nodes above the cluster's, outermost first."""
        parts = self.cluster.split("/")[1:-1]
        return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]

    def node(self, path: str) -> str:
        return f"{self.directory(path)}/{_split(path)[1]}"

    def directory(self, path: str) -> str:
        return f"{self.state}/{_split(path)[0]}"

    def below(self, prefix: str) -> tuple[str, str]:
        """The directory of the nodes below a prefix, and the prefix of their names."""
        first, slash, rest = prefix.partition("/")
        return f"{self.state}/{first}", f"{rest.replace('/', _JOINT)}{_JOINT}" if slash else ""

    def path(self, directory: str, name: str) -> str | None:
        """The path that a node in a directory stands for; None when it is not ours."""
        first = directory.rpartition("/")[2]
        path = name if first == _TOP else f"{first}/{name.replace(_JOINT, '/')}"
        try:
            check_path(path)
        except ValueError:
            return None
        return path if self.node(path) == f"{directory}/{name}" else None


def _split(path: str) -> tuple[str, str]:
    first, slash, rest = path.partition("/")
    return (first, rest.replace("/", _JOINT)) if slash else (_TOP, first)


def in_order(latches: list[str]) -> list[str]:
    """The contenders' nodes in the order of their creation. Nodes that were made by hand do not count."""
    return sorted((name for name in latches if _LATCH.fullmatch(name)), key=lambda name: name[-10:])


def encode_cluster(instance: str) -> bytes:
    return json.dumps({"format": FORMAT, "instance": instance}).encode()


def decode_cluster(layout: Layout, raw: bytes) -> str:
    """The permanent name of the cluster."""
    data = _json(raw)
    if not isinstance(data.get("format"), int) or not isinstance(data.get("instance"), str):
        raise StoreBrokenError(
            f"the node {layout.cluster} is not a Firesteel cluster; set another high-availability.cluster-id or "
            "high-availability.zookeeper.path.root"
        )
    if data["format"] > FORMAT:
        raise StoreBrokenError(
            f"the cluster at {layout.cluster} has format {data['format']}, but this Firesteel knows {FORMAT}; run the newer one"
        )
    instance: str = data["instance"]
    return instance


@dataclass(frozen=True, slots=True)
class EpochHolder:
    """The content of the epoch's node: who was granted the epoch."""

    latch: str
    contender: str

    def encode(self) -> bytes:
        return json.dumps({"latch": self.latch, "contender": self.contender}).encode()

    @staticmethod
    def decode(raw: bytes) -> EpochHolder:
        data = _json(raw)
        return EpochHolder(str(data.get("latch", "")), str(data.get("contender", "")))


@dataclass(frozen=True, slots=True)
class Published:
    """The content of the leader's node."""

    epoch: int
    address: str

    def encode(self) -> bytes:
        return json.dumps({"epoch": self.epoch, "address": self.address}).encode()

    @staticmethod
    def decode(raw: bytes) -> Published:
        match _json(raw):
            case {"epoch": int(epoch), "address": str(address)}:
                return Published(epoch, address)
        return Published(0, "")


def _json(raw: bytes) -> dict[str, Any]:
    """The JSON object in a node; an empty one for a new or damaged node."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
