"""Cleaning up after a job that has a dirty result: ordered steps, each of which may be repeated.

The order is what makes a crash in the middle harmless: what later steps need goes last. The graph and the record stay until
everything that they describe is gone, and the clean mark comes after all. A leader that finds a dirty result begins again at
the first step (I12).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from firesteel.concurrency import Backoff, retry
from firesteel.errors import FencingError
from firesteel.types import JobID

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanupStep:
    name: str
    run: Callable[[JobID], Awaitable[object]]


class ResourceCleaner:
    """Runs the steps in order, from the first again when one fails, until all have succeeded."""

    def __init__(self, steps: Sequence[CleanupStep], backoff: Backoff) -> None:
        self._steps = tuple(steps)
        self._backoff = backoff

    async def clean(self, job_id: JobID) -> None:
        """Returns when nothing is left. Raises FencingError when this node leads no more; the next leader goes on."""

        async def once() -> None:
            for step in self._steps:
                try:
                    await step.run(job_id)
                except (FencingError, asyncio.CancelledError):
                    raise
                except Exception as error:
                    error.add_note(f"clean-up step '{step.name}' of job {job_id}")
                    raise

        await retry(once, self._backoff, on=(Exception,), but_not=(FencingError,), what=f"the clean-up of job {job_id}")
        logger.info("job %s: clean", job_id)
