"""`HistoryServer`: one process that serves archives, from its configuration to its end. There is no election: any number of
them may serve the same archives."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator

from firesteel.blob.store import BlobStore
from firesteel.concurrency import OwnedTasks
from firesteel.config import Configuration
from firesteel.errors import InvalidConfigError, NotLeadingError, Problem
from firesteel.flink_rest.routes import FLINK
from firesteel.fs.files import private_dir
from firesteel.ha.memory import MemoryStateStore
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.layout import ClusterLayout
from firesteel.masking import mask_text
from firesteel.metrics.registry import MetricRegistry
from firesteel.rest.endpoint import WebMonitorEndpoint
from firesteel.stores.secrets import NodeKeys
from firesteel.stores.workers import WorkerStore
from firesteel.types import JobID

from .archives import ArchivedJobs, Retention
from .gateway import READ_ONLY, HistoryGateway

logger = logging.getLogger(__name__)

DIRECTORY = "history-server"
_EPOCH = Epoch(1)


class HistoryNode:
    """A NodeView that always serves."""

    absence = None
    epoch = _EPOCH

    def __init__(self, gateway: HistoryGateway) -> None:
        self.dispatcher = gateway
        self.address = ""

    def leader(self) -> LeaderInformation | None:
        return LeaderInformation(_EPOCH, self.address)

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        await asyncio.sleep(timeout)

    async def others_wait(self) -> bool | None:
        return False

    def begin_hand_over(self) -> None:
        raise NotLeadingError(READ_ONLY)


class HistoryServer:
    """Open it with `async with`, which yields its address."""

    def __init__(self, configuration: Configuration) -> None:
        options = configuration.historyserver
        self._urls = options.archive_fs_dir or _own_archive(configuration)
        self._options = options
        self.directory = private_dir(configuration.data.dir / DIRECTORY / configuration.high_availability.cluster_id)
        self.configuration = dataclasses.replace(
            configuration,
            rest=dataclasses.replace(
                configuration.rest, bind_address=options.web_address, port=options.web_port, address=None
            ),
        )
        self.metrics = MetricRegistry()

    @property
    def described(self) -> str:
        """The archives, for messages."""
        return ", ".join(mask_text(url) for url in self._urls)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        options = self._options
        async with contextlib.AsyncExitStack() as opened:
            jobs = ArchivedJobs(
                self._urls,
                self.directory,
                retention=Retention(options.archive_retained_jobs, options.archive_retained_ttl),
            )
            opened.push_async_callback(jobs.close)
            await jobs.open()
            node = HistoryNode(HistoryGateway(jobs))
            store = MemoryStateStore()
            store.newest_epoch = _EPOCH
            keys = NodeKeys(store)
            await keys.draw(store, _EPOCH)
            blobs = BlobStore(private_dir(ClusterLayout(self.directory).blobs), max_size=1, quota=1)
            await blobs.open()
            opened.push_async_callback(blobs.close)
            endpoint = WebMonitorEndpoint(
                self.configuration,
                self.directory,
                blobs,
                keys,
                WorkerStore(store),
                facade=FLINK,
                job_of_key=_no_job,
                metrics=self.metrics,
                read_only=READ_ONLY,
            )
            tasks = OwnedTasks("history", lambda error: logger.error("cannot refresh the archives: %s", error))
            opened.push_async_callback(tasks.close)
            node.address = await opened.enter_async_context(endpoint(node))
            tasks.start(self._refresh(jobs), "refresh")
            logger.info("serving %d archived jobs at %s", len(jobs.newest_first()), node.address)
            yield node.address

    async def _refresh(self, jobs: ArchivedJobs) -> None:
        while True:
            await jobs.refresh()
            await asyncio.sleep(self._options.archive_refresh_interval)


async def _no_job(_owner: str, _key: str) -> JobID:
    raise NotLeadingError(READ_ONLY)


def _own_archive(configuration: Configuration) -> tuple[str, ...]:
    own = configuration.jobmanager.archive_fs_dir
    if own is None:
        problem = Problem(
            "is not set",
            "set historyserver.archive.fs.dir to the directories that clusters archive to (their jobmanager.archive.fs.dir)",
            field="historyserver.archive.fs.dir",
        )
        raise InvalidConfigError([problem])
    return (own,)
