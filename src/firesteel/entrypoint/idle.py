"""A node that was woken up for somebody's command goes to sleep when nobody has needed it for a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from firesteel.entrypoint.component import DispatcherResourceManagerComponent
from firesteel.errors import NotLeadingError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


async def sleep_when_idle(
    component: DispatcherResourceManagerComponent, last_asked: Callable[[], float], patience: float
) -> None:
    """Returns once there was no job and no request for `patience` seconds; `last_asked` is by the monotonic clock.

    A node that does not lead has no jobs of its own, and the one that leads does not need it.
    """
    idle_since = time.monotonic()
    while True:
        await asyncio.sleep(min(LOOK_SECONDS, patience / 4))
        now = time.monotonic()
        try:
            busy = component.dispatcher.busy
        except NotLeadingError:
            busy = component.leader() is None  # it may be about to lead, and to find jobs
        idle_since = now if busy else max(idle_since, last_asked())
        if now - idle_since >= patience:
            logger.info("nobody has needed this node for %g s; it ends", patience)
            return


async def end_in_order(component: DispatcherResourceManagerComponent, end: Callable[[], None]) -> None:
    """Stop the engines that nobody uses, if they are ours to stop, and end."""
    try:
        await component.dispatcher.shut_down()
    except NotLeadingError:
        end()
