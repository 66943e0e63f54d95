"""The ClusterEntrypoint: one process of a cluster, from its configuration to its exit code.

Services are opened in order and closed in reverse, even when a start fails half-way. A signal, a shutdown request to the
Dispatcher and a fatal error all end in the same place; which of them it was decides the exit code. Jobs and engines are not
part of this process: they keep running and are taken over by the next leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx

from firesteel.blob.keys import BlobKey
from firesteel.blob.store import BlobStore
from firesteel.concurrency import OwnedTasks
from firesteel.config import Configuration
from firesteel.config.high_availability import HaType
from firesteel.config.sections import WhenIsolated
from firesteel.config.values import memory_bytes
from firesteel.dispatcher.bootstrap import ApplicationDispatcherBootstrap, DispatcherBootstrap, NoOpBootstrap
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.outputs import OutputCleaner
from firesteel.dispatcher.overrides import check_overrides
from firesteel.dispatcher.services import DispatcherServices
from firesteel.entrypoint.application import (
    GRACE_SECONDS,
    STATUS,
    ProgramEnvironment,
    note_end,
    remove_all,
    remove_files,
    ship,
)
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.component import DispatcherResourceManagerComponent, Endpoint, starting
from firesteel.entrypoint.embedded_worker import EmbeddedWorker
from firesteel.entrypoint.idle import end_in_order, sleep_when_idle
from firesteel.entrypoint.node_metrics import measuring
from firesteel.entrypoint.one_directory import OneDirectory
from firesteel.entrypoint.wiring import (
    AS_CONFIGURED,
    ClearOutputs,
    Node,
    NodeParts,
    enrichers,
    finished_jobs,
)
from firesteel.errors import BlobNotFoundError, FiresteelError, InvalidConfigError, Problem, StoreError
from firesteel.flink_rest.routes import FLINK
from firesteel.fs.files import private_dir
from firesteel.ha.identity import claim
from firesteel.ha.protocols import Epoch, ForgetsClusters, HighAvailabilityServices, StateStore
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.ha.services import open_high_availability
from firesteel.hosts import this_user
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.layout import ClusterLayout
from firesteel.metrics.registry import MetricRegistry
from firesteel.notifications.rules import occasions
from firesteel.notifications.targets import targets_of
from firesteel.rest.application_tokens import ApplicationTokens
from firesteel.rest.endpoint import WebMonitorEndpoint
from firesteel.rest.node_identity import NodeIdentity
from firesteel.rest.security.startup import check_door
from firesteel.stores.applications import ApplicationRecord
from firesteel.stores.history import HistoryArchivist
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_keys import JobKeys, ensure_job_key
from firesteel.stores.job_results import JobResult
from firesteel.stores.secrets import NodeKeys
from firesteel.stores.workers import WorkerStore
from firesteel.types import JobID
from firesteel.worker.engines import engine_provider
from firesteel.worker.executor import LocalAttemptExecutor
from firesteel.worker.fetched_files import FetchedFiles
from firesteel.worker.host import WorkerHost, worker_info
from firesteel.worker.identity import worker_id
from firesteel.worker.offer import local_offer
from firesteel.worker.pool import DriverPool
from firesteel.worker.sandboxing import close_files_of_the_node, sandbox_policy, say_what_holds

logger = logging.getLogger(__name__)


class ClusterEntrypoint:
    """Open it with `async with`, or call `run` for a process that is this cluster node and nothing else."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        rest: bool = False,
        woken: bool = False,
        application: ApplicationConfiguration | None = None,
        endpoint: Endpoint | None = None,
        parts: NodeParts = AS_CONFIGURED,
    ) -> None:
        """`rest`: serve the REST API. Without it, and without another `endpoint`, the node can only be reached through `open`.

        `woken`: end when the node has been idle for `local-cluster.idle-timeout`. `application`: run an application cluster,
        which ends with this program; without it, a session cluster, which serves many jobs until it is told to end, unless the
        store has an application that goes on. `parts`: parts to use in place of the configured ones.
        """
        self.configuration = configuration
        self.metrics = MetricRegistry()
        self._application = application
        self._application_id: JobID | None = application.application_id if application is not None else None
        self._over = False
        """The application has ended, and nothing of it is needed any more."""
        self._rest = rest
        self._woken = woken
        self._endpoint = endpoint
        self._parts = parts
        self._directory = OneDirectory(configuration)
        self._keys: NodeKeys | None = None
        self._embedded: EmbeddedWorker | None = None
        """Of a cluster of several hosts."""
        self._status: asyncio.Future[ApplicationStatus] | None = None
        self._serving = False
        self._store: StateStore | None = None
        self._programs: ProgramEnvironment | None = None
        self._component: DispatcherResourceManagerComponent | None = None

    async def run(self) -> ApplicationStatus:
        """Serve until something ends the node; the caller exits with the exit code of the status."""
        self._status = asyncio.get_running_loop().create_future()
        self._install_signal_handlers()
        _raise_descriptor_limit()
        try:
            async with self.open():
                # Objects that exist by now stay for good: the collector need not scan them again and again.
                gc.collect()
                gc.freeze()
                self._serving = True
                return await self._status
        except FiresteelError as error:
            if self._serving:
                logger.critical("the node did not close cleanly: %s", error)
                return ApplicationStatus.FATAL_ERROR
            logger.critical("%s", error)
            return ApplicationStatus.START_FAILED

    def end(self, status: ApplicationStatus) -> None:
        """Ask the node to end; the first reason counts."""
        if self._status is not None and not self._status.done():
            self._status.set_result(status)

    def on_fatal(self, error: BaseException) -> None:
        """End the node, as its state cannot be trusted any more; the next process starts from the store."""
        logger.critical("fatal error: %s", error, exc_info=error)
        self.end(ApplicationStatus.FATAL_ERROR)

    def _install_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, functools.partial(self._on_signal, number))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, number: int) -> None:
        logger.info("received %s; ending", signal.Signals(number).name)
        if not self._serving:
            self.end(ApplicationStatus.CANCELED)
        else:
            self._shut_down()

    async def _sleep_when_idle(self, component: DispatcherResourceManagerComponent, web: WebMonitorEndpoint) -> None:
        timeout = self.configuration.local_cluster.idle_timeout
        await sleep_when_idle(component, lambda: web.last_asked, timeout)
        web.withdraw()
        await end_in_order(component, self._shut_down)

    def _shut_down(self) -> None:
        """An ordered end. An application goes on without this node, and its end was not seen here."""
        self.end(ApplicationStatus.SUCCEEDED if self._application_id is None else ApplicationStatus.UNKNOWN)

    # -- the application ------------------------------------------------------------------------------------------

    async def _bootstrap(
        self, blobs: BlobStore, dispatcher: Dispatcher, services: DispatcherServices
    ) -> DispatcherBootstrap:
        """That of an application which an earlier leader has accepted, or which this node was started for; else none."""
        record = await services.applications.get()
        given = self._application
        if record is None and given is None:
            return NoOpBootstrap()
        if record is not None:
            self._application_id = record.application_id

        async def shipped() -> Submission:
            assert given is not None
            return await self._shipped(given, blobs)

        async def ended(record: ApplicationRecord) -> None:
            await self._application_ended(services, record)

        return ApplicationDispatcherBootstrap(dispatcher, services, record, ship=shipped, on_end=ended)

    async def _shipped(self, application: ApplicationConfiguration, blobs: BlobStore) -> Submission:
        try:
            return await ship(application, blobs, this_user())
        except (FiresteelError, OSError) as error:
            # Nothing is stored yet: whoever deploys it hears why, and nothing is left.
            logger.critical("the application could not be shipped: %s", error)
            self._over = True
            self.end(ApplicationStatus.START_FAILED)
            await asyncio.Event().wait()
            raise

    async def _application_ended(self, services: DispatcherServices, record: ApplicationRecord) -> None:
        """Archives are written by now. First it is said how it ended; then all that a leader would go on with is removed."""
        assert self._store is not None
        services.guard()
        await asyncio.to_thread(note_end, ClusterLayout.of(self.configuration), record)
        await asyncio.sleep(GRACE_SECONDS)
        await services.resources.wind_down(self.configuration.engine.stop_timeout)
        await services.persistently(
            functools.partial(remove_all, self._store, services.epoch), "removing what the application has in the store"
        )
        self._over = True
        self.end(STATUS[record.state])

    async def _remove_files(self) -> None:
        if self._over:
            await asyncio.to_thread(remove_files, ClusterLayout.of(self.configuration))

    async def _forget_cluster(self, ha: HighAvailabilityServices) -> None:
        if self._over and isinstance(ha, ForgetsClusters):
            with contextlib.suppress(StoreError):  # one row of a cluster that is gone
                await ha.forget_cluster()

    async def _environment(self, submission: Submission) -> Mapping[str, str]:
        assert self._programs is not None
        address = self._component.address if self._component is not None else ""
        return await self._programs.of(submission, self._application_id, address)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[DispatcherResourceManagerComponent]:
        """Open the node and serve. Raises ServiceStartError, which names the part that could not start."""
        async with contextlib.AsyncExitStack() as opened:
            tasks = OwnedTasks("entrypoint", self.on_fatal)
            with starting("configuration"):
                check(self.configuration)
                if self._rest:  # before anything is started that would have to be ended again (S3)
                    check_door(self.configuration.rest, self.configuration.security)
            with starting("data directory"):
                root = private_dir(ClusterLayout.of(self.configuration).home)
                claim(root, self.configuration)
            opened.push_async_callback(self._remove_files)
            with starting("metrics"):
                await opened.enter_async_context(measuring(self.configuration, self.metrics))
            node = await self._open_node(root, opened, tasks)
            if self.configuration.high_availability.type is not HaType.NONE:
                with starting("data directory"):
                    await self._directory.check(node.ha.store)
            self._keys = NodeKeys(node.ha.store)
            self._store = node.ha.store
            job_keys = JobKeys(node.ha.store)
            tokens = ApplicationTokens(job_keys.secret)
            self._programs = ProgramEnvironment(self.configuration, tokens)
            name = f"{os.uname().nodename}:{os.getpid()}"
            election = node.ha.election(name)
            component = DispatcherResourceManagerComponent(
                lambda address: node.dispatcher_runner(
                    election,
                    address=address or name,
                    on_fatal=self.on_fatal,
                    on_shut_down=self._shut_down,
                ),
                LeaderRetrieval(election),
                election,
                one_host=is_of_one_host(self.configuration),
                on_fatal=self.on_fatal,
            )
            self._component = component
            web: WebMonitorEndpoint | None = None
            if self._rest:
                web = WebMonitorEndpoint(
                    self.configuration,
                    root,
                    node.files.blobs,
                    self._keys,
                    WorkerStore(node.ha.store),
                    facade=FLINK,
                    woken=self._woken,
                    job_of_key=job_keys,
                    applications=tokens,
                    application=lambda: self._application_id,
                    metrics=self.metrics,
                )
            if web is not None and self._embedded is not None:
                self._embedded.is_known(NodeIdentity(self._keys), await opened.enter_async_context(web.node_client()))
            await opened.enter_async_context(component.open(web or self._endpoint))
            if web is not None and self._embedded is not None:
                tasks.start(self._embedded.run(component, web.address), "worker")
            if web is not None and self._woken:
                tasks.start(self._sleep_when_idle(component, web), "idle")
            yield component

    async def _open_node(self, root: Path, opened: contextlib.AsyncExitStack, tasks: OwnedTasks) -> Node:
        """The parts of the node that do not depend on leadership; `opened` closes them in reverse."""
        configuration, layout = self.configuration, ClusterLayout(root)
        with starting("high-availability services"):
            ha = self._parts.ha
            if ha is None:
                ha = await open_high_availability(configuration)
                opened.push_async_callback(ha.close)
            opened.push_async_callback(self._forget_cluster, ha)
        with starting("blob server"):
            blobs = _blob_store(configuration, root)
            await blobs.open()
            opened.push_async_callback(blobs.close)
        with starting("sandbox"):
            sandbox_policy(configuration)  # raises if it is required but impossible, before anything is started
            close_files_of_the_node(configuration)
            say_what_holds(configuration)
        with starting("worker"):
            me = worker_id(root)
            worker = None
            if configuration.worker.embedded:
                worker = local_offer(configuration, shared_engine_spec(configuration), me)
        executor = self._parts.executor
        clear_outputs: ClearOutputs = _nothing_to_clear
        with starting("driver pool"):
            pool = await self._open_pool(root, opened) if executor is None else None
            files = FetchedFiles(blobs, private_dir(layout.jobs), self._fetch)
            if executor is None:
                executor = local = LocalAttemptExecutor(configuration, layout.jobs, pool, files)
                opened.push_async_callback(local.close)
                await local.open()
                clear_outputs = OutputCleaner(configuration, local.errands).clear

        def remove_logs(job_id: str) -> None:
            for directory in (layout.jobs, layout.mirror):
                tasks.start(asyncio.to_thread(shutil.rmtree, directory / job_id, ignore_errors=True), "evict")

        with starting("engine provider"):
            engines = self._parts.engines
            if engines is None:
                engines = made = engine_provider(configuration, me)
                opened.push_async_callback(made.close)
        if not is_of_one_host(configuration) and worker is not None:
            info = worker_info(configuration, worker, policy=WhenIsolated.RUN_ON.value, embedded=True)
            host = WorkerHost(configuration, root, executor, engines)
            self._embedded = EmbeddedWorker(host, info, patience=configuration.rest.request_timeout)
        opened.push_async_callback(tasks.close)
        with starting("store of ended jobs"):
            finished = finished_jobs(configuration, remove_logs)
        with starting("failure enrichers"):
            labels = enrichers(configuration, self._parts.enrichers)
            opened.callback(labels.close)
        return Node(
            configuration=configuration,
            ha=ha,
            executor=executor,
            engines=engines,
            finished=finished,
            archivist=HistoryArchivist(configuration.jobmanager.archive_fs_dir),
            clear_outputs=clear_outputs,
            enrichers=labels,
            files=files,
            worker_id=me,
            worker=worker,
            environment=self._environment,
            make_bootstrap=functools.partial(self._bootstrap, blobs),
            on_lead=self._on_lead,
            metrics=self.metrics,
        )

    async def _open_pool(self, root: Path, opened: contextlib.AsyncExitStack) -> DriverPool:
        make_pool = functools.partial(
            DriverPool,
            python=str(self.configuration.driver.python or sys.executable),
            log=root / "drivers.log",
            passed=self.configuration.driver.environment_pass,
        )
        pool = await asyncio.to_thread(make_pool)
        opened.push_async_callback(asyncio.to_thread, pool.close)
        return pool

    async def _fetch(self, key: BlobKey) -> httpx.Response:
        """A file that another host has. Raises BlobNotFoundError when there is none to ask."""
        if self._embedded is None:
            raise BlobNotFoundError(f"the file {key} is not known here; upload it again")
        return await self._embedded.fetch(key)

    async def _on_lead(self, store: StateStore, epoch: Epoch) -> None:
        assert self._keys is not None
        if self._embedded is not None:
            await self._embedded.rest()
        await self._keys.draw(store, epoch)
        await ensure_job_key(store, epoch)
        await self._directory.note(store, epoch)


