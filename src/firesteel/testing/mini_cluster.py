"""A whole control plane in the process of a test: one node with its REST API, in a thread of its own."""

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
"""For the jobs that are left when the cluster is closed, and then for the node."""

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
"""What a MiniCluster has where its options say nothing else."""


class MiniCluster:
    """One node of a cluster with everything that a real one has; use it with `with`.

    Jobs run on real engines and in real driver processes unless an `executor` stands in for them. When it is closed, jobs that
    still run are cancelled and engines that it started are ended. No variable and no configuration file of the user is read.

    Args:
        options: configuration, by its keys, over `OPTIONS`; or a whole configuration, which is taken as it is.
        ha: instead of what `high-availability.type` names; the caller closes it. By default, and unless the options name
            another type, one in memory, with levers (`cluster.ha`).
        executor: runs attempts in place of driver processes, such as a FakeExecutor.
        engines: where engines come from, such as FakeEngines.
        enrichers: label failures, beside those that the options name.
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
        """A directory that is removed with the cluster."""
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
            logger.exception("the cluster did not end as it should")  # what the test says comes first

    def start(self) -> None:
        """Returns when the node leads. Raises ServiceStartError naming the part that could not start."""
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
        """End jobs that still run, the node, and engines that it started. Raises what was fatal to the node, if anything."""
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
        """Talks to the cluster over its REST API, as the user of this process."""
        assert self._client is not None, "the cluster has not been started"
        return self._client

    @property
    def ha(self) -> SteeredHighAvailabilityServices:
        """The levers, where there are any. Pull them with `call`."""
        if not isinstance(self._ha, SteeredHighAvailabilityServices):
            raise TypeError("this cluster has a high-availability backend without levers")
        return self._ha

    @overload
    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T: ...

    @overload
    def call(self, function: Callable[..., T], *args: object) -> T: ...

    def call(self, function: Callable[..., Any], *args: object) -> Any:
        """Call `function` in the event loop of the cluster, to which all parts of the node belong; gives what it returns.

        What it returns is awaited there, if it can be.
        """
        assert self._node is not None, "the cluster has not been started"

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
                raise TimeoutError(f"nobody leads again after {START_SECONDS:g} s: {status}")
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
    """A node that tells whoever waits for it in another thread, and ends when it is told to from there."""

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
        except BaseException as error:  # of the thread that waits, or of the one that closes
            if self.ready.done():
                self.fatal.append(error)
            else:
                self.ready.set_exception(error)
        finally:
            self.over.set()

    def end(self, _status: ApplicationStatus) -> None:
        ending = self._ending
        if ending is not None and self.ready.done() and self.ready.exception() is None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
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
