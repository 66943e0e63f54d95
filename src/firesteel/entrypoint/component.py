"""The DispatcherResourceManagerComponent: the parts of one node, opened in order and closed in reverse."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator

from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.errors import ServiceStartError
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import LeaderRetrieval

logger = logging.getLogger(__name__)

Endpoint = Callable[["DispatcherResourceManagerComponent"], contextlib.AbstractAsyncContextManager[str]]
"""A door such as the REST server: given the component, it serves until it is closed, and says its address."""


class DispatcherResourceManagerComponent:
    """One node: who leads, what serves, and the Dispatcher while this node leads.

    The ResourceManager belongs to a leadership and is started by the leader process; engines outlive both.
    """

    def __init__(self, make_runner: Callable[[str], DispatcherRunner], retrieval: LeaderRetrieval) -> None:
        self._make_runner = make_runner
        self._runner: DispatcherRunner | None = None
        self.retrieval = retrieval

    @property
    def dispatcher(self) -> Dispatcher:
        """Raises NotLeadingError while this node does not lead."""
        assert self._runner is not None, "the component is not open"
        return self._runner.dispatcher

    @property
    def epoch(self) -> Epoch:
        """Of the leadership of this node. Raises NotLeadingError while it does not lead."""
        assert self._runner is not None, "the component is not open"
        return self._runner.epoch

    def leader(self) -> LeaderInformation | None:
        """Who leads, as far as this node knows."""
        return self.retrieval.current

    @contextlib.asynccontextmanager
    async def open(self, endpoint: Endpoint | None = None) -> AsyncIterator[DispatcherResourceManagerComponent]:
        """Start all parts. When one cannot start, those that were started are closed and the error says which it was."""
        async with contextlib.AsyncExitStack() as opened:
            address = ""
            with starting("leader retrieval service"):
                await self.retrieval.start()
                opened.push_async_callback(self.retrieval.close)
            if endpoint is not None:
                with starting("REST endpoint"):
                    address = await opened.enter_async_context(endpoint(self))
            with starting("dispatcher runner"):
                self._runner = self._make_runner(address)
                opened.push_async_callback(self._runner.close)
                await self._runner.start()
            yield self


@contextlib.contextmanager
def starting(part: str) -> Iterator[None]:
    """What goes wrong in here is told as the failed start of `part`."""
    try:
        yield
    except Exception as error:
        raise ServiceStartError(part, error) from error
