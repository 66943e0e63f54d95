"""Where drivers and engines of a cluster are: on this machine, or on hosts of our own making."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firesteel.layout import ClusterLayout
from firesteel.processes import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Site:
    """One directory of a cluster, and how to tell whether a process that it names is alive."""

    name: str
    """Of the host; empty for this machine."""
    data_dir: Path
    """As this machine sees it."""
    cluster_id: str = "default"
    lives: Callable[[ProcessIdentity], bool] = lambda process: process.alive

    @property
    def home(self) -> Path:
        return ClusterLayout.below(self.data_dir, self.cluster_id).home
