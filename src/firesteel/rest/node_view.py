"""The node, as its REST API sees it."""

from __future__ import annotations

from typing import Protocol

from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence


class NodeView(Protocol):
    """Everything that routes, forwarding and the endpoint need from their node."""

    @property
    def dispatcher(self) -> DispatcherGateway:
        """The Dispatcher of this node. Raises NotLeadingError while it does not lead."""
        ...

    @property
    def epoch(self) -> Epoch:
        """The epoch in which this node leads. Raises NotLeadingError while it does not lead, or hands leadership over."""
        ...

    @property
    def absence(self) -> Absence | None:
        """Why no leader is known, if that is so; None while this node leads itself."""
        ...

    def leader(self) -> LeaderInformation | None:
        """The current leader, as far as this node knows."""
        ...

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Return when `leader` or `absence` may have changed, at the latest after `timeout` seconds."""
        ...

    async def others_wait(self) -> bool | None:
        """Whether another node would lead in place of this one; None if that is unknown."""
        ...

    def begin_hand_over(self) -> None:
        """Hand leadership over, in the background. Raises NotLeadingError when this node does not lead."""
        ...
