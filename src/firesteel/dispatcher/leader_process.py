"""The DispatcherLeaderProcess: one leadership of this node, from recovery to the last closed task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

from firesteel.concurrency import OwnedTasks
from firesteel.dispatcher.bootstrap import DispatcherBootstrap, NoOpBootstrap
from firesteel.dispatcher.dispatcher import Dispatcher, RecoveredJobs
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import FencingError, NotLeadingError
from firesteel.ha.protocols import Epoch
from firesteel.log_context import log_context
from firesteel.types import AttemptId, is_job_id

logger = logging.getLogger(__name__)


class LeaderProcessState(StrEnum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


OpenServices = Callable[[Epoch, Callable[[BaseException], None]], Awaitable[DispatcherServices]]
"""Makes the services of a leadership; unexpected errors are passed to the second argument."""


MakeBootstrap = Callable[[Dispatcher, DispatcherServices], Awaitable[DispatcherBootstrap]]
"""What the Dispatcher begins with: this makes the leader process one of a session or of an application cluster."""


async def no_bootstrap(_dispatcher: Dispatcher, _services: DispatcherServices) -> DispatcherBootstrap:
    """Of session clusters."""
    return NoOpBootstrap()


class DispatcherLeaderProcess:
    """Recovers, then serves. It never leaves STOPPED; the next leadership is another object."""

    def __init__(
        self,
        epoch: Epoch,
        open_services: OpenServices,
        *,
        on_fenced: Callable[[Epoch], None],
        on_fatal: Callable[[BaseException], None],
        on_shut_down: Callable[[], None],
        make_bootstrap: MakeBootstrap = no_bootstrap,
    ) -> None:
        self.epoch = epoch
        self.state = LeaderProcessState.CREATED
        self._open_services = open_services
        self._on_fenced = on_fenced
        self._on_fatal = on_fatal
        self._on_shut_down = on_shut_down
        self._make_bootstrap = make_bootstrap
        self._tasks = OwnedTasks("bootstrap", self._broke)
        self._services: DispatcherServices | None = None
        self._dispatcher: Dispatcher | None = None

    @property
    def dispatcher(self) -> Dispatcher:
        if self.state is not LeaderProcessState.RUNNING or self._dispatcher is None:
            raise NotLeadingError("this node does not lead, or is still recovering; try again in a moment")
        return self._dispatcher

    async def start(self) -> None:
        """Returns when the Dispatcher serves. Parsing what was stored happens in threads, not here."""
        with log_context(epoch=str(self.epoch)):
            await self._recover()

    async def _recover(self) -> None:
        services = self._services = await self._open_services(self.epoch, self._broke)
        # Concurrently: only this node writes any more, and none of them depends on another.
        bad_results, (submissions, bad_graphs), (records, bad_records), _, _, _ = await asyncio.gather(
            services.results.load(),
            services.graphs.recover(),
            services.records.recover(),
            services.operations.load(),
            services.finished.open(),
            services.resources.start(),
        )
        poisoned = {**bad_records, **bad_graphs, **bad_results}
        for job_id, record in records.items():
            if job_id not in poisoned and record.get("deployed"):
                services.executor.place(AttemptId(job_id, record["attempt"]), record.get("worker", ""))
        services.resources.expect(
            [
                (engine_id if isinstance(engine_id := record.get("engine_id"), str) else None, record.get("worker", ""))
                for job_id, record in records.items()
                if job_id not in poisoned
                and services.results.get(job_id) is None
                and record.get("deployed")
                and not record.get("cancel_requested")
            ]
        )
        strangers = {name: why for name, why in bad_graphs.items() if not is_job_id(name)}
        recovered = RecoveredJobs(
            [s for s in submissions if s.job_id not in poisoned],
            records,
            {job_id: why for job_id, why in poisoned.items() if is_job_id(job_id)},
            strangers,
        )
        self._dispatcher = Dispatcher(
            services,
            recovered,
            on_error=self._broke,
            on_shut_down=self._on_shut_down,
        )
        await services.fleet.start(services.resources)
        bootstrap = await self._make_bootstrap(self._dispatcher, services)
        await self._dispatcher.start()
        self.state = LeaderProcessState.RUNNING
        self._tasks.start(bootstrap.run(), "bootstrap")

    def _broke(self, error: BaseException) -> None:
        # Callers that do not know yet that we lost leadership get NotLeadingError, which says the same.
        if isinstance(error, FencingError | NotLeadingError):
            self._on_fenced(self.epoch)
        else:
            self._on_fatal(error)

    async def close(self, alone: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Stop acting. Jobs stay as they are, and so do engines, unless every job has ended and we are `alone`."""
        # One that has not recovered does not know yet which jobs there are.
        serving = self.state is LeaderProcessState.RUNNING
        idle = serving and self._dispatcher is not None and not self._dispatcher.needs_engines
        self.state = LeaderProcessState.STOPPED
        if self._services is not None:
            self._services.fleet.halt()
            self._services.resources.halt()  # first: JobMasters that end now release slots on which their jobs run on
        await self._tasks.close()
        if self._dispatcher is not None:
            await self._dispatcher.close()
        if self._services is not None:
            await self._services.resources.close()
            await self._services.fleet.close()
            if idle and alone is not None and await alone():
                await self._services.resources.end_engines()
