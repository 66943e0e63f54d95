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
"""After a hand-over that nobody took up, this node leads again. Others take up one in a fraction of that."""
LINGER_SECONDS = 3.0
"""How long a leader that ends serves on, in order to send its callers to the next one."""

Endpoint = Callable[["DispatcherResourceManagerComponent"], contextlib.AbstractAsyncContextManager[str]]
"""A door such as the REST server: given the component, it serves until it is closed, and says its address."""


@runtime_checkable
class GracefulEndpoint(Protocol):
    """What an endpoint may offer beyond serving, so that nobody notices when this node lets go."""

    async def finish(self) -> None:
        """Returns when what was accepted is answered, or takes too long."""
        ...

    async def neighbours(self) -> bool:
        """Whether other nodes of this cluster run on this machine."""
        ...

    def leave(self, *, others: bool) -> None:
        """This node is about to end; `others` could lead in its place."""
        ...


class DispatcherResourceManagerComponent:
    """One node: who leads, what serves, and the Dispatcher while this node leads.

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
        """`election`: the runner's, which may know of other contenders. `one_host`: all nodes of the cluster are here."""
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
        """Of the leadership of this node. Raises NotLeadingError while it does not lead, or gives leadership away."""
        return self._running.epoch

    @property
    def _running(self) -> DispatcherRunner:
        if self._runner is None:  # the door opens a moment before
            raise NotLeadingError("this node is still starting; ask again in a moment")
        return self._runner

    def leader(self) -> LeaderInformation | None:
        """Who leads, as far as this node knows."""
        return self.retrieval.current

    @property
    def absence(self) -> Absence | None:
        """Why nobody is known who could be asked; None if somebody is, or if this node leads."""
        with contextlib.suppress(NotLeadingError):
            if self.epoch:
                return None
        return self.retrieval.absence or self._old_news()

    def _old_news(self) -> Absence | None:
        """That this node itself is said to lead, when it does so no more and the store has not said who does."""
        said = self.retrieval.current
        if said is None or said.address != self._address:
            return None
        if self._ceased is None or self._ceased.last_leader != said:
            self._ceased = Absence("this node leads no more, and who does is not known yet", time.time(), said)
        return self._ceased

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        await self.retrieval.changed(timeout)

    # -- hand-over ------------------------------------------------------------------------------------------------

    async def others_wait(self) -> bool | None:
        """Whether another node would lead in this one's place, as far as can be told."""
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
        """Give leadership away, in the background. Raises NotLeadingError when this node does not lead."""
        epoch = self.epoch
        self._tasks.start(self._hand_over(epoch), "hand-over")

    async def _hand_over(self, epoch: Epoch) -> None:
        began = time.monotonic()
        try:
            await self._running.hand_over(self._finish, patience=STAND_BACK_SECONDS)
        except NotLeadingError:
            return  # lost meanwhile, which is what was wanted
        logger.info("epoch %s has given leadership away, in %.2f s", epoch, time.monotonic() - began)

    async def _finish(self) -> None:
        if self._door is not None:
            await self._door.finish()

    async def _depart(self) -> None:
        """Let go of leadership, if we have it, and send those who still come here to the next leader."""
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
        """Whether no node is left here that could adopt engines, which only nodes of their own host can."""
        return not await self._door.neighbours() if self._door is not None else await self.others_wait() is False

    async def _linger(self, epoch: Epoch, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not ((next_ := self.retrieval.current) and next_.epoch > epoch and next_.address):
                    await self.retrieval.changed(seconds)

    @contextlib.asynccontextmanager
    async def open(self, endpoint: Endpoint | None = None) -> AsyncIterator[DispatcherResourceManagerComponent]:
        """Start all parts. When one cannot start, those that were started are closed and the error says which it was."""
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
    """What goes wrong in here is told as the failed start of `part`."""
    try:
        yield
    except Exception as error:
        raise ServiceStartError(part, error) from error
