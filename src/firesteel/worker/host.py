"""What runs attempts and engines on one host, put together: for a node, and for a worker process of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firesteel import __version__
from firesteel.config import Configuration
from firesteel.hosts import this_host
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.layout import ClusterLayout
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.resourcemanager.provider import EngineProvider
from firesteel.rpc.messages import WorkerInfo
from firesteel.worker.epochs import ObeyedEpochs
from firesteel.worker.held import HeldOnDisk
from firesteel.worker.isolation import LeaderContact
from firesteel.worker.service import WorkerService
from firesteel.worker.session import LeaderConnection, WorkerSession


def worker_info(configuration: Configuration, offer: WorkerOffer, *, policy: str, embedded: bool) -> WorkerInfo:
    """What this process says of its worker. Each process is another incarnation."""
    return WorkerInfo(
        worker=offer.worker,
        name=offer.name,
        incarnation=f"{os.getpid()}-{secrets.token_hex(8)}",
        host=str(this_host()),
        cores=offer.max_cores,
        memory=offer.max_memory,
        max_engines=offer.max_engines,
        labels=dict(offer.labels),
        sandbox=offer.sandbox,
        policy=policy,
        isolation_timeout=configuration.worker.isolation_timeout,
        embedded=embedded,
        version=__version__,
    )


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """The means of this host, lent to one session at a time."""

    configuration: Configuration
    home: Path
    executor: AttemptExecutor
    engines: EngineProvider
    on_registered: Callable[[int], None] = lambda _: None

    async def serve(
        self, info: WorkerInfo, connection: LeaderConnection, on_error: Callable[[BaseException], None]
    ) -> None:
        """Be a worker until cancelled. What runs here runs on after that."""
        epochs = ObeyedEpochs(self.home)
        contact = LeaderContact(self.home, info.isolation_timeout)
        held = HeldOnDisk(ClusterLayout(self.home).jobs)
        service = WorkerService(info, held, self.executor, self.engines, epochs, on_error=on_error)
        await service.open()
        try:
            await WorkerSession(service, connection, epochs, contact, self.on_registered).run()
        finally:
            await service.close()
