"""The JobManagerRunner: from a stored graph to a durable result, whatever happens to the JobMaster in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from firesteel.concurrency import Backoff, retry
from firesteel.config import Configuration
from firesteel.errors import EngineLostError, FencingError, JobStateError, NotLeadingError, StoreError
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster.artifacts import blob_refs
from firesteel.jobmaster.executor import AttemptExecutor
from firesteel.jobmaster.kept_checkpoints import kept_checkpoint
from firesteel.jobmaster.machine import Finish, JobState
from firesteel.jobmaster.master import JobMaster, JobMasterServices
from firesteel.status import JobStatus
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.stores.patience import persistently
from firesteel.types import AttemptId, Guard, JobID

MakeJobMaster = Callable[[Submission, Mapping[str, Any] | None, JobMasterServices], JobMaster]
logger = logging.getLogger(__name__)

PATIENCE = 5
"""How often an engine may fail to release a session before it counts as unreachable."""


_BEFORE_THE_END = {
    JobStatus.FINISHED: JobStatus.RUNNING,
    JobStatus.FAILED: JobStatus.FAILING,
    JobStatus.CANCELED: JobStatus.CANCELLING,
}


class JobManagerRunner:
    """Manages one job for as long as this node leads: asks for a result first, then owns its JobMaster and its end."""

    def __init__(
        self,
        submission: Submission,
        record: Mapping[str, Any] | None,
        services: JobMasterServices,
        results: JobResultStore,
        configuration: Configuration,
        make_job_master: MakeJobMaster = JobMaster,
        *,
        known_to_have_none: bool = False,
    ) -> None:
        """`known_to_have_none`: all results were read since this leadership began, and none was this job's. No other
        node can have written one since, so the store need not be asked again for each of thousands of jobs."""
        self._known_to_have_none = known_to_have_none
        self.submission = submission
        self._record = record
        self._services = services
        self._results = results
        self._configuration = configuration
        self._make = make_job_master
        self.master: JobMaster | None = None
        """None until the result store has said that the job may run, or when it could not be created."""
        self._made = asyncio.Event()
        self._over = False
        self.client_deadline: float | None = None
        """When the job is cancelled unless its client sends a heartbeat before."""
        self.heard_of_client()

    @property
    def job_id(self) -> JobID:
        return self.submission.job_id

    # -- where it stands ------------------------------------------------------------------------------------------

    @property
    def state(self) -> JobState:
        """Where the job stands; before its JobMaster is there, INITIALIZING, or RECONCILING when it had one before."""
        if self.master is not None:
            return self.master.state
        restart = self.submission.graph.settings.restart
        if self._record is None:
            return JobState(restart)
        attempt = self._record.get("attempt")
        return JobState(restart, status=JobStatus.RECONCILING, attempt=attempt if isinstance(attempt, int) else 0)

    @property
    def shown(self) -> JobState:
        """The state that may be shown before the job has its result: an end that is not durable has not happened
        (I5)."""
        state = self.state
        before = _BEFORE_THE_END.get(state.status)
        return state if before is None else replace(state, status=before, story=state.story.before_the_end())

    @property
    def stopping(self) -> bool:
        """A stop was asked for and has neither happened nor been undone by a failure."""
        return self.master is not None and self.master.state.stop_requested

    @property
    def last_attempt(self) -> AttemptId | None:
        """The last attempt of the job; None before the first."""
        number = self.state.attempt
        return AttemptId(self.job_id, number) if number else None

    @property
    def taken_over(self) -> bool:
        """Whether it is known what has become of a job of an earlier leader."""
        if self.master is not None:
            return self.master.reconciled.is_set()
        return self._made.is_set()

    async def reclaimed(self) -> None:
        """Wait until a recovered job holds the slot that it had before, or it is clear that it will not."""
        await self._made.wait()
        if self.master is not None:
            await self.master.reclaimed.wait()

    async def reconciled(self) -> None:
        """Wait until `taken_over`."""
        await self._made.wait()
        if self.master is not None:
            await self.master.reconciled.wait()

    # -- its life -------------------------------------------------------------------------------------------------

    async def run(self) -> JobResult:
        """Run the job to its end; returns its durable result. Cancelling this lets go of the job, which keeps running.

        Raises UnreadableRecordError when the stored state of the job cannot be read, FencingError when this node no
        longer leads.
        """
        result = await self._persistently(self._run, f"running job {self.job_id}")
        if self.master is not None:  # else the result was there before, or nothing has run
            kept = kept_checkpoint(self._configuration, self.submission, self.state, result)
            files = sorted({str(ref.key) for ref in blob_refs(self.submission.graph)}) if kept else ()
            result = replace(result, checkpoint=kept, files=tuple(files))
        return await self._persistently(lambda: self._make_final(result), f"the result of job {self.job_id}")

    async def _run(self) -> JobResult:
        """The result, which is not stored yet unless it was there before.

        A job that has a result never runs again (I5), so the store is asked first, not our memory of it; unless all that the
        store has was read a moment ago.
        """
        job_id = self.submission.job_id
        try:
            known, self._known_to_have_none = self._known_to_have_none, False  # what was true once
            existing = None if known else await self._results.read(job_id)
            if existing is not None:
                self._over = True
                self._made.set()
                return existing
            self.master = self._make(self.submission, self._record, self._services)
            self._made.set()
            finish = await self.master.run()
        except (FencingError, UnreadableRecordError, asyncio.CancelledError):
            self._made.set()
            raise
        except StoreError:
            raise  # we are called again: callers that wait for the JobMaster keep waiting
        except Exception as error:
            self._made.set()
            # A bug of ours, or a record that cannot be understood: this job ends here, the others do not notice.
            logger.exception("the JobMaster of job %s failed", job_id)
            await fence_all(job_id, self._services.executor, self._services.guard, self._services.backoff)
            failure = Failure(FailureKind.INTERNAL, f"the JobMaster failed: {type(error).__name__}: {error}")
            finish = Finish(JobStatus.FAILED, failure)
        return self._result(finish)

    async def _make_final(self, result: JobResult) -> JobResult:
        """The durable result, which is the one that was there first, should there be two."""
        try:
            await self._results.put_dirty(result, epoch=self._services.epoch)
        except JobStateError as error:
            stored = await self._results.read(result.job_id)
            if stored is None:
                raise
            logger.error("job %s: %s", result.job_id, error)
            return stored
        return result

    async def _persistently(self, action: Callable[[], Awaitable[JobResult]], what: str) -> JobResult:
        return await persistently(action, self._services.backoff, what)

    # -- wishes ---------------------------------------------------------------------------------------------------

    def heard_of_client(self) -> bool:
        """Note a heartbeat of the job's client. False when the job was submitted without one."""
        timeout = self.submission.initial_client_heartbeat_timeout
        if timeout is None:
            return False
        self.client_deadline = self._services.now() + timeout
        return True

    async def cancel(self, *, keep_checkpoint: bool | None = None) -> None:
        await (await self._ready()).cancel(keep_checkpoint=keep_checkpoint)

    async def stop(self) -> None:
        await (await self._ready()).stop()

    async def _ready(self) -> JobMaster:
        """The JobMaster. Callers that ask between acceptance and its start wait for it."""
        await self._made.wait()
        if self.master is None:
            if self._over:
                raise JobStateError(f"job {self.submission.job_id} has ended for good")
            raise NotLeadingError("this node is no longer responsible for the job; ask the new leader")
        return self.master

    def _result(self, finish: Finish) -> JobResult:
        state = self.state
        return JobResult(
            job_id=self.submission.job_id,
            name=self.submission.graph.name,
            status=finish.status,
            failure=finish.failure,
            submitted_at=self.submission.submitted_at,
            started_at=state.timestamps.get(JobStatus.RUNNING.value),
            ended_at=self._services.now(),
            attempts=state.attempt,
            restarts=state.restarts,
            digest=self.submission.digest,
            stopped=state.stopped,
            owner=self.submission.owner,
            mode=self.submission.graph.mode.value,
            kind=self.submission.graph.job_kind,
            vertices=len(self.submission.graph.vertices),
            resumes=self.submission.resumes,
            given_up=state.given_up,
        )


async def fence_all(job_id: JobID, executor: AttemptExecutor, guard: Guard, backoff: Backoff) -> None:
    """Fence all attempts of a job that is given up, including those that its record does not know."""
    silent = 0

    async def once() -> None:
        nonlocal silent
        for number in await executor.attempts(job_id):
            try:
                await executor.fence(AttemptId(job_id, number), unreachable=silent >= PATIENCE, guard=guard)
            except EngineLostError:
                silent += 1
                raise

    await retry(once, backoff, on=(Exception,), but_not=(FencingError,), what=f"fencing all attempts of job {job_id}")
