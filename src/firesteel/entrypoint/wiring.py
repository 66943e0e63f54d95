"""Which object gets which: the one place where a node is put together."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from firesteel.concurrency import Backoff
from firesteel.config import Configuration
from firesteel.config.sections import Isolation
from firesteel.dispatcher.leader_process import DispatcherLeaderProcess, OpenServices
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.dispatcher.services import DispatcherServices
from firesteel.engines.record import EngineDirectory
from firesteel.errors import FencingError
from firesteel.files import private_dir
from firesteel.ha.protocols import Epoch, HighAvailabilityServices, LeaderElectionDriver, StateStore
from firesteel.ha.retrying import RetryingStore
from firesteel.hosts import Whereabouts, this_host, this_user
from firesteel.jobmaster.artifacts import JobFiles
from firesteel.jobmaster.enrichers import FailureEnricher, load_enrichers
from firesteel.jobmaster.events import JobEvents
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.jobmaster.master import JobMaster
from firesteel.jobmaster.plan import RunPlan, launch_options, shared_engine_spec
from firesteel.jobmaster.runner import MakeJobMaster
from firesteel.resourcemanager.gateway import SlotRequest
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.resourcemanager.provider import EngineProvider, LocalEngineProvider, cluster_directory
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_records import JobRecordStore
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.stores.operations import OperationStore
from firesteel.stores.parked import ParkedStore
from firesteel.stores.uploads import UploadStore


async def _nothing(_store: StateStore, _epoch: Epoch) -> None:
    pass


@dataclasses.dataclass(slots=True)
class Node:
    """What a node has for as long as its process lives, whoever leads."""

    configuration: Configuration
    ha: HighAvailabilityServices
    executor: AttemptExecutor
    engines: EngineProvider
    finished: ExecutionGraphInfoStore
    archivist: HistoryArchivist
    clear_outputs: Callable[[Submission, JobResult], Coroutine[Any, Any, None]]
    enrichers: tuple[FailureEnricher, ...]
    files: JobFiles
    make_job_master: MakeJobMaster = JobMaster
    events: JobEvents = dataclasses.field(default_factory=JobEvents)
    on_lead: Callable[[StateStore, Epoch], Awaitable[None]] = _nothing
    """What else has to be in the store before this node serves as the leader."""
    now: Callable[[], float] = time.time
    sandbox: SandboxPolicy | None = None

    def dispatcher_runner(
        self,
        election: LeaderElectionDriver,
        *,
        address: str,
        on_fatal: Callable[[BaseException], None],
        on_shut_down: Callable[[], None],
    ) -> DispatcherRunner:
        def make_process(epoch: Epoch, on_fenced: Callable[[Epoch], None]) -> DispatcherLeaderProcess:
            return DispatcherLeaderProcess(
                epoch,
                self.open_services(election),
                on_fenced=on_fenced,
                on_fatal=on_fatal,
                on_shut_down=on_shut_down,
            )

        return DispatcherRunner(election, make_process, address=address, on_fatal=on_fatal)

    def open_services(self, election: LeaderElectionDriver) -> OpenServices:
        async def open_(epoch: Epoch, on_error: Callable[[BaseException], None]) -> DispatcherServices:
            options = self.configuration.high_availability
            store = RetryingStore(self.ha.store, Backoff(options.retry_initial_backoff, options.retry_max_backoff))
            await self.on_lead(store, epoch)
            return self._services(store, election, epoch, on_error)

        return open_

    def _services(
        self,
        store: StateStore,
        election: LeaderElectionDriver,
        epoch: Epoch,
        on_error: Callable[[BaseException], None],
    ) -> DispatcherServices:

        def guard() -> None:
            if not election.holds(epoch):
                raise FencingError(f"epoch {epoch} leads no more, or not for certain; nothing was done")

        return DispatcherServices(
            epoch=epoch,
            configuration=self.configuration,
            graphs=JobGraphStore(store),
            results=JobResultStore(store, self.configuration.dispatcher.job_result_retention),
            records=JobRecordStore(store),
            operations=OperationStore(store),
            parked=ParkedStore(store),
            uploads=UploadStore(store),
            resources=ResourceManager(
                self.configuration,
                self.engines,
                default_spec=shared_engine_spec(self.configuration),
                now=self.now,
                guard=guard,
                on_error=on_error,
            ),
            executor=self.executor,
            finished=self.finished,
            archivist=self.archivist,
            requirements=self.requirements,
            clear_outputs=self.clear_outputs,
            make_job_master=self.make_job_master,
            enrichers=self.enrichers,
            events=self.events,
            blobs=self.files.blobs,
            now=self.now,
            guard=guard,
        )

    async def requirements(self, submission: Submission) -> SlotRequest:
        """What engine a job needs. A script is read to find out, which is not for the event loop."""
        graph = submission.graph
        if graph.script is not None:
            graph = await self.files.localized(submission.job_id, graph)
        if graph.script is not None:
            plan = await asyncio.to_thread(RunPlan.of, graph, self.configuration)
        else:
            plan = RunPlan.of(graph, self.configuration)
        isolation = self.configuration.engine.isolation
        owner = None if isolation is Isolation.SESSION else submission.owner
        return SlotRequest(
            job_id=submission.job_id,
            engine=dataclasses.replace(plan.engine, owner=owner),
            classic=plan.classic,
            exclusive=isolation is Isolation.JOB,
            priority=submission.priority,
            arrival=submission.submitted_at,
        )


def engine_provider(configuration: Configuration) -> LocalEngineProvider:
    return LocalEngineProvider(
        EngineDirectory(cluster_directory(configuration)),
        launch_options(configuration),
        shared=EngineDirectory(configuration.data.dir) if configuration.engine.reuse else None,
        shared_owner=None if configuration.engine.isolation is Isolation.SESSION else this_user(),
        token=configuration.engine.token or "",
        patience=configuration.heartbeat.timeout,
        whereabouts=Whereabouts(this_host(), frozenset(configuration.high_availability.lost_hosts)),
    )


def finished_jobs(configuration: Configuration, on_evict: Callable[[str], None]) -> ExecutionGraphInfoStore:
    from firesteel.config.values import memory_bytes

    options = configuration.jobstore
    return ExecutionGraphInfoStore(
        private_dir(cluster_directory(configuration) / "finished"),
        max_count=options.max_capacity,
        max_age=options.expiration_time,
        cache_bytes=memory_bytes(options.cache_size),
        on_evict=on_evict,
    )


def enrichers(configuration: Configuration) -> tuple[FailureEnricher, ...]:
    return load_enrichers(configuration.jobmanager.failure_enrichers)
