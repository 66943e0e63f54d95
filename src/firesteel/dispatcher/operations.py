"""Checkpoints and stops that somebody asked for, seen through from the wish to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from firesteel.concurrency import OwnedTasks
from firesteel.dispatcher.managed_job import ManagedJob
from firesteel.dispatcher.outputs import checkpoint_directory
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import FencingError, JobStateError
from firesteel.status import JobStatus
from firesteel.stores.operations import Operation, OperationKind
from firesteel.types import AttemptId, JobID


class Operations:
    """Owned by the Dispatcher, whose jobs it looks at."""

    def __init__(self, services: DispatcherServices, jobs: Mapping[JobID, ManagedJob], tasks: OwnedTasks) -> None:
        self._services = services
        self._jobs = jobs
        self._tasks = tasks

    def resume(self) -> None:
        """Take up what an earlier leader did not see the end of (I19)."""
        for operation in self._services.operations.unfinished():
            self._tasks.start(self.follow(operation), "operation")

    def known(self, job_id: JobID, trigger_id: str, kind: OperationKind) -> bool:
        """Whether this very wish was heard before: its repetition needs no running job."""
        there = self._services.operations.get(job_id, trigger_id)
        return there is not None and there.kind is kind

    async def begin(self, job_id: JobID, trigger_id: str, kind: OperationKind) -> None:
        """Write the wish down, then act on it; a repeated wish is the one that is under way already."""
        operation = Operation(job_id, trigger_id, kind, self._services.now())
        if await self._services.operations.begin(operation, epoch=self._services.epoch) is operation:
            self._tasks.start(self.follow(operation), kind.value.lower())

    async def follow(self, operation: Operation) -> None:
        """See an operation through; a leader that recovers it begins here (I19)."""
        job = self._jobs.get(operation.job_id)
        try:
            if job is not None:
                await job.runner.reclaimed()
            if operation.kind is OperationKind.STOP:
                outcome = await self._stopped(operation.job_id)
            elif job is None or job.result.done() or job.runner.state.attempt == 0:
                raise JobStateError("the job ended before")
            else:
                attempt = AttemptId(operation.job_id, job.runner.state.attempt)
                outcome = {"batches": dict(await self._services.executor.checkpoint(attempt))}
        except FencingError:
            raise
        except Exception as error:
            # A location that the user chose may fail in any way; it is the operation that failed, not we.
            await self._fail(operation, error)
        else:
            await self._services.persistently(
                lambda: self._services.operations.complete(
                    operation.job_id,
                    operation.trigger_id,
                    result=outcome,
                    ended_at=self._services.now(),
                    epoch=self._services.epoch,
                ),
                f"the outcome of {operation.trigger_id}",
            )

    async def _fail(self, operation: Operation, error: Exception) -> None:
        await self._services.persistently(
            lambda: self._services.operations.fail(
                operation.job_id,
                operation.trigger_id,
                error=str(error),
                ended_at=self._services.now(),
                epoch=self._services.epoch,
            ),
            f"the outcome of {operation.trigger_id}",
        )

    async def _stopped(self, job_id: JobID) -> dict[str, Any]:
        """Wait for the end of a job that was asked to stop, or for the failure that undid the wish."""
        job = self._jobs.get(job_id)
        if job is None:
            result = self._services.results.get(job_id)
        else:
            while job.status is JobStatus.RECONCILING:  # it was this leader's predecessor who was asked
                await asyncio.wait([job.result], timeout=0.2)
            if not job.result.done():
                await job.runner.stop()
            while not job.result.done() and job.runner.stopping:
                await asyncio.wait([job.result], timeout=0.2)
            result = job.result.result() if job.result.done() else None
        if result is None or not result.stopped:
            where = (
                f"ended {result.status}"
                if result
                else "failed while it was stopping, and goes on by its restart strategy"
            )
            raise JobStateError(f"the job {where}")
        location = checkpoint_directory(self._services.configuration, job_id)
        return {"status": result.status.value, "checkpoint": location}
