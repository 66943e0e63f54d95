"""Firesteel: a highly available job control plane for Apache Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel.client import AsyncClusterClient, ClusterClient, JobClient, connect
    from firesteel.jobgraph import Job, JobGraph
    from firesteel.notebook import spark

__version__ = "0.1.0"
__all__ = [
    "AsyncClusterClient",
    "ClusterClient",
    "Job",
    "JobClient",
    "JobGraph",
    "__version__",
    "connect",
    "spark",
]


def __getattr__(name: str) -> Any:
    # The models and the HTTP client take a while to import; `firesteel --help` needs neither.
    if name in ("Job", "JobGraph"):
        from firesteel import jobgraph

        return getattr(jobgraph, name)
    if name == "spark":
        from firesteel import notebook

        return notebook.spark
    if name in __all__:
        from firesteel import client

        return getattr(client, name)
    raise AttributeError(f"module 'firesteel' has no attribute {name!r}")
