"""The life of a worker at its leaders: find one, register, obey and report; and what to do without one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from firesteel.concurrency import Backoff
from firesteel.errors import FencingError, FiresteelError
from firesteel.rpc.messages import Command, Heard, Registered, Registration, WorkerReport
from firesteel.types import Guard
from firesteel.worker.epochs import ObeyedEpochs
from firesteel.worker.isolation import LeaderContact
from firesteel.worker.service import WorkerService

logger = logging.getLogger(__name__)

COMING_BACK = Backoff(0.1, 2.0)
"""Between two tries to find a leader. Short, as jobs are waiting to be adopted."""
STOP_AHEAD_SECONDS = 3.0
"""A worker begins to stop so long before its time is up: it must have ended by then."""


class LeaderConnection(Protocol):
    """The way to whoever leads. Each method raises FiresteelError or OSError when there is nobody, or somebody else."""

    async def register(self, registration: Registration) -> Registered: ...

    def commands(self, incarnation: str) -> AsyncIterator[Command]:
        """Commands as they come, until the connection ends."""
        ...

    async def report(self, report: WorkerReport) -> Heard: ...


class WorkerSession:
    """Runs until it is cancelled."""

    def __init__(
        self,
        service: WorkerService,
        connection: LeaderConnection,
        epochs: ObeyedEpochs,
        contact: LeaderContact,
        on_registered: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_registered`: told the epoch of each leader that takes this worker."""
        self._on_registered = on_registered
        self._service = service
        self._connection = connection
        self._epochs = epochs
        self._contact = contact
        self.epoch = 0
        """Of the leader at which this worker is registered; 0 when at none."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve(), name="worker-session")
            if self._service.info.policy == "stop":
                tasks.create_task(self._stop_when_isolated(), name="worker-isolation")

    # -- with a leader --------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        delays = COMING_BACK.delays()
        said = ""
        while True:
            try:
                await self._one_leadership()
                delays = COMING_BACK.delays()
            except* (FiresteelError, OSError) as group:
                why = "; ".join(str(e) for e in _leaves(group))
                if self.epoch:
                    logger.warning("contact with the leader of epoch %d is lost: %s", self.epoch, why)
                    delays = COMING_BACK.delays()
                elif why != said:
                    logger.warning("no leader takes this worker: %s", why)
                said = why
            self.epoch = 0
            await asyncio.sleep(next(delays))

    async def _one_leadership(self) -> None:
        asked_at = self._contact.now()
        registered = await self._connection.register(await self._service.registration())
        # Before anything is done for it: whoever led before is obeyed no more.
        await asyncio.to_thread(self._epochs.obey, registered.epoch)
        self._contact.registered(asked_at)
        self.epoch = registered.epoch
        logger.info("registered at the leader of epoch %d", registered.epoch)
        self._on_registered(registered.epoch)
        async with asyncio.TaskGroup() as tasks:
            obeying = tasks.create_task(self._obey(registered.epoch), name="worker-commands")
            reporting = tasks.create_task(self._report(registered), name="worker-reports")
            looking = tasks.create_task(self._look(registered.heartbeat), name="worker-progress")
            # A stream that ends without an error ends the leadership as well.
            await asyncio.wait([obeying], return_when=asyncio.FIRST_COMPLETED)
            reporting.cancel()
            looking.cancel()

    async def _obey(self, epoch: int) -> None:
        async for command in self._connection.commands(self._service.info.incarnation):
            if command.epoch != epoch:
                raise FencingError(f"a command of epoch {command.epoch} came from the leader of epoch {epoch}")
            self._service.receive(command)

    async def _report(self, registered: Registered) -> None:
        while True:
            asked_at = self._contact.now()
            report = self._service.report(registered.epoch)
            heard = await self._connection.report(report)
            if heard.epoch != registered.epoch:
                raise FencingError(f"the leader of epoch {heard.epoch} has taken over")
            self._service.told(report)
            self._contact.answered(asked_at)
            try:
                async with asyncio.timeout(registered.heartbeat):
                    await self._service.news.wait()
            except TimeoutError:
                continue

    async def _look(self, heartbeat: float) -> None:
        while True:
            await asyncio.sleep(min(1.0, heartbeat))
            await self._service.look()

    # -- without one ----------------------------------------------------------------------------------------------

    async def _stop_when_isolated(self) -> None:
        """End everything in time: after that, the leader may run the jobs elsewhere."""
        while True:
            ahead = min(STOP_AHEAD_SECONDS, self._contact.timeout / 3)
            await asyncio.sleep(max(0.05, min(self._contact.left - ahead, 1.0)))
            if self._contact.left > ahead:
                continue
            logger.error(
                "no leader has answered for %.0f s (worker.isolation-timeout is %g s): all that runs here is ended",
                self._contact.timeout - self._contact.left,
                self._contact.timeout,
            )
            ended = False
            while self._contact.left <= ahead:
                ended = ended or await self._service.stop_everything(self._still_alone(ahead))
                await asyncio.sleep(0.2)

    def _still_alone(self, ahead: float) -> Guard:
        def guard() -> None:
            if self._contact.left > ahead:
                raise FencingError("a leader has answered after all")

        return guard


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
