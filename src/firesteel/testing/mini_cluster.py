"""A whole control plane in the process of a test: one node with its REST API, in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar, overload

from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import connect
from firesteel.client.errors import ClusterError, JobTimeoutError
from firesteel.config import Configuration, load_configuration
from firesteel.engines.launcher import stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.entrypoint.wiring import NodeParts
from firesteel.errors import JobNotFoundError, JobStateError
from firesteel.ha.protocols import HighAvailabilityServices
from firesteel.jobmaster.enrichers import FailureEnricher
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.layout import ClusterLayout
from firesteel.resourcemanager.provider import EngineProvider
from firesteel.testing.memory_ha import SteeredHighAvailabilityServices

T = TypeVar("T")
logger = logging.getLogger(__name__)

START_SECONDS = 60.0
END_SECONDS = 60.0
"""Seconds for the remaining jobs to end when the cluster is closed, and then for the node."""

OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "high-availability.type": "none",
        "rest.port": "0",
        # Engines of tests live for minutes, on tiny data: the second compiler, parallel collectors and 200 partitions cost
        # more than they give back.
        "engine.master": "local[2]",
        "engine.jvm-options": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
)
"""The default options of a MiniCluster."""


class MiniCluster:
    """One complete node of a cluster; use it with `with`.

    Jobs run on real engines and in real driver processes unless an `executor` replaces them. When it is closed, running jobs
    are cancelled and the engines that it started are ended. Environment variables and configuration files are not read.

    Args:
        options: configuration by key, on top of `OPTIONS`; or a whole configuration, which is used as it is.
        ha: replaces the backend that `high-availability.type` names; the caller closes it. By default, and unless the
            options name another type, it is one in memory that tests can control (`cluster.ha`).
        executor: runs attempts in place of driver processes, such as a FakeExecutor.
        engines: the provider of engines, such as FakeEngines.
        enrichers: label failures, in addition to the configured ones.
    """

    def __init__(
        self,
        options: Mapping[str, str] | Configuration = MappingProxyType({}),
        *,
        ha: HighAvailabilityServices | None = None,
        executor: AttemptExecutor | None = None,
        engines: EngineProvider | None = None,
        enrichers: tuple[FailureEnricher, ...] = (),
    ) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="firesteel-mini-"))
        """A temporary directory, removed with the cluster."""
        if isinstance(options, Configuration):
            self.configuration = options
        else:
            self.configuration = _configuration(options, self.scratch)
        in_memory = self.configuration.high_availability.type == "none"
        self._ha = ha or (SteeredHighAvailabilityServices() if in_memory else None)
        self._parts = NodeParts(ha=self._ha, executor=executor, engines=engines, enrichers=enrichers)
        self._thread: threading.Thread | None = None
        self._node: _Node | None = None
        self._client: ClusterClient | None = None

    def __enter__(self) -> MiniCluster:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
            logger.exception("the cluster did not end cleanly")  # the test's own error has priority

    def start(self) -> None:
        """Start, and return when the node leads. Raises ServiceStartError, which names the part that could not start."""
        node = self._node = _Node(self.configuration, self._parts)
        self._thread = threading.Thread(target=asyncio.run, args=(node.serve(),), name="mini-cluster", daemon=True)
        self._thread.start()
        try:
            node.ready.result(START_SECONDS)
            self._client = connect(self.configuration)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End running jobs, the node, and the engines that it started. Raises the node's fatal error, if there was one."""
        node = self._node
        try:
            if self._client is not None and node is not None and not node.fatal and not node.over.is_set():
                self._end_jobs(self._client)
        finally:
            self._end()
        if node is not None and node.fatal:
            raise node.fatal[0]

    @property
    def client(self) -> ClusterClient:
        """A client of the cluster's REST API, with the rights of this process's user."""
        assert self._client is not None, "the cluster is not started"
        return self._client

    @property
    def ha(self) -> SteeredHighAvailabilityServices:
        """The controllable backend, if the cluster has one. Use its methods through `call`."""
        if not isinstance(self._ha, SteeredHighAvailabilityServices):
            raise TypeError("the high-availability backend of this cluster cannot be controlled")
        return self._ha

    @overload
    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T: ...

    @overload
    def call(self, function: Callable[..., T], *args: object) -> T: ...

    def call(self, function: Callable[..., Any], *args: object) -> Any:
        """Call `function` in the event loop of the cluster, to which all parts of the node belong, and return its result.

        An awaitable result is awaited there.
        """
        assert self._node is not None, "the cluster is not started"

        async def called() -> Any:
            answer = function(*args)
            return await answer if inspect.isawaitable(answer) else answer

        return asyncio.run_coroutine_threadsafe(called(), self._node.ready.result(START_SECONDS)).result(START_SECONDS)

    def fail_over(self) -> None:
        """Take leadership from the node, and wait until it leads again, in a new epoch. Running jobs are adopted."""
        before = self.client.cluster_status().epoch or 0
        self.call(self.ha.revoke)
        deadline = time.monotonic() + START_SECONDS
        while (status := self.client.cluster_status()).leader is None or (status.epoch or 0) <= before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster has no new leader after {START_SECONDS:g} s: {status}")
            time.sleep(0.01)

    def _end_jobs(self, client: ClusterClient) -> None:
        with contextlib.suppress(ClusterError):
            left = [client.job(job.job_id) for job in client.jobs() if not job.status.terminal]
            for job in left:
                with contextlib.suppress(JobStateError, JobNotFoundError):
                    job.cancel(keep_checkpoint=False)
            for job in left:
                with contextlib.suppress(JobTimeoutError, JobNotFoundError):
                    job.wait(END_SECONDS)

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._thread is not None and self._node is not None:
            self._node.end(ApplicationStatus.SUCCEEDED)
            self._thread.join(END_SECONDS)
        engines = EngineDirectory(ClusterLayout.of(self.configuration).home)
        for record in engines.all():
            if not record.shared:
                stop_engine(engines, record, grace=5)
        shutil.rmtree(self.scratch, ignore_errors=True)


class _Node(ClusterEntrypoint):
    """A node that reports to a waiting thread, and ends when that thread tells it to."""

    def __init__(self, configuration: Configuration, parts: NodeParts) -> None:
        super().__init__(configuration, rest=True, parts=parts)
        self.ready: Future[asyncio.AbstractEventLoop] = Future()
        self.fatal: list[BaseException] = []
        self.over = threading.Event()
        self._ending: asyncio.Event | None = None

    async def serve(self) -> None:
        loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self.open() as component:
                await component.retrieval.wait_for_leader(START_SECONDS)
                self.ready.set_result(loop)
                await self._ending.wait()
        except BaseException as error:  # raised in the waiting thread, or in the one that closes
            if self.ready.done():
                self.fatal.append(error)
            else:
                self.ready.set_exception(error)
        finally:
            self.over.set()

    def end(self, _status: ApplicationStatus) -> None:
        ending = self._ending
        if ending is not None and self.ready.done() and self.ready.exception() is None:
            with contextlib.suppress(RuntimeError):  # the loop is already closed
                self.ready.result().call_soon_threadsafe(ending.set)

    def on_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)
        super().on_fatal(error)


def _configuration(options: Mapping[str, str], root: Path) -> Configuration:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FIRESTEEL_")}
    return load_configuration(
        overrides={**OPTIONS, "data.dir": str(root / "data"), **options},
        environ={**environ, "XDG_CONFIG_HOME": str(root / "conf")},
        cwd=root,
    )
