"""A cluster as the rest of the package sees it, whoever started its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from firesteel.client.cluster import ClusterClient


class NodeHandle(Protocol):
    """One node of the control plane."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """Where its REST API is for clients; it stays the same when the node is started again."""

    @property
    def pid(self) -> int | None:
        """Of its process, when it runs on this host."""

    @property
    def alive(self) -> bool:
        """Its process is there: it may be paused, or be cut off. Of a node elsewhere: it was not ended by us."""


class ClusterHandle(Protocol):
    """What load and observer need of a cluster. Safe to use from several threads."""

    @property
    def addresses(self) -> list[str]:
        """Of all nodes, also of those that are down."""

    @property
    def token(self) -> str: ...

    @property
    def ca(self) -> Path | None:
        """PEM file of the authority that signs the nodes' certificates; None for those that the machine trusts."""

    @property
    def data_dir(self) -> Path:
        """The directory that the nodes share, as this host sees it."""

    @property
    def cluster_id(self) -> str: ...

    def nodes(self) -> Sequence[NodeHandle]: ...

    def client(self) -> ClusterClient:
        """A new client of all nodes. The caller closes it."""
