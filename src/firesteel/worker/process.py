"""One worker as a process of its own: what `firesteel worker start` runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx

from firesteel.blob.keys import BlobKey
from firesteel.blob.store import BlobStore
from firesteel.config import Configuration
from firesteel.config.values import memory_bytes
from firesteel.errors import EnvironmentNotReadyError
from firesteel.fs.files import private_dir
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.layout import ClusterLayout
from firesteel.worker.credential import WorkerCredential
from firesteel.worker.engines import engine_provider
from firesteel.worker.executor import LocalAttemptExecutor
from firesteel.worker.fetched_files import FetchedFiles
from firesteel.worker.host import WorkerHost, worker_info
from firesteel.worker.leader_http import HttpLeaderConnection
from firesteel.worker.local_nodes import local_nodes
from firesteel.worker.offer import local_offer
from firesteel.worker.one_process import acting_for
from firesteel.worker.pool import DriverPool
from firesteel.worker.running import say_running
from firesteel.worker.sandboxing import close_files_of_the_node, sandbox_policy, say_what_holds

logger = logging.getLogger(__name__)


class WorkerProcess:
    """Serves until a signal ends it. Drivers and engines run on, and the next process of the worker takes them over."""

    def __init__(
        self, configuration: Configuration, credential: WorkerCredential, nodes_file: Path | None = None
    ) -> None:
        """`nodes_file`: where nodes of this machine say how they are reached, for a worker that was started beside them."""
        self._configuration = configuration
        self._credential = credential
        self._addresses = tuple(configuration.client.addresses)
        self._nodes_file = nodes_file
        self._ending = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, functools.partial(self._on_signal, number))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        async with self._open() as serving:
            ending = asyncio.ensure_future(self._ending.wait())
            await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            if serving.done() and not serving.cancelled() and (error := serving.exception()) is not None:
                logger.critical("the worker ends: %s", error, exc_info=error)
                return 1
        return 0

    def _on_signal(self, number: int) -> None:
        logger.info("%s received; ending, while drivers and engines run on", signal.Signals(number).name)
        self._ending.set()

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[asyncio.Task[None]]:
        configuration, credential = self._configuration, self._credential
        home = private_dir(ClusterLayout.of(configuration).home)
        layout = ClusterLayout(home)
        async with contextlib.AsyncExitStack() as opened:
            if not opened.enter_context(acting_for(home, credential.worker)):
                raise EnvironmentNotReadyError(
                    f"another process already acts for worker {credential.name}; end it first"
                )
            sandbox_policy(configuration)
            close_files_of_the_node(configuration)
            say_what_holds(configuration)
            offer = local_offer(configuration, shared_engine_spec(configuration), credential.worker, credential.name)
            client = await opened.enter_async_context(http_client(configuration))
            blobs = BlobStore(
                private_dir(layout.blobs),
                max_size=memory_bytes(configuration.blob.max_size),
                quota=memory_bytes(configuration.blob.quota),
            )
            await blobs.open()
            opened.push_async_callback(blobs.close)
            pool = await asyncio.to_thread(_pool, configuration, home)
            opened.push_async_callback(asyncio.to_thread, pool.close)
            files = FetchedFiles(blobs, private_dir(layout.jobs), self._fetch(client))
            executor = LocalAttemptExecutor(configuration, layout.jobs, pool, files)
            opened.push_async_callback(executor.close)
            await executor.open()
            engines = engine_provider(configuration, credential.worker)
            opened.push_async_callback(engines.close)
            info = worker_info(configuration, offer, policy=configuration.worker.when_isolated.value, embedded=False)
            connection = HttpLeaderConnection(
                client, self._nodes, credential.worker, self._authorize, patience=configuration.rest.request_timeout
            )
            host = WorkerHost(configuration, home, executor, engines, functools.partial(say_running, home))
            serving = asyncio.get_running_loop().create_task(
                host.serve(info, connection, lambda error: logger.error("worker: %s", error)), name="worker"
            )
            try:
                yield serving
            finally:
                serving.cancel()
                await asyncio.wait([serving])

    async def _nodes(self) -> Sequence[str]:
        if self._nodes_file is not None and (found := await asyncio.to_thread(local_nodes, self._nodes_file)):
            self._addresses = tuple(found)
        return self._addresses

    async def _authorize(self, _method: str, _path: str) -> str | None:
        return self._credential.authorization

    def _fetch(self, client: httpx.AsyncClient):  # type: ignore[no-untyped-def]
        async def fetch(key: BlobKey) -> httpx.Response:
            failure: httpx.HTTPError | None = None
            for address in self._addresses:
                request = client.build_request(
                    "GET", f"{address}/blobs/{key}", headers={"authorization": self._credential.authorization}
                )
                try:
                    return await client.send(request, stream=True)
                except httpx.HTTPError as error:
                    failure = error
            raise failure or httpx.ConnectError("no node is known")

        return fetch


def _pool(configuration: Configuration, home: Path) -> DriverPool:
    return DriverPool(
        python=str(configuration.driver.python or sys.executable),
        log=home / "drivers.log",
        passed=configuration.driver.environment_pass,
    )


def http_client(configuration: Configuration) -> httpx.AsyncClient:
    """For talking to nodes: TLS is checked, and no proxy of the environment is asked."""
    client = configuration.client
    verify: ssl.SSLContext | bool = True
    if client.ca is not None or client.certificate is not None:
        verify = ssl.create_default_context(cafile=client.ca)
        if client.certificate is not None:  # nodes may ask every caller for one
            verify.load_cert_chain(client.certificate)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
    return httpx.AsyncClient(timeout=configuration.rest.request_timeout, limits=limits, verify=verify, trust_env=False)
