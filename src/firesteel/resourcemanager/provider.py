"""The protocol of engine providers, which start, find and end engines.

An engine outlives the control plane. So no engine is ended because a task was cancelled: the next leader finds one that
was being started or stopped through the engine's directory, which holds all that it needs to know.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Protocol, TypeVar

from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.types import Guard

T = TypeVar("T")
logger = logging.getLogger(__name__)


class EngineHealth(Enum):
    WELL = "answers"
    SILENT = "does not answer"
    BUSY = "does not answer, but its process works"
    GONE = "is gone, or was told to end"
    UNKNOWN = "is on a worker that does not answer"


class EngineProvider(Protocol):
    """Starts, finds and ends engines.

    Cancelling a call leaves the engine to the next leader that looks for it; once the cancelled call has ended, no
    further engine is started, and no further engine is told to end.
    """

    async def start(self, spec: EngineSpec, worker: str) -> EngineRecord:
        """Start an engine on a worker, or attach to one from there, and wait until it answers.

        Raises FiresteelError or OSError when it does not come up; nothing of it is left running then.
        """
        ...

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        """Wait until an engine of an earlier leader answers; returns its completed record. Raises EngineLostError."""
        ...

    async def there(self, record: EngineRecord) -> bool:
        """Whether the process of an engine runs and was not told to end. Asks the engine nothing, so this takes no time."""
        ...

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None:
        """End an engine and remove what is left of it; with `force`, without asking it first. May be repeated.

        `guard` raises FencingError when the caller may not; it is called as late as possible, after the engine was
        visibly marked as one that is being ended.
        """
        ...

    async def health(self, record: EngineRecord) -> EngineHealth: ...

    async def last_words(self, record: EngineRecord) -> str:
        """The end of its log; may be empty."""
        ...

    async def existing(self) -> Sequence[EngineRecord]:
        """Engines of earlier leaders that may still run."""
        ...

    async def shared(self) -> Sequence[EngineRecord]:
        """Engines that a user started to be shared. The node must not stop them."""
        ...
