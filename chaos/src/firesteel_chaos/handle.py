"""The interface of a cluster for the rest of the package, independent of who started its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from firesteel.client.cluster import ClusterClient
from firesteel_chaos.sites import Site


class NodeHandle(Protocol):
    """One node of the control plane."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """The address of its REST API for clients, which stays the same across restarts of the node."""

    @property
    def pid(self) -> int | None:
        """The id of its process, if it runs on this host."""

    @property
    def alive(self) -> bool:
        """Whether its process exists, even if paused or cut off. For a node elsewhere: whether we have not ended it."""


class ClusterHandle(Protocol):
    """What load and observer need of a cluster. Safe to use from several threads."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of all nodes, including those that are down."""

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

    def sites(self) -> Sequence[Site]:
        """Where its drivers and engines are, as far as that can be seen from here."""

    def client(self) -> ClusterClient:
        """A new client of all nodes. The caller closes it."""
