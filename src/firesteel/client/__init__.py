"""Talking to a cluster from Python: blocking and asynchronous, following the leader, repeating what can be repeated.

discovery    which cluster: `connect`
cluster      ClusterClient and AsyncClusterClient: submitting, listing, the cluster itself
job          JobClient and AsyncJobClient: one job
caller       one request to whichever node answers; over `endpoints` (which one, when) and `transport` (httpx)
requests     requests as values, and the errors that answers stand for; `model` has the other answers
events       the parser of event streams; `listening` reads them
application  ids of jobs that the program of an application submits
handover     handing leadership over to another node
"""

from __future__ import annotations

from .cluster import AsyncClusterClient, ClusterClient
from .discovery import LocalCluster, connect, connect_async, find_local, find_nodes
from .errors import ClusterError, ClusterUnreachableError, JobCanceledError, JobFailedError, JobTimeoutError
from .events import JobEvent
from .handover import HandOver
from .job import AsyncJobClient, JobClient
from .model import (
    AttemptInfo,
    ClusterOverview,
    ClusterStatus,
    EngineInfo,
    HistoryPage,
    Identity,
    JobException,
    JobResult,
    JobSummary,
    LogInfo,
    Queue,
    QueuedJob,
)

__all__ = [
    "AsyncClusterClient",
    "AsyncJobClient",
    "AttemptInfo",
    "ClusterClient",
    "ClusterError",
    "ClusterOverview",
    "ClusterStatus",
    "ClusterUnreachableError",
    "EngineInfo",
    "HandOver",
    "HistoryPage",
    "Identity",
    "JobCanceledError",
    "JobClient",
    "JobEvent",
    "JobException",
    "JobFailedError",
    "JobResult",
    "JobSummary",
    "JobTimeoutError",
    "LocalCluster",
    "LogInfo",
    "Queue",
    "QueuedJob",
    "connect",
    "connect_async",
    "find_local",
    "find_nodes",
]