async def _nothing_to_clear(_submission: Submission, _result: JobResult) -> None:
    pass


def _blob_store(configuration: Configuration, root: Path) -> BlobStore:
    options = configuration.blob
    return BlobStore(
        private_dir(ClusterLayout(root).blobs),
        max_size=memory_bytes(options.max_size),
        quota=memory_bytes(options.quota),
    )


def check(configuration: Configuration) -> None:
    """Check conditions between options."""
    targets_of(configuration.notifications)
    occasions(configuration.notifications.on)
    check_overrides(configuration)
    kept, remembered = configuration.jobstore.max_capacity, configuration.dispatcher.job_result_retention
    if remembered < kept:
        # The id of a forgotten result may be used again, and must not find the files of the earlier job.
        problem = Problem(
            f"dispatcher.job-result-retention ({remembered} results) is smaller than jobstore.max-capacity "
            f"({kept} ended jobs whose files are kept)",
            "raise dispatcher.job-result-retention, or lower jobstore.max-capacity",
            field="dispatcher.job-result-retention",
        )
        raise InvalidConfigError([problem])


def is_of_one_host(configuration: Configuration) -> bool:
    """Whether only this host can reach the store, so that all nodes are on this host."""
    options = configuration.high_availability
    if options.type is HaType.SQL:
        return options.sql_url is None or options.sql_url.startswith("sqlite")
    return options.type is HaType.NONE


def _raise_descriptor_limit() -> None:
    """Raise the limit on open files: each running attempt takes a descriptor, and the usual 1024 are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
