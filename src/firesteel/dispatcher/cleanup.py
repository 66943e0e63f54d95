"""Clean-up after a job that has a dirty result: ordered steps, each of which may be repeated.

The order makes a crash in the middle harmless: what later steps need is removed last. The graph and the record stay
until everything that they describe is gone, and the clean mark is written at the very end. A leader that finds a dirty
result begins again at the first step (I12).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from firesteel.concurrency import Backoff, retry
from firesteel.config.sections import CleanupOptions, CleanupStrategyType
from firesteel.dispatcher.archiving import JobArchives
from firesteel.dispatcher.details import JobDetails
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import FencingError
from firesteel.types import AttemptId, JobID

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanupStep:
    name: str
    run: Callable[[JobID], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class CleanupStrategy:
    """How a clean-up that failed is repeated."""

    backoff: Backoff
    repetitions: float = math.inf

    @staticmethod
    def of(options: CleanupOptions) -> CleanupStrategy:
        match options.type:
            case CleanupStrategyType.NONE:
                return CleanupStrategy(Backoff(options.initial_backoff, options.max_backoff), 0)
            case CleanupStrategyType.FIXED_DELAY:
                delay = options.fixed_delay
                return CleanupStrategy(Backoff(delay, delay), options.fixed_delay_attempts or math.inf)
            case CleanupStrategyType.EXPONENTIAL_DELAY:
                backoff = Backoff(options.initial_backoff, options.max_backoff)
                return CleanupStrategy(backoff, options.exponential_delay_attempts or math.inf)
            case _:
                assert_never(options.type)


class ResourceCleaner:
    """Runs the steps in order, from the first again when one fails, until all have succeeded or it is given up."""

    def __init__(self, steps: Sequence[CleanupStep], strategy: CleanupStrategy) -> None:
        self._steps = tuple(steps)
        self._strategy = strategy

    async def clean(self, job_id: JobID) -> bool:
        """True when nothing is left; False when it was given up, and the result stays dirty for the next leader. Raises
        FencingError when this node no longer leads; the next leader continues."""

        async def once() -> None:
            for step in self._steps:
                try:
                    await step.run(job_id)
                except (FencingError, asyncio.CancelledError):
                    raise
                except Exception as error:
                    error.add_note(f"clean-up step '{step.name}' of job {job_id}")
                    raise

        try:
            await retry(
                once,
                self._strategy.backoff,
                on=(Exception,),
                but_not=(FencingError,),
                what=f"the clean-up of job {job_id}",
                repetitions=self._strategy.repetitions,
            )
        except FencingError:
            raise
        except Exception as error:
            logger.error(
                "the clean-up of job %s is given up, as cleanup-strategy says; files of it may be left, and the next leader "
                "tries again: %s",
                job_id,
                error,
                exc_info=error,
            )
            return False
        logger.info("job %s: clean", job_id)
        return True


class JobCleanup:
    """The clean-up steps of a job, on the services of one leadership."""

    def __init__(self, services: DispatcherServices, details: JobDetails, archives: JobArchives) -> None:
        self._services = services
        self._details = details
        self._archives = archives

    def cleaner(self) -> ResourceCleaner:
        services, options = self._services, self._services.configuration.cleanup_strategy
        return ResourceCleaner(
            [
                CleanupStep("archive", self._archive),
                CleanupStep("history", self._archives.write),
                CleanupStep("watchers", self._tell_watchers),
                CleanupStep("outputs", self._clear_outputs),
                CleanupStep("attempts", self._forget_attempts),
                CleanupStep("record", lambda job: services.records.delete(job, epoch=services.epoch)),
                CleanupStep("graph", lambda job: services.graphs.delete(job, epoch=services.epoch)),
                CleanupStep("clean mark", lambda job: services.results.mark_clean(job, epoch=services.epoch)),
            ],
            CleanupStrategy.of(options),
        )

    async def _archive(self, job_id: JobID) -> None:
        result = self._services.results.get(job_id)
        if result is not None and job_id not in self._services.finished:
            await self._services.finished.put(job_id, result.ended_at, await self._details.at_the_end(result))

    async def _tell_watchers(self, job_id: JobID) -> None:
        """After this, the end of the job is told for certain, however often leaders change."""
        data = await self._services.finished.get(job_id) if self._services.watchers else None
        if data is not None:
            for watcher in self._services.watchers:
                await watcher.ended(data)

    async def _clear_outputs(self, job_id: JobID) -> None:
        result = self._services.results.get(job_id)
        described = await self._details.described(job_id)
        if described is not None and result is not None:
            self._services.guard()
            await self._services.clear_outputs(described[0], result)

    async def _forget_attempts(self, job_id: JobID) -> None:
        for number in await self._services.executor.attempts(job_id):
            await self._services.executor.forget(AttemptId(job_id, number), guard=self._services.guard)
