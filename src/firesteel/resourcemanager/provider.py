"""Where engines come from: the protocol, and engines as processes of this machine.

An engine outlives the control plane. So no engine is ended because a task was cancelled: one that was being started or
stopped is found by the next leader in the engine's directory, which says all there is to know.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeVar

from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.types import Guard, certain

T = TypeVar("T")
logger = logging.getLogger(__name__)


class EngineHealth(Enum):
    WELL = "answers"
    SILENT = "does not answer"
    BUSY = "does not answer, but its process works"
    GONE = "is gone, or was told to end"


class EngineProvider(Protocol):
    """Starts, finds and ends engines.

    Cancelling a call leaves the engine to whoever looks for it next; once the cancelled call has ended, no engine is started
    that was not there already, and none is told to end that was not told already.
    """

    async def start(self, spec: EngineSpec) -> EngineRecord:
        """Start an engine, or attach to one, and wait until it answers.

        Raises FiresteelError or OSError when it does not come up; nothing of it is left running then.
        """
        ...

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        """Wait until an engine of an earlier life answers; its record, completed. Raises EngineLostError."""
        ...

    async def there(self, record: EngineRecord) -> bool:
        """Whether the process of an engine runs and was not told to end. Asks the engine nothing, so this takes no time."""
        ...

    async def stop(self, record: EngineRecord, *, force: bool = False, guard: Guard = certain) -> None:
        """End an engine and remove what is left of it; with `force`, without asking it first. May be repeated.

        `guard` raises FencingError when the caller may not; it is asked as close to the act as can be, after the engine was
        marked for all to see as one that is being ended.
        """
        ...

    async def health(self, record: EngineRecord) -> EngineHealth: ...

    async def last_words(self, record: EngineRecord) -> str:
        """The end of its log; may be empty."""
        ...

    async def existing(self) -> Sequence[EngineRecord]:
        """Engines of earlier lives that may still run."""
        ...

    async def shared(self) -> Sequence[EngineRecord]:
        """Engines that a user started for everybody. They are not ours to stop."""
        ...


def machine_memory() -> str:
    """The memory of this machine, as an option says it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{total >> 20}m"
