"""The node, as its REST API sees it."""

from __future__ import annotations

from typing import Protocol

from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import Absence


class NodeView(Protocol):
    """All that routes, forwarding and the endpoint need of the node around them."""

    @property
    def dispatcher(self) -> DispatcherGateway:
        """Of this node. Raises NotLeadingError while it does not lead."""
        ...

    @property
    def epoch(self) -> Epoch:
        """In which this node leads. Raises NotLeadingError while it does not, or gives leadership away."""
        ...

    @property
    def absence(self) -> Absence | None:
        """Why nobody is known who leads, if that is so; None while this node leads itself."""
        ...

    def leader(self) -> LeaderInformation | None:
        """Who leads, as far as this node knows."""
        ...

    async def leader_changed(self, timeout: float) -> None:  # noqa: ASYNC109 - not an error
        """Returns when `leader` or `absence` may say something else, at the latest after so many seconds."""
        ...

    async def others_wait(self) -> bool | None:
        """Whether another node would lead in this one's place; None when that cannot be told."""
        ...

    def begin_hand_over(self) -> None:
        """Give leadership away, in the background. Raises NotLeadingError when this node does not lead."""
        ...
