"""The DispatcherResourceManagerComponent: the parts of one node, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol, runtime_checkable

from firesteel.concurrency import OwnedTasks
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.errors import NotLeadingError, ServiceStartError, StoreError
from firesteel.ha.protocols import Epoch, KnowsContenders, LeaderElectionDriver, LeaderInformation
from firesteel.ha.retrieval import Absence, LeaderRetrieval

logger = logging.getLogger(__name__)

STAND_BACK_SECONDS = 5.0
"""How long this node does not contend after a hand-over. Other nodes take leadership in a fraction of that."""
LINGER_SECONDS = 3.0
"""How long an ending leader keeps serving, to send its callers to the next one."""

Endpoint = Callable[["DispatcherResourceManagerComponent"], contextlib.AbstractAsyncContextManager[str]]
"""A server such as the REST endpoint: given the component, it serves until it is closed, and returns its address."""


@runtime_checkable
class GracefulEndpoint(Protocol):
    """What an endpoint may offer beyond serving, so that callers do not notice when this node gives up leadership."""

    async def finish(self) -> None:
        """Returns when all accepted requests are answered, or take too long."""
        ...

    async def neighbours(self) -> bool:
        """Whether other nodes of this cluster run on this machine."""
        ...

    def leave(self, *, others: bool) -> None:
        """Prepare for the end of this node; `others` says whether another node could lead in its place."""
        ...


class DispatcherResourceManagerComponent:
    """One node: its view of the leader, its endpoint, and its Dispatcher while it leads.

    The ResourceManager belongs to a leadership and is started by the leader process; engines outlive both.
    """

    def __init__(
        self,
        make_runner: Callable[[str], DispatcherRunner],
        retrieval: LeaderRetrieval,
        election: LeaderElectionDriver | None = None,
        *,
        one_host: bool = True,
        on_fatal: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        """`election`: the runner's, which may know other contenders. `one_host`: all nodes of the cluster are on this host."""
        self._one_host = one_host
        self._make_runner = make_runner
        self._runner: DispatcherRunner | None = None
        self._election = election
        self._door: GracefulEndpoint | None = None
        self._address = ""
        self._ceased: Absence | None = None
        self._tasks = OwnedTasks("component", on_fatal)
        self.retrieval = retrieval

    @property
    def dispatcher(self) -> Dispatcher:
        """Raises NotLeadingError while this node does not lead."""
        return self._running.dispatcher

    @property
    def epoch(self) -> Epoch:
        """The epoch of this node's leadership. Raises NotLeadingError while it does not lead, or hands leadership over."""
        return self._running.epoch

    @property
    def _running(self) -> DispatcherRunner:
        if self._runner is None:  # the endpoint opens a moment before
            raise NotLeadingError("this node is still starting; ask again in a moment")
        return self._runner

    @property
    def address(self) -> str:
        """Where this node serves; empty as long as it does not."""
        return self._address

    def leader(self) -> LeaderInformation | None:
        """The current leader, as far as this node knows."""
        return self.retrieval.current

    @property
    def absence(self) -> Absence | None:
        """Why no leader is known; None if one is known, or if this node leads."""
        with contextlib.suppress(NotLeadingError):
            if self.epoch:
                return None
        return self.retrieval.absence or self._old_news()

    def _old_news(self) -> Absence | None:
        """The absence of a leader if the store still names this node, which no longer leads."""
        said = self.retrieval.current
        if said is None or said.address != self._address:
            return None
        if self._ceased is None or self._ceased.last_leader != said:
            self._ceased = Absence(
                "this node is no longer the leader, and the new leader is not known yet", time.time(), said
            )
        return self._ceased

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        await self.retrieval.changed(timeout)

    # -- hand-over ------------------------------------------------------------------------------------------------

    async def others_wait(self) -> bool | None:
        """Whether another node would lead in place of this one; None if that is unknown."""
        if isinstance(self._election, KnowsContenders):
            try:
                return await self._election.others_wait()
            except StoreError:
                return None
        if self._door is None:
            return None
        if await self._door.neighbours():
            return True
        return False if self._one_host else None

    def begin_hand_over(self) -> None:
        """Hand leadership over, in the background. Raises NotLeadingError when this node does not lead."""
        epoch = self.epoch
        self._tasks.start(self._hand_over(epoch), "hand-over")

    async def _hand_over(self, epoch: Epoch) -> None:
        began = time.monotonic()
        try:
            await self._running.hand_over(self._finish, patience=STAND_BACK_SECONDS)
        except NotLeadingError:
            return  # leadership was lost meanwhile, which has the same effect
        logger.info("handed over leadership of epoch %s in %.2f s", epoch, time.monotonic() - began)

    async def _finish(self) -> None:
        if self._door is not None:
            await self._door.finish()

    async def _depart(self) -> None:
        """Give up leadership, if this node has it, and send late callers to the next leader."""
        assert self._runner is not None
        await self._tasks.close()
        epoch: Epoch | None = None
        with contextlib.suppress(NotLeadingError):
            epoch = self._runner.epoch
        others = True if epoch is None else await self.others_wait()
        if self._door is not None:
            self._door.leave(others=others is not False)
        await self._runner.close(self._finish, alone=self._alone)
        if epoch is not None and others is not False and self._door is not None:
            await self._linger(epoch, LINGER_SECONDS if others else LINGER_SECONDS / 2)

    async def _alone(self) -> bool:
        """Whether no other node of this host is left to adopt the engines, which nodes of other hosts cannot."""
        return not await self._door.neighbours() if self._door is not None else await self.others_wait() is False

    async def _linger(self, epoch: Epoch, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not ((next_ := self.retrieval.current) and next_.epoch > epoch and next_.address):
                    await self.retrieval.changed(seconds)

    @contextlib.asynccontextmanager
    async def open(self, endpoint: Endpoint | None = None) -> AsyncIterator[DispatcherResourceManagerComponent]:
        """Start all parts. If one cannot start, the others are closed again and the error names the part."""
        async with contextlib.AsyncExitStack() as opened:
            with starting("leader retrieval service"):
                await self.retrieval.start()
                opened.push_async_callback(self.retrieval.close)
            if endpoint is not None:
                with starting("REST endpoint"):
                    self._address = await opened.enter_async_context(endpoint(self))
                self._door = endpoint if isinstance(endpoint, GracefulEndpoint) else None
            with starting("dispatcher runner"):
                self._runner = self._make_runner(self._address)
                opened.push_async_callback(self._depart)
                await self._runner.start()
            yield self


@contextlib.contextmanager
def starting(part: str) -> Iterator[None]:
    """Report an error in this block as the failed start of `part`."""
    try:
        yield
    except Exception as error:
        raise ServiceStartError(part, error) from error
