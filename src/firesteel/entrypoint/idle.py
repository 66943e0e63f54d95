"""A node that was started for a command ends when it has been idle for a while."""

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
    """Return once there was no job and no request for `patience` seconds; `last_asked` is a time of the monotonic clock.

    A node that does not lead has no jobs, and the leader does not need it.
    """
    idle_since = time.monotonic()
    while True:
        await asyncio.sleep(min(LOOK_SECONDS, patience / 4))
        now = time.monotonic()
        try:
            busy = component.dispatcher.busy
        except NotLeadingError:
            busy = component.leader() is None  # this node may be about to lead and recover jobs
        idle_since = now if busy else max(idle_since, last_asked())
        if now - idle_since >= patience:
            logger.info("this node has been idle for %g s; ending", patience)
            return


async def end_in_order(component: DispatcherResourceManagerComponent, end: Callable[[], None]) -> None:
    """Stop unused engines, if this node leads, and end."""
    try:
        await component.dispatcher.shut_down()
    except NotLeadingError:
        end()
