"""Requested checkpoints, savepoints, stops and disposals, followed from the request to the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, assert_never

from pydantic import JsonValue

from firesteel.attempts.checkpoints import location_of
from firesteel.concurrency import Backoff, OwnedTasks
from firesteel.dispatcher.job_table import JobTable
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import FencingError, FiresteelError, JobStateError, SavepointError
from firesteel.jobmaster.kept_checkpoints import checkpoint_directory
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.metrics.declarations import SAVEPOINT_SECONDS, SAVEPOINTS
from firesteel.sandbox.owners import below
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.savepoint.naming import check_directory, savepoint_location
from firesteel.status import JobStatus
from firesteel.stores.operations import Operation, OperationKind
from firesteel.types import AttemptId, JobID

logger = logging.getLogger(__name__)

TRIES_AFTER_A_STOP = 6
"""A job that has stopped does not run again for a savepoint that could not be taken, so it is tried harder."""
_PAUSES = Backoff(0.5, 10.0)


class Operations:
    """The operations of one leadership. Owned by the Dispatcher, whose table it reads."""

    def __init__(self, services: DispatcherServices, table: JobTable, tasks: OwnedTasks) -> None:
        self._services = services
        self._table = table
        self._tasks = tasks

    # -- wishes ---------------------------------------------------------------------------------------------------

    def known(self, job_id: JobID, trigger_id: str, kind: OperationKind, **asked: JsonValue) -> bool:
        """Whether this very request was made before: its repetition needs no running job.

        Raises JobStateError when the trigger id was used for another request, InvalidRequestError when it is invalid.
        """
        return self._services.operations.known(self._wish(job_id, trigger_id, kind, asked)) is not None

    async def begin(self, job_id: JobID, trigger_id: str, kind: OperationKind, **asked: JsonValue) -> None:
        """Record the request, then act on it; a repeated request joins the one that is already under way."""
        wish = self._wish(job_id, trigger_id, kind, asked)
        if await self._services.operations.begin(wish, epoch=self._services.epoch) is wish:
            self._tasks.start(self.follow(wish), kind.value.lower())

    def _wish(self, job_id: JobID, trigger_id: str, kind: OperationKind, asked: Mapping[str, JsonValue]) -> Operation:
        location = ""
        if kind is OperationKind.DISPOSAL:
            location = str(asked["path"])
            check_directory(location, "savepoint-path")
        elif kind is OperationKind.SAVEPOINT or asked.get("savepoint"):
            target = str(asked.get("target") or self._savepoints_of(job_id))
            location = savepoint_location(target, job_id, trigger_id)
        return Operation(job_id, trigger_id, kind, self._services.now(), asked, location)

    def _savepoints_of(self, job_id: JobID) -> str:
        """Where the savepoints of a job go when the request names no place."""
        return below(self._services.configuration.state.savepoints_dir, self._owner(job_id))

    def _owner(self, job_id: JobID) -> str:
        if (runner := self._table.runner(job_id)) is not None:
            return runner.submission.owner
        result = self._table.result(job_id)
        return result.owner if result is not None else ""

    def _running(self, job_id: JobID) -> AttemptId | None:
        """The attempt of a job that has not ended."""
        runner = self._table.live_runner(job_id)
        return None if runner is None else runner.last_attempt

    def resume(self) -> None:
        """Resume the operations that earlier leaders left unfinished (I19)."""
        for operation in self._services.operations.unfinished():
            self._tasks.start(self.follow(operation, resumed=True), "operation")

    # -- outcomes -------------------------------------------------------------------------------------------------

    async def follow(self, operation: Operation, *, resumed: bool = False) -> None:
        """See an operation through; a leader that recovers it begins here (I19)."""
        runner = self._table.runner(operation.job_id)
        try:
            if runner is not None:
                await runner.reclaimed()
            outcome = await self._carry_out(operation, runner, resumed)
        except FencingError:
            raise
        except Exception as error:
            # A location that the user chose may fail in any way; that is a failure of the operation, not of this node.
            self._measure(operation, "failed")
            await self._fail(operation, error)
        else:
            self._measure(operation, "completed")
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
                error=str(error) or type(error).__name__,
                ended_at=self._services.now(),
                epoch=self._services.epoch,
            ),
            f"the outcome of {operation.trigger_id}",
        )

    async def _carry_out(self, operation: Operation, runner: JobManagerRunner | None, resumed: bool) -> dict[str, Any]:
        match operation.kind:
            case OperationKind.CHECKPOINT:
                attempt = self._running(operation.job_id)
                if attempt is None:
                    raise JobStateError("the job ended before")
                return {"batches": dict(await self._services.executor.checkpoint(attempt))}
            case OperationKind.SAVEPOINT:
                return await self._savepoint(operation)
            case OperationKind.STOP:
                return await self._stop(operation, runner)
            case OperationKind.DISPOSAL:
                self._services.guard()
                owner = str(operation.asked.get("owner", ""))
                await self._services.executor.dispose_savepoint(operation.location, owner=owner, resumed=resumed)
                await self._services.operations.disposed(operation.location, epoch=self._services.epoch)
                return {"location": operation.location}
            case _:
                assert_never(operation.kind)

    # -- savepoints -----------------------------------------------------------------------------------------------

    async def _savepoint(self, operation: Operation) -> dict[str, Any]:
        runner, attempt = self._table.live_runner(operation.job_id), self._running(operation.job_id)
        if runner is not None and attempt is not None:
            await self._prepare(operation, runner)
        try:
            batches = await self._services.executor.savepoint(
                operation.location, attempt, owner=self._owner(operation.job_id)
            )
        except Exception as error:
            await self._abandon(operation)
            if self._running(operation.job_id) is None:
                raise JobStateError(f"the job ended before its savepoint was complete: {error}") from error
            raise
        if operation.asked.get("cancel") and (runner := self._table.live_runner(operation.job_id)) is not None:
            try:
                await runner.cancel()
            except JobStateError:
                pass  # it ended by itself
        return await self._saved(operation, dict(batches))

    async def _saved(self, operation: Operation, batches: Mapping[str, int]) -> dict[str, Any]:
        """The outcome that a complete savepoint has."""
        outcome: dict[str, Any] = {"location": operation.location, "batches": batches}
        try:
            return outcome | {
                "sizes": await self._services.executor.savepoint_sizes(
                    operation.location, owner=self._owner(operation.job_id)
                )
            }
        except (FiresteelError, OSError) as error:
            logger.warning("the size of %s is not known: %s", operation.location, error)
            return outcome

    async def _prepare(self, operation: Operation, runner: JobManagerRunner) -> None:
        graph, owner, job_id = runner.submission.graph, runner.submission.owner, operation.job_id
        directory = checkpoint_directory(self._services.configuration, owner, job_id)
        checkpoints = {s.name: location_of(s, directory) for s in graph.sinks}
        request = SavepointRequest.of(graph, job_id, operation.trigger_id, checkpoints)
        self._services.guard()
        await self._services.executor.prepare_savepoint(operation.location, request, owner=owner)

    async def _abandon(self, operation: Operation) -> None:
        """Remove what is left of a failed savepoint. It is small and harmless, so nothing depends on this."""
        self._services.guard()
        try:
            await self._services.executor.abandon_savepoint(operation.location, owner=self._owner(operation.job_id))
        except (FiresteelError, OSError) as error:
            logger.warning("%s could not be removed: %s", operation.location, error)

    def _measure(self, operation: Operation, outcome: str) -> None:
        if operation.kind in (OperationKind.SAVEPOINT, OperationKind.STOP) and operation.location:
            metrics = self._services.metrics
            metrics.count(SAVEPOINTS, outcome)
            if outcome == "completed":
                metrics.observe(SAVEPOINT_SECONDS, max(0.0, self._services.now() - operation.started_at))

    # -- stops ----------------------------------------------------------------------------------------------------

    async def _stop(self, operation: Operation, runner: JobManagerRunner | None) -> dict[str, Any]:
        """Check that the savepoint can be written before the job is touched: if it cannot, the job keeps running
        (I14)."""
        with_savepoint = bool(operation.location)
        if with_savepoint and runner is not None:
            try:
                await self._prepare(operation, runner)
            except (SavepointError, OSError):
                if self._table.live_runner(operation.job_id) is not None and not runner.stopping:
                    raise
        owner = self._owner(operation.job_id)
        checkpoint = checkpoint_directory(self._services.configuration, owner, operation.job_id)
        try:
            outcome: dict[str, Any] = {"status": await self._stopped(operation.job_id), "checkpoint": checkpoint}
        except JobStateError:
            if with_savepoint:
                await self._abandon(operation)
            raise
        if with_savepoint:
            outcome |= await self._saved(operation, await self._of_the_stopped(operation, checkpoint))
        return outcome

    async def _stopped(self, job_id: JobID) -> str:
        """Wait for the end of a job that was asked to stop, or for the failure that undid the request."""
        while (runner := self._table.live_runner(job_id)) is not None and runner.shown.status is JobStatus.RECONCILING:
            await self._table.changed(job_id, timeout=0.2)  # it was this leader's predecessor who was asked
        if runner is not None:
            try:
                await runner.stop()
            except JobStateError:
                if not runner.state.status.terminal:
                    raise  # else it ended in this moment, perhaps by the stop itself, and its result is being written
        while (runner := self._table.live_runner(job_id)) is not None and (
            runner.stopping or runner.state.status.terminal
        ):
            await self._table.changed(job_id, timeout=0.2)
        result = self._table.result(job_id)
        if result is None or not result.stopped:
            where = (
                f"ended {result.status}"
                if result
                else "failed while it was stopping, and its restart strategy restarts it"
            )
            raise JobStateError(f"the job {where}")
        return result.status.value

    async def _of_the_stopped(self, operation: Operation, checkpoint: str) -> dict[str, int]:
        """The savepoint of a query that has ended. Its checkpoint is kept, so there is time to try again."""
        delays = _PAUSES.delays()
        for n in range(TRIES_AFTER_A_STOP):
            self._services.guard()
            try:
                return dict(
                    await self._services.executor.savepoint(
                        operation.location, None, stopped=True, owner=self._owner(operation.job_id)
                    )
                )
            except (FiresteelError, OSError) as error:
                logger.warning("job %s has stopped, but its savepoint failed: %s", operation.job_id, error)
                last = error
            if n + 1 < TRIES_AFTER_A_STOP:
                await asyncio.sleep(next(delays))
        raise JobStateError(
            f"the job has stopped, but its savepoint could not be taken: {last} — nothing is lost, its checkpoints are kept "
            f"in {checkpoint}: `firesteel resume {operation.job_id[:8]}` continues from there"
        ) from last
