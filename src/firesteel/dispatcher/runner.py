"""The DispatcherRunner: this node's contender. At most one leader process of a node lives at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from firesteel.concurrency import RETRIES, OwnedTasks, retry
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.leader_process import DispatcherLeaderProcess
from firesteel.errors import FencingError, NotLeadingError, StoreFailingError, StoreUnavailableError
from firesteel.ha.protocols import Epoch, LeaderElectionDriver
from firesteel.metrics.declarations import EPOCH, FENCED, GRANTS, LEADING, RECOVERY, REVOCATIONS
from firesteel.metrics.registry import MetricRegistry

MakeLeaderProcess = Callable[[Epoch, Callable[[Epoch], None]], DispatcherLeaderProcess]
RECONSIDER_SECONDS = 1.0
logger = logging.getLogger(__name__)


class DispatcherRunner:
    """A LeaderListener. Grants and revocations only state what is wanted; one task carries it out, in order.

    grant → wait until the process of the last leadership has fully ended → a new process → publish the address, last;
    revoke → stop acting at once, then end the process;
    hand over → accept nothing new, finish what was accepted, end the process, and only then let others lead.
    """

    def __init__(
        self,
        election: LeaderElectionDriver,
        make_process: MakeLeaderProcess,
        *,
        address: str,
        on_fatal: Callable[[BaseException], None],
        metrics: MetricRegistry | None = None,
    ) -> None:
        self._metrics = metrics or MetricRegistry()
        self._metrics.set(LEADING, 0)
        self._metrics.set(EPOCH, 0)
        self._election = election
        self._make_process = make_process
        self._address = address
        self._on_fatal = on_fatal
        self._wanted: Epoch | None = None
        self._granted: Epoch | None = None
        """As the election reports it."""
        self._given_away: Epoch | None = None
        """It accepts nothing new any more."""
        self._changed = asyncio.Event()
        self._process: DispatcherLeaderProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._tasks = OwnedTasks("dispatcher-runner", on_fatal)

    @property
    def dispatcher(self) -> Dispatcher:
        """The Dispatcher, if this node leads; NotLeadingError if not.

        It is still given while leadership is handed over: requests that were accepted before are finished with it.
        """
        if self._process is None or self._process.epoch != self._wanted:
            raise NotLeadingError("this node does not lead; ask the leader")
        return self._process.dispatcher

    @property
    def epoch(self) -> Epoch:
        """The epoch of the Dispatcher that serves here; NotLeadingError if there is none, or it accepts nothing new."""
        assert self.dispatcher is not None
        assert self._process is not None
        if self._process.epoch == self._given_away:
            raise NotLeadingError("this node is handing its leadership over; ask the next leader")
        return self._process.epoch

    async def start(self) -> None:
        self._tasks.start(self._conduct(), "conductor")
        await self._election.start(self)

    async def hand_over(self, finish: Callable[[], Awaitable[None]], *, patience: float) -> None:
        """Hand leadership over in an orderly way. `finish` returns, soon, when accepted requests are done.

        This node contends again once another one has led, or if none has taken over after `patience` seconds. Raises
        NotLeadingError when it does not lead, or is already handing over.
        """
        epoch = self._given_away = self.epoch
        logger.info("epoch %s hands leadership over", epoch)
        try:
            await finish()
            if self._wanted == epoch:
                self._want(None)
            await self._end_process()
            await self._election.resign(epoch, patience=patience)
        finally:
            self._given_away = None

    async def close(
        self, finish: Callable[[], Awaitable[None]] | None = None, *, alone: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Finish what was accepted, end the process, then leave the election: no other node leads before we have let
        go.

        `alone`: whether no other node is left to adopt the engines.
        """
        if finish is not None:
            with contextlib.suppress(NotLeadingError):
                self._given_away = self.epoch
                await finish()
        self._wanted = None
        await self._tasks.close()
        await self._end_process(alone)
        await self._election.close()

    # -- told by the election -------------------------------------------------------------------------------------

    def on_grant(self, epoch: Epoch) -> None:
        logger.info("leadership granted: epoch %s", epoch)
        self._granted = epoch
        self._metrics.count(GRANTS)
        self._metrics.set(LEADING, 1)
        self._metrics.set(EPOCH, epoch)
        self._want(epoch)

    def on_revoke(self) -> None:
        logger.warning("leadership revoked")
        self._granted = None
        self._metrics.count(REVOCATIONS)
        self._metrics.set(LEADING, 0)
        self._want(None)

    def on_error(self, error: Exception) -> None:
        self._on_fatal(error)

    def _on_fenced(self, epoch: Epoch) -> None:
        """A store refused us before the election told us: another node leads already, or ours was briefly in doubt."""
        if self._wanted == epoch:
            self._metrics.count(FENCED)
            logger.warning("fenced: epoch %s no longer leads, or it is not certain that it does", epoch)
            self._want(None)
            self._tasks.start(self._reconsider(epoch), "reconsider")

    async def _reconsider(self, epoch: Epoch) -> None:
        """Lead again if it turns out that we never stopped: a node that renews its lease without serving is worse than
        no node, as no other can take its place."""
        while self._granted == epoch and self._wanted is None:
            await asyncio.sleep(RECONSIDER_SECONDS)
            if epoch == self._given_away:
                return
            if self._granted == epoch and self._wanted is None and self._election.holds(epoch):
                logger.warning("epoch %s still leads; recovering again", epoch)
                self._want(epoch)

    def _want(self, epoch: Epoch | None) -> None:
        self._wanted = epoch
        self._changed.set()
        if self._starting is not None:
            self._starting.cancel()

    # -- making it so ---------------------------------------------------------------------------------------------

    async def _conduct(self) -> None:
        while True:
            await self._changed.wait()
            await self._end_process()
            # Only now: the next line reads what the election has said while the old process ended.
            self._changed.clear()
            if (epoch := self._wanted) is None:
                continue
            self._process = self._make_process(epoch, self._on_fenced)
            self._starting = asyncio.get_running_loop().create_task(self._lead(self._process), name=f"leader-{epoch}")
            try:
                await asyncio.wait([self._starting])
                if not self._starting.cancelled() and (error := self._starting.exception()) is not None:
                    if isinstance(error, FencingError):
                        self._on_fenced(epoch)
                    else:
                        self._on_fatal(error)
            finally:
                starting, self._starting = self._starting, None
                if not starting.done():
                    starting.cancel()
                    await asyncio.wait([starting])

    async def _lead(self, process: DispatcherLeaderProcess) -> None:
        began = time.monotonic()
        await process.start()
        self._metrics.observe(RECOVERY, time.monotonic() - began)
        await retry(
            lambda: self._election.publish(process.epoch, self._address),
            RETRIES,
            on=(StoreUnavailableError, StoreFailingError),
            what="publishing the leader's address",
        )

    async def _end_process(self, alone: Callable[[], Awaitable[bool]] | None = None) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            self._ending = asyncio.get_running_loop().create_task(process.close(alone), name="end-leader-process")
        if self._ending is not None:
            # If this is cancelled half-way, `close` does the rest, which waits for it too.
            await asyncio.shield(self._ending)
            self._ending = None
