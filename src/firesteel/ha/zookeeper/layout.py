"""Which node holds what.

    <path.root>/<cluster id>          what the cluster is: the version of this layout, and its name for good
                /epoch                its data version is the newest epoch: a bump is a write, and a check is the fence
                /leader               the address of the leader, with its epoch
                /election/latch-…     the contenders, ephemeral and sequential; the first one leads
                /state/<a>/<b>:<c>    the value of `a/b/c`; `state/+/a` is that of `a`

The segments behind the first are one node's name, so that one request lists all that is below a prefix.
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
            raise InvalidConfigError([Problem(f"'{root}' is not a path of ZooKeeper", fix, field=field)])
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
        """The directory with all that is below a prefix, and how the names there begin."""
        first, slash, rest = prefix.partition("/")
        return f"{self.state}/{first}", f"{rest.replace('/', _JOINT)}{_JOINT}" if slash else ""

    def path(self, directory: str, name: str) -> str | None:
        """Which path a node in a directory is for; None when it is no node of ours."""
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
    """The contenders' nodes as they came. Others, which somebody put there by hand, do not count."""
    return sorted((name for name in latches if _LATCH.fullmatch(name)), key=lambda name: name[-10:])


def encode_cluster(instance: str) -> bytes:
    return json.dumps({"format": FORMAT, "instance": instance}).encode()


def decode_cluster(layout: Layout, raw: bytes) -> str:
    """The cluster's name for good."""
    data = _json(raw)
    if not isinstance(data.get("format"), int) or not isinstance(data.get("instance"), str):
        raise StoreBrokenError(
            f"the node {layout.cluster} is not that of a cluster of ours; set high-availability.cluster-id or "
            "high-availability.zookeeper.path.root to another one"
        )
    if data["format"] > FORMAT:
        raise StoreBrokenError(
            f"the cluster at {layout.cluster} is of format {data['format']}; this Firesteel knows {FORMAT}: run the newer one"
        )
    instance: str = data["instance"]
    return instance


@dataclass(frozen=True, slots=True)
class EpochHolder:
    """What the epoch's node says of who was granted it."""

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
    """What the leader's node says."""

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
    """The object in a node; an empty one when there is none, which is how a node begins, or when somebody damaged it."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
