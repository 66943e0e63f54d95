"""The execution graph of a job, while it runs and after its end: from memory, the archive or the stores."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from firesteel.dispatcher.archiving import JobArchives
from firesteel.dispatcher.job_table import Ended, Ending, JobTable, Live
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import StoreError
from firesteel.jobmaster.execution_graph import bare, execution_graph, makes_sense
from firesteel.jobmaster.machine import JobState
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import AttemptId, JobID

logger = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 5.0
"""How long we wait for the row counts of a job that has just ended."""


class JobDetails:
    """The execution graphs of all jobs. `table` is the Dispatcher's own, and is only read here."""

    def __init__(self, services: DispatcherServices, table: JobTable, archives: JobArchives) -> None:
        self._services = services
        self._table = table
        self._archives = archives

    async def of(self, job_id: JobID) -> dict[str, Any] | None:
        """The execution graph of a job; None when the job is not known."""
        found = await self._of(job_id)
        # Built anew, even if details were kept: the savepoint of a stopped job is taken after its end.
        return None if found is None else self._with_savepoint(found, job_id)

    async def _of(self, job_id: JobID) -> dict[str, Any] | None:
        if isinstance(entry := self._table.get(job_id), Live):
            state = entry.runner.shown
            progress = await self._progress(job_id, state)
            return execution_graph(entry.runner.submission, state, progress, now=self._services.now())
        result = self._services.results.get(job_id)
        found = await self._services.finished.get(job_id)
        if found is not None:
            if makes_sense(found, job_id):
                return found
            logger.warning("the archived details of job %s are malformed and are not shown", job_id)
            if result is not None:
                return bare(result)
        if result is None:
            return None
        if not isinstance(self._table.get(job_id), Ended):
            return await self.at_the_end(result)
        # Its details went by age, or are on the node that led when it ended.
        return await self._archives.of_result(result) or await self.at_the_end(result)

    async def at_the_end(self, result: JobResult) -> dict[str, Any]:
        """Of a job that has its result, from what is left of it."""
        described = await self.described(result.job_id)
        if described is None:
            return bare(result)
        submission, state = described
        await self._tidied(result.job_id, state)
        progress = await self._progress(result.job_id, state)
        found = execution_graph(submission, state, progress, now=self._services.now(), result=result)
        return self._with_savepoint(found, result.job_id)

    def _with_savepoint(self, found: dict[str, Any], job_id: JobID) -> dict[str, Any]:
        latest = self._services.operations.latest_savepoint(job_id)
        return {**found, "savepoint": "" if latest is None else latest.savepoint}

    async def described(self, job_id: JobID) -> tuple[Submission, JobState] | None:
        """What is still known of an ended job: from memory, or from the stores after a failover."""
        if isinstance(entry := self._table.get(job_id), Ending) and entry.runner is not None:
            return entry.runner.submission, entry.runner.state
        try:
            submission = await self._services.graphs.get(job_id)
            record = await self._services.records.get(job_id)
            if submission is None:
                return None
            restart = submission.graph.settings.restart
            size = self._services.configuration.jobmanager.exception_history_size
            state = JobState.of_record(restart, size, record) if record else JobState(restart)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, UnreadableRecordError):
                raise
            # Poison: its result says so, there is nothing more to show.
            logger.warning("job %s cannot be described: %s", job_id, error)
            return None
        return submission, state

    async def _tidied(self, job_id: JobID, state: JobState) -> None:
        """Give the driver of a job that has just ended the time to tell the last of it."""
        if state.attempt:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    await self._services.executor.tidied(AttemptId(job_id, state.attempt))

    async def _progress(self, job_id: JobID, state: JobState) -> Mapping[str, Any]:
        return await self._services.executor.progress(AttemptId(job_id, state.attempt)) if state.attempt else {}
