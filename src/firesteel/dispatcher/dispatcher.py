"""The Dispatcher accepts, persists, starts, recovers and ends jobs. One leads at a time, and it alone changes the job
table.

Everything here happens on one event loop: between two awaits, nothing changes unless this code changes it. What must
survive is in the stores before anyone is told about it; what is only in memory can be rebuilt from the stores.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import JsonValue

from firesteel.blob.keys import BlobKey
from firesteel.concurrency import OwnedTasks
from firesteel.dispatcher.cleanup import JobCleanup
from firesteel.dispatcher.job_table import (
    Accepted,
    Cleaned,
    Cleared,
    Concluded,
    Ended,
    Ending,
    Found,
    Live,
    Parked,
    Refused,
    Submitted,
    Submitting,
    Unreadable,
)
from firesteel.dispatcher.measures import DispatcherMeasures
from firesteel.dispatcher.operations import Operations
from firesteel.dispatcher.overrides import with_overrides
from firesteel.dispatcher.parking import park, put_away
from firesteel.dispatcher.questions import JobQuestions, unknown
from firesteel.dispatcher.resuming import predecessor, restored_from, rival, successor
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import (
    DuplicateJobError,
    FencingError,
    JobStateError,
    NotLeadingError,
    StoreError,
    VersionConflictError,
)
from firesteel.jobgraph.model import Mode
from firesteel.jobmaster.artifacts import blob_refs
from firesteel.jobmaster.events import end_event
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.metrics.declarations import ENDED_JOBS, RECOVERED_JOBS, SUBMISSION_SECONDS, SUBMISSIONS, TAKE_OVER
from firesteel.savepoint.naming import plain
from firesteel.status import JobStatus
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import NO_JOB, OperationKind
from firesteel.stores.uploads import Upload
from firesteel.types import JobID

T = TypeVar("T")
logger = logging.getLogger(__name__)

ACCEPTED, REFUSED = "accepted", "refused"
HOUSEKEEPING_SECONDS = 1.0
PROGRESS_SECONDS = 1.0
"""How often the number of jobs taken over from earlier leaders is logged."""
CLEANED_SECONDS = 20.0
"""How long a job waits for the clean-up of the job that it continues."""
TAKEN_OVER_TOGETHER = 16
"""Jobs of earlier leaders that are started in one turn of the event loop: there may be thousands, and requests wait."""


@dataclass(slots=True)
class RecoveredJobs:
    """What the store held when leadership began."""

    submissions: Sequence[Submission] = ()
    records: Mapping[JobID, Mapping[str, Any]] = field(default_factory=dict)
    poisoned: Mapping[JobID, str] = field(default_factory=dict)
    """Jobs whose graph, record or result cannot be read, and why."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """Names among the graphs that are not job ids, and so cannot be jobs."""


@dataclass(frozen=True, slots=True)
class _Refusals:
    """How a request that does not suit a job is refused."""

    no_stream: str
    not_running: str


class Dispatcher(JobQuestions):
    """See DispatcherGateway for what callers may rely on. JobQuestions answers the requests that change nothing."""

    def __init__(
        self,
        services: DispatcherServices,
        recovered: RecoveredJobs,
        *,
        on_error: Callable[[BaseException], None],
        on_shut_down: Callable[[], None],
    ) -> None:
        super().__init__(services)
        self._recovered = recovered
        self._on_shut_down = on_shut_down
        self._on_error = on_error
        self._tasks = OwnedTasks("dispatcher", on_error)
        self._operations = Operations(services, self._table, self._tasks)
        self._masters = services.for_job_masters()
        self._shutting_down = False
        """The node was asked to end: nothing would run a job that it accepted now."""
        self._cleaner = JobCleanup(services, self._details, self._archives).cleaner()
        self._metrics = services.metrics
        self._reporting = contextlib.ExitStack()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Retry clean-ups, then run what was recovered. Services have been started before; requests come after."""
        dirty = self._services.results.dirty()
        for result in dirty:
            self._conclude(result)
        ended = {r.job_id for r in dirty}
        recovered = [s for s in self._recovered.submissions if s.job_id not in ended]
        for job_id, reason in self._recovered.poisoned.items():
            if job_id not in ended:
                self._table.happened(job_id, Unreadable(reason))
                self._tasks.start(self._park(job_id, reason), f"park-{job_id[:8]}")
        for name, reason in self._recovered.strangers.items():
            self._tasks.start(self._put_away(name, reason), "put-away")
        jobs = [self._recover(s, self._recovered.records.get(s.job_id)) for s in recovered]
        self._tasks.start(self._take_over(jobs), "take-over")
        self._services.fleet.recovered(self._keeps_files_of, self._recovered.poisoned.keys())
        # Slots of earlier lives are taken before new jobs may have them.
        self._tasks.start(self._release_resources(jobs), "recovered")
        self._tasks.start(self._watch_store(), "store-watch")
        self._tasks.start(self._keep_house(), "housekeeping")
        self._operations.resume()
        for watcher in self._services.watchers:
            watcher.start(self._services.events, self.request_job)
        self._reporting.enter_context(DispatcherMeasures(self._services, self._table, self.list_jobs).reporting())
        self._metrics.set(RECOVERED_JOBS, len(recovered))
        logger.info("dispatcher of epoch %s leads; %d jobs recovered", self._services.epoch, len(recovered))

    def _recover(self, submission: Submission, record: Mapping[str, Any] | None) -> JobManagerRunner:
        """The runner of a job from the store. The job is known from here on; `_begin` lets it run."""
        has_none = self._services.results.get(submission.job_id) is None
        runner = self._runner(submission, record, known_to_have_none=has_none)
        self._table.happened(submission.job_id, Found(runner))
        return runner

    async def _take_over(self, jobs: Sequence[JobManagerRunner]) -> None:
        """Start every job, and log the progress. All are listed as RECONCILING from the beginning; each shows its own
        status as soon as that is known, even while others still wait."""
        if not jobs:
            return
        began, told = self._services.now(), 0
        for number, job in enumerate(jobs, 1):
            self._begin(job)
            if number % TAKEN_OVER_TOGETHER == 0:
                await asyncio.sleep(0)
        reconciled = asyncio.ensure_future(_all_reconciled(jobs))
        try:
            while not (await asyncio.wait([reconciled], timeout=PROGRESS_SECONDS))[0]:
                done = sum(job.taken_over for job in jobs)
                if done > told:
                    logger.info("%d of %d jobs of earlier leaders are taken over", done, len(jobs))
                    told = done
        finally:
            reconciled.cancel()
        took = self._services.now() - began
        self._metrics.observe(TAKE_OVER, took)
        logger.info("all %d jobs of earlier leaders are taken over (%.2f s)", len(jobs), took)

    def _keeps_files_of(self, job_id: JobID) -> bool:
        return self._table.get(job_id) is not None or job_id in self._services.finished

    async def _release_resources(self, jobs: Sequence[JobManagerRunner]) -> None:
        for job in jobs:
            await job.reclaimed()
        self._services.resources.recovered()

    async def close(self) -> None:
        """Let go of everything. Jobs and engines keep running; the next leader takes them over."""
        self._reporting.close()
        self._tasks.cancel()  # first: an operation must not take the end of this leadership for its own
        self._table.close()
        await self._tasks.close()
        for watcher in self._services.watchers:
            await watcher.close()

    # -- submission -----------------------------------------------------------------------------------------------

    async def submit_job(self, submission: Submission) -> None:
        self._table.check_open()
        if self._shutting_down:
            raise NotLeadingError("this node is shutting down; ask the next leader")
        began = time.monotonic()
        try:
            await self._submit(submission)
        except FencingError as error:
            self._metrics.count(SUBMISSIONS, REFUSED)
            self._on_error(error)
            raise NotLeadingError("this node is no longer the leader; the job was not accepted") from error
        except Exception:
            self._metrics.count(SUBMISSIONS, REFUSED)
            raise
        self._metrics.count(SUBMISSIONS, ACCEPTED)
        self._metrics.observe(SUBMISSION_SECONDS, time.monotonic() - began)

    async def _submit(self, submission: Submission) -> None:
        job_id = submission.job_id
        while isinstance(self._table.get(job_id), Submitting | Parked):
            await self._table.changed(job_id)
        if self._known(submission):
            return
        self._table.happened(job_id, Submitted(submission))
        try:
            accepted = with_overrides(submission, self._services.configuration)
            await self._check_position(submission)
            self._table.happened(job_id, Cleared())
            stored = await self._write(accepted, submission.digest)
            self._table.check_open()
        except BaseException:  # raised again: the next caller that submits the same job has its turn
            self._table.happened(job_id, Refused())
            raise
        runner = self._runner(stored, None)
        self._table.happened(job_id, Accepted(runner))
        logger.info("job %s (%s) accepted", job_id, stored.graph.name)
        self._begin(runner)

    async def _check_position(self, submission: Submission) -> None:
        """Only one job may continue where another ended, and only after that end. Nothing is awaited after the last
        check."""
        before = predecessor(self._services.configuration, submission.graph)
        if before is not None:
            # The last thing written about an ended stream is that a job may start from its checkpoint.
            if isinstance(self._table.get(before), Ending):
                await self._table.changed(before, timeout=CLEANED_SECONDS)
            if isinstance(self._table.get(before), Live | Parked | Ending):
                raise JobStateError(
                    f"job {before} has not ended, or is still being cleaned up; stop or cancel it, then try again"
                )
        if (found := rival(submission, self._table.writers())) is not None:
            other, output = found
            raise JobStateError(
                f"job {other} already continues from {restored_from(submission.graph)} and also writes to {output}; "
                "stop it first, or give this job its own outputs"
            )
        if submission.resumes:
            later = successor(JobID(submission.resumes), self._services.results.all())
            if later is not None:
                raise JobStateError(
                    f"job {submission.resumes} was resumed as job {later.job_id}, which is {later.status}: continue "
                    f"that one (`firesteel resume {later.job_id[:8]}`), or go back to "
                    f"{restored_from(submission.graph)} with `firesteel run -s`"
                )

    async def _write(self, submission: Submission, digest: str) -> Submission:
        """The submission as stored. Raises DuplicateJobError when the store holds another one under its id."""
        job_id = submission.job_id
        try:
            await self._services.graphs.put(submission, epoch=self._services.epoch)
        except VersionConflictError:
            stored = await self._services.graphs.get(job_id)
            if stored is None or stored.digest != digest:
                raise DuplicateJobError(f"job id {job_id} belongs to another job; choose a new one") from None
            return stored
        return submission

    def _known(self, submission: Submission) -> bool:
        """True for a repetition of a submission that was accepted before; raises for another job under its id."""
        match self._table.get(submission.job_id):
            case Live(runner):
                digest, what = runner.submission.digest, f"is {runner.shown.status}"
            case Ending(result) | Ended(result):
                digest, what = result.digest, f"has ended ({result.status})"
            case _:
                return False
        if digest == submission.digest:
            return True
        raise DuplicateJobError(f"job id {submission.job_id} belongs to another job, which {what}; choose a new one")

    # -- the life of a job ----------------------------------------------------------------------------------------

    def _runner(
        self, submission: Submission, record: Mapping[str, Any] | None, *, known_to_have_none: bool = False
    ) -> JobManagerRunner:
        services = self._services
        return JobManagerRunner(
            submission,
            record,
            self._masters,
            services.results,
            services.configuration,
            services.make_job_master,
            known_to_have_none=known_to_have_none,
        )

    def _begin(self, runner: JobManagerRunner) -> None:
        self._tasks.start(self._look_after(runner), f"job-{runner.job_id[:8]}")

    async def _look_after(self, runner: JobManagerRunner) -> None:
        """Run a job to its end, and clean up."""
        job_id = runner.job_id
        try:
            result = await runner.run()
        except UnreadableRecordError as error:
            self._table.happened(job_id, Unreadable(str(error)))
            await self._park(job_id, str(error))
            return
        # Only now: an end that is not durable has not happened (I5).
        self._conclude(result)
        self._metrics.count(ENDED_JOBS, result.status.value)
        last, latest = runner.state.story.last, self._services.operations.latest_savepoint(job_id)
        cause = last.cause if last is not None and last.status is result.status else "its result was found"
        savepoint = latest.savepoint if latest is not None else ""
        self._services.events.publish(end_event(result, savepoint=savepoint, cause=cause))
        logger.info("job %s: %s", job_id, result.status)

    async def _park(self, job_id: JobID, reason: str) -> None:
        self._conclude(
            await self._services.persistently(lambda: park(self._services, job_id, reason), f"parking job {job_id}")
        )

    def _conclude(self, result: JobResult) -> None:
        """The job has its result for good; what it left behind is cleaned up."""
        self._table.happened(result.job_id, Concluded(result))
        self._tasks.start(self._clean(result.job_id), f"clean-{result.job_id[:8]}")

    async def _clean(self, job_id: JobID) -> None:
        if await self._cleaner.clean(job_id):
            self._table.happened(job_id, Cleaned())
        else:
            self._given_up.add(job_id)

    async def _put_away(self, name: str, reason: str) -> None:
        await self._services.persistently(
            lambda: put_away(self._services, name, reason), f"putting graphs/{name} aside"
        )

    # -- wishes ---------------------------------------------------------------------------------------------------

    async def cancel_job(self, job_id: JobID, *, keep_checkpoint: bool | None = None) -> None:
        await self._ask(self._live_job(job_id).cancel(keep_checkpoint=keep_checkpoint))

    async def cancel_application(self) -> None:
        self._table.check_open()
        if self.application is None:
            raise JobStateError("this is a session cluster; cancel its jobs one by one")
        program = self.application.application_id
        if self._table.live_runner(program) is not None:
            await self.cancel_job(program)  # the bootstrap sees its end and cancels the others
            return
        running = self._table.live()
        if not running:
            raise JobStateError(f"application {program} is {self.application.state.value}; it has ended for good")
        for job in running:
            await _cancel_quietly(job)

    async def stop_job(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, savepoint: bool = True
    ) -> None:
        refusals = _Refusals(
            "cannot be stopped, only streaming graphs can; cancel it instead", "only running jobs can be stopped"
        )
        await self._trigger(job_id, trigger_id, OperationKind.STOP, refusals, target=target, savepoint=savepoint)

    async def trigger_checkpoint(self, job_id: JobID, trigger_id: str) -> None:
        refusals = _Refusals("has no checkpoints; only streaming graphs do", "a checkpoint needs a running job")
        await self._trigger(job_id, trigger_id, OperationKind.CHECKPOINT, refusals)

    async def trigger_savepoint(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, cancel: bool = False
    ) -> None:
        refusals = _Refusals("cannot have a savepoint; only streaming graphs can", "a savepoint needs a running job")
        await self._trigger(job_id, trigger_id, OperationKind.SAVEPOINT, refusals, target=target, cancel=cancel)

    async def _trigger(
        self, job_id: JobID, trigger_id: str, kind: OperationKind, refusals: _Refusals, **asked: JsonValue
    ) -> None:
        """Begin an operation on a running streaming job. A repetition is answered like the first call."""
        self._table.check_open()
        if self._operations.known(job_id, trigger_id, kind, **asked):
            return
        job = self._live_job(job_id)
        if job.submission.graph.mode is not Mode.STREAMING or job.submission.graph.is_program:
            raise JobStateError(f"job {job_id} {refusals.no_stream}")
        if (status := job.shown.status) is not JobStatus.RUNNING:
            raise JobStateError(f"job {job_id} is {status}; {refusals.not_running}")
        await self._ask(self._operations.begin(job_id, trigger_id, kind, **asked))

    async def dispose_savepoint(self, path: str, trigger_id: str, *, owner: str = "") -> None:
        self._table.check_open()
        asked = {"path": plain(path), "owner": owner}
        await self._ask(self._operations.begin(NO_JOB, trigger_id, OperationKind.DISPOSAL, **asked))

    async def report_client_heartbeat(self, job_id: JobID) -> None:
        if not self._live_job(job_id).heard_of_client():
            raise JobStateError(f"job {job_id} was submitted without a client heartbeat; there is nothing to report")

    async def shut_down(self) -> None:
        self._table.check_open()
        if not self._shutting_down:
            self._shutting_down = True
            self._tasks.start(self._shut_down(), "shut-down")

    async def _shut_down(self) -> None:
        """Stop the idle engines, which nothing would manage; engines with jobs keep running."""
        try:
            await self._services.resources.wind_down(self._services.configuration.engine.stop_timeout)
        finally:
            self._on_shut_down()

    # -- uploaded programs ----------------------------------------------------------------------------------------

    async def register_upload(self, upload: Upload) -> None:
        self._table.check_open()
        await self._ask(self._services.uploads.put(upload, epoch=self._services.epoch))

    async def remove_upload(self, upload_id: str) -> bool:
        self._table.check_open()
        return await self._ask(self._services.uploads.delete(upload_id, epoch=self._services.epoch))

    # -- watching -------------------------------------------------------------------------------------------------

    async def _watch_store(self) -> None:
        """Notice graphs that were added to or removed from the store by something other than this leader."""
        interval = self._services.configuration.high_availability.poll_interval
        while True:
            await asyncio.sleep(interval)
            try:
                await self._compare_with_store()
            except FencingError:
                raise
            except StoreError as error:
                logger.warning("the store cannot be read; jobs keep running: %s", error)

    async def _compare_with_store(self) -> None:
        known = {job_id for job_id in self._table if not isinstance(self._table.get(job_id), Submitting)}
        stored = set(await self._services.graphs.job_ids())
        for job_id in stored - known:
            if self._table.get(job_id) is not None:
                continue  # accepted or cleaned between our two looks, or about to be accepted
            try:
                submission = await self._services.graphs.get(job_id)
            except StoreError as error:
                logger.error("a graph that was added to the store externally cannot be read and is ignored: %s", error)
                continue
            if submission is not None and self._table.get(job_id) is None:
                logger.info("job %s was added to the store externally", job_id)
                runner = self._runner(submission, None)
                self._table.happened(job_id, Found(runner))
                self._begin(runner)
        for job_id in known - stored:
            if (orphan := self._table.live_runner(job_id)) is not None:
                logger.warning("the graph of job %s was removed from the store externally; cancelling the job", job_id)
                self._tasks.start(_cancel_quietly(orphan), "cancel")

    async def _keep_house(self) -> None:
        """Cancel jobs whose clients fell silent, and remove expired outcomes and unused files."""
        services = self._services
        retention = services.configuration.dispatcher.operation_retention
        collect_at = services.now() + services.configuration.blob.cleanup_interval
        collecting: asyncio.Task[None] | None = None
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            now = services.now()
            if now >= collect_at:
                collect_at = now + services.configuration.blob.cleanup_interval
                if (
                    collecting is None or collecting.done()
                ):  # apart: a slow disk must not keep silent clients' jobs running
                    collecting = self._tasks.start(self._collect_files(), "collect")
            for job in [j for j in self._table.live() if j.client_deadline is not None and j.client_deadline < now]:
                logger.warning("the client of job %s stopped sending heartbeats; cancelling the job", job.job_id)
                job.client_deadline = None
                self._tasks.start(_cancel_quietly(job), "cancel")
            try:
                await services.operations.expire(now - retention, epoch=services.epoch, remembered=self._remembers)
                await services.finished.expire()
            except FencingError:
                raise
            except (StoreError, OSError) as error:
                logger.warning("expired operations and finished jobs could not be removed: %s", error)

    async def _collect_files(self) -> None:
        """Remove uploaded files that nothing needs. A file that a submission under way needs is too young to be
        removed."""
        services = self._services
        grace = services.configuration.blob.cleanup_grace
        try:
            needed = {BlobKey(u.key) for u in await services.uploads.list()}
            needed |= {ref.key for submission in self._table.submissions() for ref in blob_refs(submission.graph)}
            # As long as the graph of an ended stream is kept, the job may be resumed.
            needed |= {BlobKey(k) for r in services.results.all() if r.job_id in services.finished for k in r.files}
            services.guard()
            for key in await services.blobs.collect(needed, grace=grace):
                logger.info("the uploaded file %s was no longer needed and was removed", key)
        except FencingError:
            raise
        except (StoreError, OSError, ValueError) as error:
            logger.warning("unused uploaded files could not be removed: %s", error)

    # -- small things ---------------------------------------------------------------------------------------------

    def _remembers(self, job_id: JobID) -> bool:
        return self._table.get(job_id) is not None

    def _live_job(self, job_id: JobID) -> JobManagerRunner:
        self._table.check_open()
        match self._table.get(job_id):
            case Live(runner):
                return runner
            case Parked():
                raise JobStateError(f"the stored state of job {job_id} cannot be read; the job is being ended")
            case Ending(result) | Ended(result):
                raise JobStateError(f"job {job_id} is {result.status}; it has ended for good")
            case _:
                raise unknown(job_id)

    async def _ask(self, question: Awaitable[T]) -> T:
        try:
            return await question
        except FencingError as error:
            self._on_error(error)
            raise NotLeadingError("this node is no longer the leader; ask the new leader") from error


async def _all_reconciled(jobs: Sequence[JobManagerRunner]) -> None:
    for job in jobs:
        await job.reconciled()


async def _cancel_quietly(runner: JobManagerRunner) -> None:
    try:
        await runner.cancel()
    except (JobStateError, NotLeadingError):
        pass  # it ended by itself meanwhile, or has no JobMaster that could be asked
