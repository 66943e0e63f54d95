"""A cluster whose nodes can be killed, paused and cut off, as faults need it."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from firesteel.errors import FiresteelError
from firesteel_chaos.handle import ClusterHandle, NodeHandle

ASK_SECONDS = 1.5


class ChaosError(FiresteelError):
    """The harness itself cannot do its work; this says nothing about the cluster."""


class Line(Protocol):
    """The connections between a node and its clients and the other nodes, or its store."""

    def cut(self) -> None:
        """Connections break, and new ones are refused."""

    def restore(self) -> None:
        """Connections work again."""


class BadLine(Line, Protocol):
    """A line that can be bad without being cut (`network.TcpProxy`)."""

    def drop(self) -> None: ...

    def freeze(self, *directions: str) -> None: ...

    def disturb(self, *, delay: float = 0.0, loss: float = 0.0, bytes_per_second: float | None = None) -> None: ...


class ControlledNode(NodeHandle, Protocol):
    @property
    def clients(self) -> Line | None:
        """The line to clients and to the other nodes; None when nothing can be done to it."""

    @property
    def store(self) -> Line | None: ...

    def start(self, *, command: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Start it, and return once it serves. Does nothing when it runs.

        Args:
            command: instead of the usual one; options are appended to it. As `environment`, which is added to the usual one,
                for clusters with the ability `command`.
        """

    def kill(self) -> None:
        """Kill the process at once."""

    def terminate(self) -> None:
        """Ask the process to end."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ControlledCluster(ClusterHandle, Protocol):
    @property
    def abilities(self) -> frozenset[str]:
        """What can be done to it: see `faults.model.ABILITIES`."""

    @property
    def lease(self) -> float:
        """How long a silent leader keeps its leadership, in seconds."""

    def nodes(self) -> Sequence[ControlledNode]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SeenLeader:
    epoch: int
    address: str


def leader_of(cluster: ClusterHandle) -> SeenLeader | None:
    """The leader according to the nodes that answer quickly; of several answers, the one with the newest epoch."""
    asked = (ask_leader(node.address, cluster.token, cluster.ca) for node in cluster.nodes())
    found = [said for said in asked if said is not None]
    return max(found, key=lambda said: said.epoch, default=None)


@functools.cache
def trust(ca: Path | None) -> ssl.SSLContext:
    """Made once: reading the authorities of the machine for each request would be a load of its own."""
    return ssl.create_default_context(cafile=ca)


def ask_leader(address: str, token: str, ca: Path | None = None) -> SeenLeader | None:
    try:
        answer = httpx.get(
            f"{address}/cluster/status",
            headers={"authorization": f"Bearer {token}"},
            timeout=ASK_SECONDS,
            verify=trust(ca),
        )
        leader = answer.json().get("leader") if answer.status_code == 200 else None
        return None if leader is None else SeenLeader(leader["epoch"], leader["address"])
    except (httpx.HTTPError, ValueError, KeyError, AttributeError):
        return None


def leading_node(cluster: ControlledCluster) -> ControlledNode | None:
    """The node that leads, if it is known and alive."""
    leader = leader_of(cluster)
    if leader is None:
        return None
    return next((n for n in cluster.nodes() if n.address == leader.address and n.alive), None)


def answers(cluster: ClusterHandle) -> bool:
    """Whether some node answers a request that only a leader can answer."""
    for node in cluster.nodes():
        try:
            asked = httpx.get(
                f"{node.address}/jobs/overview",
                headers={"authorization": f"Bearer {cluster.token}"},
                timeout=ASK_SECONDS,
                verify=trust(cluster.ca),
            )
        except httpx.HTTPError:
            continue
        if asked.status_code == 200:
            return True
    return False
