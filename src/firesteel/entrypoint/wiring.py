"""The one place where the objects of a node are put together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from firesteel.concurrency import Backoff
from firesteel.config import Configuration
from firesteel.dispatcher.leader_process import DispatcherLeaderProcess, MakeBootstrap, no_bootstrap
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.dispatcher.services import DispatcherServices
from firesteel.entrypoint.watchers import job_watchers
from firesteel.errors import FencingError
from firesteel.fleet.engines import FleetEngines
from firesteel.fleet.enrollment import Enrollment
from firesteel.fleet.executor import FleetExecutor
from firesteel.fleet.registry import Fleet
from firesteel.fs.files import private_dir
from firesteel.ha.measured import MeasuredStore
from firesteel.ha.protocols import Epoch, HighAvailabilityServices, LeaderElectionDriver, StateStore
from firesteel.ha.retrying import RetryingStore
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.enrichers import FailureEnricher, FailureEnrichers, load_enrichers
from firesteel.jobmaster.events import JobEvents
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.jobmaster.master import JobMaster, no_environment
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.jobmaster.requirements import Requirements
from firesteel.jobmaster.runner import MakeJobMaster
from firesteel.layout import ClusterLayout
from firesteel.metrics.registry import MetricRegistry
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.resourcemanager.provider import EngineProvider
from firesteel.stores.applications import ApplicationStore
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.stores.operations import OperationStore
from firesteel.stores.parked import ParkedStore
from firesteel.stores.uploads import UploadStore
from firesteel.stores.workers import WorkerStore

ClearOutputs = Callable[[Submission, JobResult], Coroutine[Any, Any, None]]


async def _nothing(_store: StateStore, _epoch: Epoch) -> None:
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class NodeParts:
    """Parts to use in place of the configured ones. The caller, who embeds the node, closes them.

    None stands for the configured part.
    """

    ha: HighAvailabilityServices | None = None
    executor: AttemptExecutor | None = None
    engines: EngineProvider | None = None
    enrichers: tuple[FailureEnricher, ...] = ()
    """Used in addition to the configured ones."""


AS_CONFIGURED = NodeParts()


@dataclasses.dataclass(slots=True)
class Node:
    """The parts of a node that live as long as its process, independent of leadership."""

    configuration: Configuration
    ha: HighAvailabilityServices
    executor: AttemptExecutor
    engines: EngineProvider
    finished: ExecutionGraphInfoStore
    archivist: HistoryArchivist
    clear_outputs: ClearOutputs
    enrichers: FailureEnrichers
    files: JobFiles
    worker_id: str
    """Of what runs here, be it offered to jobs or not."""
    worker: WorkerOffer | None
    """The worker that is part of this node, if one is (`worker.embedded`)."""
    make_job_master: MakeJobMaster = JobMaster
    events: JobEvents = dataclasses.field(default_factory=JobEvents)
    environment: Callable[[Submission], Awaitable[Mapping[str, str]]] = no_environment
    """Variables for the drivers of jobs."""
    make_bootstrap: MakeBootstrap = no_bootstrap
    on_lead: Callable[[StateStore, Epoch], Awaitable[None]] = _nothing
    """Writes what else has to be in the store before this node serves as the leader."""
    now: Callable[[], float] = time.time
    metrics: MetricRegistry = dataclasses.field(default_factory=MetricRegistry)

    def dispatcher_runner(
        self,
        election: LeaderElectionDriver,
        *,
        address: str,
        on_fatal: Callable[[BaseException], None],
        on_shut_down: Callable[[], None],
    ) -> DispatcherRunner:
        leaderships = Leaderships(self, election, on_fatal, on_shut_down)
        return DispatcherRunner(election, leaderships.process, address=address, on_fatal=on_fatal, metrics=self.metrics)


@dataclasses.dataclass(frozen=True, slots=True)
class Leaderships:
    """Makes the objects that a node needs anew each time it is elected."""

    node: Node
    election: LeaderElectionDriver
    on_fatal: Callable[[BaseException], None]
    on_shut_down: Callable[[], None]

    def process(self, epoch: Epoch, on_fenced: Callable[[Epoch], None]) -> DispatcherLeaderProcess:
        return DispatcherLeaderProcess(
            epoch,
            self.open,
            on_fenced=on_fenced,
            on_fatal=self.on_fatal,
            on_shut_down=self.on_shut_down,
            make_bootstrap=self.node.make_bootstrap,
        )

    async def open(self, epoch: Epoch, on_error: Callable[[BaseException], None]) -> DispatcherServices:
        """The services for the leadership of `epoch`. `on_error` is called for unexpected errors."""
        node, configuration = self.node, self.node.configuration
        options = configuration.high_availability
        measured = MeasuredStore(node.ha.store, node.metrics)
        store = RetryingStore(measured, Backoff(options.retry_initial_backoff, options.retry_max_backoff))
        await node.on_lead(store, epoch)
        guard = Certain(self.election, epoch)
        workers = WorkerStore(store)
        fleet = Fleet(
            epoch,
            workers,
            node.worker_id,
            node.worker,
            guard=guard,
            heartbeat=configuration.heartbeat.interval,
            on_error=on_error,
            now=node.now,
        )
        resources = ResourceManager(
            configuration,
            FleetEngines(node.engines, fleet),
            default_spec=shared_engine_spec(configuration),
            now=node.now,
            guard=guard,
            on_error=on_error,
            metrics=node.metrics,
        )
        return DispatcherServices(
            epoch=epoch,
            configuration=configuration,
            graphs=JobGraphStore(store),
            results=JobResultStore(store, configuration.dispatcher.job_result_retention),
            records=JobRecordStore(store),
            operations=OperationStore(store),
            parked=ParkedStore(store),
            uploads=UploadStore(store),
            applications=ApplicationStore(store),
            environment=node.environment,
            resources=resources,
            executor=FleetExecutor(node.executor, fleet),
            fleet=fleet,
            enrollment=Enrollment(workers, epoch, now=node.now, joined=fleet.joined),
            finished=node.finished,
            archivist=node.archivist,
            requirements=Requirements(configuration, node.files).of,
            clear_outputs=node.clear_outputs,
            make_job_master=node.make_job_master,
            enrichers=node.enrichers,
            events=node.events,
            blobs=node.files.blobs,
            now=node.now,
            guard=guard,
            watchers=job_watchers(configuration, store, epoch, now=node.now, on_error=on_error),
            metrics=node.metrics,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Certain:
    """The guard of a leadership: raises FencingError unless it is certain, right now, that `epoch` leads (I7)."""

    election: LeaderElectionDriver
    epoch: Epoch

    def __call__(self) -> None:
        if not self.election.holds(self.epoch):
            raise FencingError(f"epoch {self.epoch} no longer leads, or may not; nothing was done")


def finished_jobs(configuration: Configuration, on_evict: Callable[[str], None]) -> ExecutionGraphInfoStore:
    from firesteel.config.values import memory_bytes

    options = configuration.jobstore
    return ExecutionGraphInfoStore(
        private_dir(ClusterLayout.of(configuration).finished),
        max_count=options.max_capacity,
        max_age=options.expiration_time,
        cache_bytes=memory_bytes(options.cache_size),
        on_evict=on_evict,
    )


def enrichers(configuration: Configuration, more: tuple[FailureEnricher, ...] = ()) -> FailureEnrichers:
    return FailureEnrichers((*load_enrichers(configuration.jobmanager.failure_enrichers), *more))
