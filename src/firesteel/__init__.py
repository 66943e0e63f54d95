"""Firesteel: a highly available job control plane for Apache Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel.jobgraph import Job, JobGraph

__version__ = "0.1.0"
__all__ = ["Job", "JobGraph", "__version__"]


def __getattr__(name: str) -> Any:
    # The models take a while to import; `firesteel --help` does not need them.
    if name in __all__:
        from firesteel import jobgraph

        return getattr(jobgraph, name)
    raise AttributeError(f"module 'firesteel' has no attribute {name!r}")
