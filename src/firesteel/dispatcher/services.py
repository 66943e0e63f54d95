"""The services of a Dispatcher, made anew for each leadership except where noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from firesteel.blob.store import BlobStore
from firesteel.concurrency import RETRIES, Backoff
from firesteel.config import Configuration
from firesteel.dispatcher.watchers import JobWatcher
from firesteel.fleet.enrollment import Enrollment
from firesteel.fleet.registry import Fleet
from firesteel.ha.protocols import Epoch
from firesteel.jobmaster.enrichers import FailureEnrichers
from firesteel.jobmaster.events import JobEvents
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.jobmaster.master import JobMasterServices, no_environment
from firesteel.jobmaster.runner import MakeJobMaster
from firesteel.metrics.registry import MetricRegistry
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.stores.applications import ApplicationStore
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.stores.operations import OperationStore
from firesteel.stores.parked import ParkedStore
from firesteel.stores.patience import persistently
from firesteel.stores.uploads import UploadStore
from firesteel.types import Guard

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DispatcherServices:
    epoch: Epoch
    configuration: Configuration
    graphs: JobGraphStore
    results: JobResultStore
    records: JobRecordStore
    operations: OperationStore
    parked: ParkedStore
    uploads: UploadStore
    applications: ApplicationStore
    resources: ResourceManager
    enrollment: Enrollment
    executor: AttemptExecutor
    """Of all workers. Attempts outlive a leadership."""
    fleet: Fleet
    finished: ExecutionGraphInfoStore
    """Of this node."""
    archivist: HistoryArchivist
    requirements: Callable[[Submission], Coroutine[Any, Any, SlotRequest]]
    clear_outputs: Callable[[Submission, JobResult], Coroutine[Any, Any, None]]
    """Remove staging and checkpoints that an ended job no longer needs."""
    make_job_master: MakeJobMaster
    enrichers: FailureEnrichers
    events: JobEvents
    blobs: BlobStore
    """Of this node. Files that no job needs are collected by the leader."""
    now: Callable[[], float]
    guard: Guard
    """Raises FencingError when it is not certain, right now, that this node leads."""
    environment: Callable[[Submission], Awaitable[Mapping[str, str]]] = no_environment
    """Variables for the driver of a job; see JobMasterServices."""
    backoff: Backoff = RETRIES
    watchers: tuple[JobWatcher, ...] = ()
    metrics: MetricRegistry = field(default_factory=MetricRegistry)
    """Of this node."""

    def for_job_masters(self) -> JobMasterServices:
        return JobMasterServices(
            epoch=self.epoch,
            records=self.records,
            resources=self.resources,
            executor=self.executor,
            requirements=self.requirements,
            now=self.now,
            guard=self.guard,
            enrichers=self.enrichers,
            events=self.events,
            history_size=self.configuration.jobmanager.exception_history_size,
            environment=self.environment,
            backoff=self.backoff,
            metrics=self.metrics,
        )

    async def persistently(self, action: Callable[[], Awaitable[T]], what: str) -> T:
        """See `stores.patience`."""
        return await persistently(action, self.backoff, what)
