"""The Dispatcher: accepts, persists, starts, recovers and ends jobs. One leads at a time; this is its state and its only owner.

Everything here happens on one event loop, between two awaits nothing changes but by our own hand. What must survive is in the
stores before anybody is told of it; what is only here can be worked out again from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import JsonValue

from firesteel.blob.keys import BlobKey
from firesteel.concurrency import OwnedTasks
from firesteel.dispatcher.cleanup import JobCleanup
from firesteel.dispatcher.details import JobDetails
from firesteel.dispatcher.gateway import ClusterOverview, JobOverview
from firesteel.dispatcher.managed_job import ManagedJob, let_go
from firesteel.dispatcher.operations import Operations
from firesteel.dispatcher.outputs import kept_checkpoint
from firesteel.dispatcher.overrides import check_resources, with_overrides
from firesteel.dispatcher.overviews import EndedJobs, live_row, unread_row
from firesteel.dispatcher.parking import park, put_away
from firesteel.dispatcher.resuming import predecessor, restored_from, rival, successor
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import (
    DuplicateJobError,
    FencingError,
    JobNotFoundError,
    JobStateError,
    NotLeadingError,
    OperationNotFoundError,
    StoreError,
    VersionConflictError,
)
from firesteel.jobgraph.model import Mode
from firesteel.jobmaster.artifacts import blob_refs
from firesteel.jobmaster.events import Subscription, state_event
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.savepoint.naming import plain
from firesteel.status import JobStatus
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.stores.operations import NO_JOB, Operation, OperationKind
from firesteel.stores.uploads import Upload
from firesteel.types import JobID

T = TypeVar("T")
logger = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS = 1.0
PROGRESS_SECONDS = 1.0
"""How often it is told how many jobs of earlier leaders are taken over."""
CLEANED_SECONDS = 20.0
"""How long a job waits for the clean-up of the one that it goes on with."""
TAKEN_OVER_TOGETHER = 16
"""Jobs of earlier leaders that are begun with in one turn of the event loop: there may be thousands, and requests wait."""


@dataclass(slots=True)
class RecoveredJobs:
    """What the store held when leadership began."""

    submissions: Sequence[Submission] = ()
    records: Mapping[JobID, Mapping[str, Any]] = field(default_factory=dict)
    poisoned: Mapping[JobID, str] = field(default_factory=dict)
    """Jobs whose graph, record or result cannot be read, and why."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """Names among the graphs that are no job ids, and so cannot be jobs."""


@dataclass(frozen=True, slots=True)
class _Refusals:
    """What is said of a job of which something cannot be asked."""

    no_stream: str
    not_running: str


class Dispatcher:
    """See DispatcherGateway for what callers may rely on."""

    def __init__(
        self,
        services: DispatcherServices,
        recovered: RecoveredJobs,
        *,
        on_error: Callable[[BaseException], None],
        on_shut_down: Callable[[], None],
    ) -> None:
        self._services = services
        self._recovered = recovered
        self._on_shut_down = on_shut_down
        self._on_error = on_error
        self._jobs: dict[JobID, ManagedJob] = {}
        """Jobs that may run, and those whose clean-up is pending."""
        self._submitting: dict[JobID, asyncio.Future[None]] = {}
        self._starting: dict[JobID, Submission] = {}
        """Those of them that nothing stands in the way of any more."""
        self._terminating: dict[JobID, asyncio.Task[Any]] = {}
        """Clean-ups that are under way."""
        self._parking: dict[JobID, asyncio.Future[JobResult]] = {}
        """Jobs that cannot be read, until they have their result."""
        self._ended = EndedJobs(services.results)
        self._tasks = OwnedTasks("dispatcher", on_error)
        self._operations = Operations(services, self._jobs, self._tasks)
        self._masters = services.for_job_masters()
        self._closed = False
        self._ending = False
        """The node was asked to end: what it would accept now, nobody would run."""
        self._details = JobDetails(services, self._jobs)
        self._cleaner = JobCleanup(services, self._details).cleaner()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Retry clean-ups, then run what was recovered. Services have been started before; requests come after."""
        dirty = self._services.results.dirty()
        for result in dirty:
            self._start_cleanup(result.job_id)
        ended = {r.job_id for r in dirty}
        recovered = [s for s in self._recovered.submissions if s.job_id not in ended]
        for job_id, reason in self._recovered.poisoned.items():
            if job_id not in ended:
                self._parking[job_id] = asyncio.get_running_loop().create_future()
                self._tasks.start(self._park_surely(job_id, reason), f"park-{job_id[:8]}")
        for name, reason in self._recovered.strangers.items():
            self._tasks.start(self._put_away(name, reason), "put-away")
        jobs = [self._manage(s, self._recovered.records.get(s.job_id), of_earlier_leader=True) for s in recovered]
        self._tasks.start(self._take_over(jobs), "take-over")
        # Slots of earlier lives are taken before new jobs may have them.
        self._tasks.start(self._release_resources(jobs), "recovered")
        self._tasks.start(self._watch_store(), "store-watch")
        self._tasks.start(self._keep_house(), "housekeeping")
        self._operations.resume()
        logger.info("dispatcher of epoch %s leads; %d jobs recovered", self._services.epoch, len(recovered))

    async def _take_over(self, jobs: Sequence[ManagedJob]) -> None:
        """Begin with each job, and tell how far that is. All are listed from the start, as RECONCILING; each is what it is
        as soon as that is known, whatever the others wait for."""
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
                done = sum(job.runner.taken_over for job in jobs)
                if done > told:
                    logger.info("%d of %d jobs of earlier leaders are taken over", done, len(jobs))
                    told = done
        finally:
            reconciled.cancel()
        took = self._services.now() - began
        logger.info("all %d jobs of earlier leaders are taken over (%.2f s)", len(jobs), took)

    async def _release_resources(self, jobs: Sequence[ManagedJob]) -> None:
        for job in jobs:
            await job.runner.reclaimed()
        self._services.resources.recovered()

    async def close(self) -> None:
        """Let go of everything. Jobs and engines run on; whoever leads next takes them over."""
        self._closed = True
        await self._tasks.close()
        for waited_for in [*(j.result for j in self._jobs.values()), *self._parking.values()]:
            let_go(waited_for)

    # -- submission -----------------------------------------------------------------------------------------------

    async def submit_job(self, submission: Submission) -> None:
        self._check_leading()
        if self._ending:
            raise NotLeadingError("this node is about to end; ask the next one")
        check_resources(submission.graph)
        while (under_way := self._submitting.get(submission.job_id)) is not None:
            await asyncio.wait([under_way])
        mine = self._submitting[submission.job_id] = asyncio.get_running_loop().create_future()
        try:
            await self._submit(submission)
        except FencingError as error:
            self._on_error(error)
            raise NotLeadingError("this node leads no more; the job was not accepted here") from error
        finally:
            mine.set_result(None)
            del self._submitting[submission.job_id]

    async def _submit(self, submission: Submission) -> None:
        job_id = submission.job_id
        if (parking := self._parking.get(job_id)) is not None:
            await asyncio.wait([parking])
        if self._known(submission):
            return
        if (terminating := self._terminating.get(job_id)) is not None:
            await asyncio.wait([terminating])
            if self._known(submission):
                return
        overrides = self._services.configuration.jobmanager.parallelism_overrides
        stored = with_overrides(submission, overrides)
        await self._check_position(submission)
        self._starting[job_id] = submission
        try:
            await self._accept(stored, submission.digest)
        finally:
            del self._starting[job_id]

    async def _check_position(self, submission: Submission) -> None:
        """A job that goes on where another ended does so alone, and after that end. Nothing is awaited after the last look."""
        before = predecessor(self._services.configuration, submission.graph)
        if before is not None:
            # The last thing that is written of an ended stream is that its checkpoint may be gone on from.
            if (cleaning := self._terminating.get(before)) is not None:
                await asyncio.wait([cleaning], timeout=CLEANED_SECONDS)
            if before in self._jobs or before in self._terminating:
                raise JobStateError(
                    f"job {before} has not ended, or is still being cleaned up after; stop or cancel it, and try again"
                )
        live = [j.submission for j in self._jobs.values() if not j.result.done()]
        if (found := rival(submission, [*live, *self._starting.values()])) is not None:
            other, output = found
            raise JobStateError(
                f"job {other} goes on from {restored_from(submission.graph)} already, and writes to {output} too; stop it "
                "first, or give this job outputs of its own"
            )
        if submission.resumes:
            later = successor(JobID(submission.resumes), self._services.results.all())
            if later is not None:
                raise JobStateError(
                    f"job {submission.resumes} was resumed as job {later.job_id}, which is {later.status}: go on with that one "
                    f"(`firesteel resume {later.job_id[:8]}`), or go back to {restored_from(submission.graph)} with "
                    "`firesteel run -s`"
                )

    async def _accept(self, stored: Submission, digest: str) -> None:
        job_id = stored.job_id
        try:
            await self._services.graphs.put(stored, epoch=self._services.epoch)
        except VersionConflictError:
            there = await self._services.graphs.get(job_id)
            if there is None or there.digest != digest:
                raise DuplicateJobError(f"job id {job_id} belongs to another job; choose a new one") from None
            stored = there
        self._check_leading()
        if job_id not in self._jobs and job_id not in self._parking:  # the watch on the store may have been faster
            self._run(stored, None)

    def _known(self, submission: Submission) -> bool:
        """True for a repetition of a submission that was accepted before; raises for another job under its id."""
        job_id = submission.job_id
        job = self._jobs.get(job_id)
        result = self._services.results.get(job_id)
        digest = job.submission.digest if job is not None else result.digest if result is not None else None
        if digest is None:
            return False
        if digest == submission.digest:
            return True
        what = f"has ended ({result.status})" if result is not None else f"runs ({job.status if job else ''})"
        raise DuplicateJobError(f"job id {job_id} belongs to another job, which {what}; choose a new one")

    def _run(self, submission: Submission, record: Mapping[str, Any] | None) -> None:
        self._begin(self._manage(submission, record))

    def _manage(
        self, submission: Submission, record: Mapping[str, Any] | None, *, of_earlier_leader: bool = False
    ) -> ManagedJob:
        """From here on the job is known; `_begin` lets it run."""
        services = self._services
        runner = JobManagerRunner(
            submission,
            record,
            self._masters,
            services.results,
            services.make_job_master,
            known_to_have_none=of_earlier_leader and services.results.get(submission.job_id) is None,
        )
        job = ManagedJob(submission, runner, asyncio.get_running_loop().create_future())
        if submission.initial_client_heartbeat_timeout is not None:
            job.client_deadline = services.now() + submission.initial_client_heartbeat_timeout
        self._jobs[submission.job_id] = job
        return job

    def _begin(self, job: ManagedJob) -> None:
        self._tasks.start(self._look_after(job), f"job-{job.submission.job_id[:8]}")

    async def _look_after(self, job: ManagedJob) -> None:
        """Run a job to its end, make the end durable, and clean up."""
        job_id = job.submission.job_id
        try:
            result = await self._services.persistently(job.runner.run, f"running job {job_id}")
        except UnreadableRecordError as error:
            await self._park_surely(job_id, str(error))
            parked = self._services.results.get(job_id)
            assert parked is not None
            job.result.set_result(parked)
            return
        job.state = job.runner.state
        if job.runner.master is not None:  # else the result was there before
            kept = kept_checkpoint(self._services.configuration, job.submission, job.state, result)
            files = sorted({str(ref.key) for ref in blob_refs(job.submission.graph)}) if kept else ()
            result = replace(result, checkpoint=kept, files=tuple(files))
        result = await self._services.persistently(lambda: self._make_final(result), f"the result of job {job_id}")
        if not job.result.done():
            job.result.set_result(result)
        # Only now: an end that is not durable has not happened (I5).
        self._services.events.publish(state_event(job_id, result.status, result.ended_at, failure=result.failure))
        logger.info("job %s: %s", job_id, result.status)
        self._start_cleanup(job_id)

    async def _make_final(self, result: JobResult) -> JobResult:
        """The durable result, which is the one that was there first, should there be two."""
        try:
            await self._services.results.put_dirty(result, epoch=self._services.epoch)
        except JobStateError as error:
            there = await self._services.results.read(result.job_id)
            if there is None:
                raise
            logger.error("job %s: %s", result.job_id, error)
            return there
        return result

    # -- the end of a job -----------------------------------------------------------------------------------------

    def _start_cleanup(self, job_id: JobID) -> None:
        self._terminating[job_id] = self._tasks.start(self._clean(job_id), f"clean-{job_id[:8]}")

    async def _clean(self, job_id: JobID) -> None:
        await self._cleaner.clean(job_id)
        self._jobs.pop(job_id, None)
        self._terminating.pop(job_id, None)

    async def _park_surely(self, job_id: JobID, reason: str) -> None:
        parking = self._parking.setdefault(job_id, asyncio.get_running_loop().create_future())
        try:
            result = await self._services.persistently(
                lambda: park(self._services, job_id, reason), f"parking job {job_id}"
            )
            self._start_cleanup(job_id)
            parking.set_result(result)
        finally:
            self._parking.pop(job_id, None)
            let_go(parking)

    async def _put_away(self, name: str, reason: str) -> None:
        await self._services.persistently(
            lambda: put_away(self._services, name, reason), f"putting graphs/{name} aside"
        )

    # -- questions ------------------------------------------------------------------------------------------------

    async def list_jobs(self) -> Sequence[JobOverview]:
        self._check_leading()
        now = self._services.now()
        live = (live_row(j) for j in self._jobs.values() if not j.result.done())
        return [*self._ended.rows(), *live, *(unread_row(j, now) for j in self._parking)]

    def owner_of(self, job_id: JobID) -> str:
        self._check_leading()
        if (job := self._jobs.get(job_id)) is not None:
            return job.submission.owner
        if (result := self._services.results.get(job_id)) is not None:
            return result.owner
        raise _unknown(job_id)

    def events(self, job_id: JobID | None = None) -> Subscription:
        self._check_leading()
        return self._services.events.subscribe(job_id)

    async def request_job(self, job_id: JobID) -> dict[str, Any]:
        self._check_leading()
        found = await self._details.of(job_id)
        if found is None:
            raise _unknown(job_id)
        return found

    async def request_job_status(self, job_id: JobID) -> JobStatus:
        self._check_leading()
        if (job := self._jobs.get(job_id)) is not None:
            return job.status
        if job_id in self._parking:
            return JobStatus.RECONCILING
        if (result := self._services.results.get(job_id)) is not None:
            return result.status
        raise _unknown(job_id)

    async def request_job_result(self, job_id: JobID) -> JobResult:
        self._check_leading()
        if (job := self._jobs.get(job_id)) is not None:
            return await asyncio.shield(job.result)
        if (parking := self._parking.get(job_id)) is not None:
            return await asyncio.shield(parking)
        if (result := self._services.results.get(job_id)) is not None:
            return result
        raise _unknown(job_id)

    async def request_cluster_overview(self) -> ClusterOverview:
        self._check_leading()
        counts = Counter(r.status for r in self._services.results.all())
        counts.update(j.status for j in self._jobs.values() if not j.result.done())
        return ClusterOverview(dict(counts), self._services.resources.overview())

    # -- wishes ---------------------------------------------------------------------------------------------------

    async def cancel_job(self, job_id: JobID, *, keep_checkpoint: bool | None = None) -> None:
        await self._ask(self._live_job(job_id).runner.cancel(keep_checkpoint=keep_checkpoint))

    async def stop_job(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, savepoint: bool = True
    ) -> None:
        refusals = _Refusals(
            "cannot stop half-way, only streaming graphs can; cancel it instead", "only running jobs can be stopped"
        )
        await self._trigger(job_id, trigger_id, OperationKind.STOP, refusals, target=target, savepoint=savepoint)

    async def trigger_checkpoint(self, job_id: JobID, trigger_id: str) -> None:
        refusals = _Refusals("has no checkpoints; only streaming graphs have", "a checkpoint needs a running job")
        await self._trigger(job_id, trigger_id, OperationKind.CHECKPOINT, refusals)

    async def trigger_savepoint(
        self, job_id: JobID, trigger_id: str, target: str | None = None, *, cancel: bool = False
    ) -> None:
        refusals = _Refusals("can have no savepoint, only streaming graphs can", "a savepoint needs a running job")
        await self._trigger(job_id, trigger_id, OperationKind.SAVEPOINT, refusals, target=target, cancel=cancel)

    async def _trigger(
        self, job_id: JobID, trigger_id: str, kind: OperationKind, refusals: _Refusals, **asked: JsonValue
    ) -> None:
        """Begin something with a streaming job that runs. A repetition is answered like the first call."""
        self._check_leading()
        if self._operations.known(job_id, trigger_id, kind, **asked):
            return
        job = self._live_job(job_id)
        if job.submission.graph.mode is not Mode.STREAMING or job.submission.graph.is_program:
            raise JobStateError(f"job {job_id} {refusals.no_stream}")
        if job.status is not JobStatus.RUNNING:
            raise JobStateError(f"job {job_id} is {job.status}; {refusals.not_running}")
        await self._ask(self._operations.begin(job_id, trigger_id, kind, **asked))

    async def dispose_savepoint(self, path: str, trigger_id: str) -> None:
        self._check_leading()
        await self._ask(self._operations.begin(NO_JOB, trigger_id, OperationKind.DISPOSAL, path=plain(path)))

    async def request_operation(self, job_id: JobID, trigger_id: str) -> Operation:
        self._check_leading()
        found = self._services.operations.get(job_id, trigger_id)
        if found is None:
            raise OperationNotFoundError(f"nothing was triggered for job {job_id} under the id {trigger_id}")
        return found

    async def list_operations(self, job_id: JobID) -> Sequence[Operation]:
        self._check_leading()
        return self._services.operations.of_job(job_id)

    async def report_client_heartbeat(self, job_id: JobID) -> None:
        job = self._live_job(job_id)
        timeout = job.submission.initial_client_heartbeat_timeout
        if timeout is None:
            raise JobStateError(f"job {job_id} was submitted without a client heartbeat; there is nothing to report")
        job.client_deadline = self._services.now() + timeout

    async def shut_down(self) -> None:
        self._check_leading()
        if not self._ending:
            self._ending = True
            self._tasks.start(self._shut_down(), "shut-down")

    async def _shut_down(self) -> None:
        """Engines on which jobs run go on with them; the others would be nobody's."""
        try:
            await self._services.resources.wind_down(self._services.configuration.engine.stop_timeout)
        finally:
            self._on_shut_down()

    @property
    def busy(self) -> bool:
        """Whether there is a job that has not ended, or is not cleaned up."""
        return bool(self._jobs or self._parking or self._submitting or self._terminating)

    # -- uploaded programs ----------------------------------------------------------------------------------------

    async def register_upload(self, upload: Upload) -> None:
        self._check_leading()
        await self._ask(self._services.uploads.put(upload, epoch=self._services.epoch))

    async def list_uploads(self) -> Sequence[Upload]:
        self._check_leading()
        return await self._services.uploads.list()

    async def remove_upload(self, upload_id: str) -> bool:
        self._check_leading()
        return await self._ask(self._services.uploads.delete(upload_id, epoch=self._services.epoch))

    # -- watching -------------------------------------------------------------------------------------------------

    async def _watch_store(self) -> None:
        """Graphs that somebody else added or removed."""
        interval = self._services.configuration.high_availability.poll_interval
        while True:
            await asyncio.sleep(interval)
            try:
                await self._compare_with_store()
            except FencingError:
                raise
            except StoreError as error:
                logger.warning("the store cannot be read; jobs go on: %s", error)

    async def _compare_with_store(self) -> None:
        known = set(self._jobs) | set(self._terminating) | set(self._parking)
        there = set(await self._services.graphs.job_ids())
        for job_id in there - known - set(self._submitting) - set(self._jobs) - set(self._terminating):
            if self._services.results.get(job_id) is not None:
                continue  # cleaned between our two looks
            try:
                submission = await self._services.graphs.get(job_id)
            except StoreError as error:
                logger.error("a graph that somebody added cannot be read, and is left alone: %s", error)
                continue
            if submission is not None and job_id not in self._jobs and job_id not in self._submitting:
                logger.info("job %s was added to the store by somebody else", job_id)
                self._run(submission, None)
        for job_id in known - there:
            job = self._jobs.get(job_id)
            if job is not None and not job.result.done() and job_id not in self._terminating:
                logger.warning(
                    "the graph of job %s was removed from the store by somebody else; it is cancelled", job_id
                )
                self._tasks.start(self._cancel_quietly(job), "cancel")

    async def _keep_house(self) -> None:
        """Clients that fell silent, and outcomes that nobody will ask for any more."""
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
            for job in [j for j in self._jobs.values() if j.client_deadline is not None and j.client_deadline < now]:
                logger.warning("the client of job %s is silent; the job is cancelled", job.submission.job_id)
                job.client_deadline = None
                self._tasks.start(self._cancel_quietly(job), "cancel")
            try:
                await services.operations.expire(now - retention, epoch=services.epoch, remembered=self._remembers)
                await services.finished.expire()
            except FencingError:
                raise
            except (StoreError, OSError) as error:
                logger.warning("what is too old could not be removed: %s", error)

    async def _collect_files(self) -> None:
        """Remove uploaded files that nothing needs. One that a submission under way needs is too young to go."""
        services = self._services
        grace = services.configuration.blob.cleanup_grace
        try:
            needed = {BlobKey(u.key) for u in await services.uploads.list()}
            needed |= {ref.key for job in self._jobs.values() for ref in blob_refs(job.submission.graph)}
            # As long as the graph of an ended stream is kept, somebody may go on with it.
            needed |= {BlobKey(k) for r in services.results.all() if r.job_id in services.finished for k in r.files}
            services.guard()
            for key in await services.blobs.collect(needed, grace=grace):
                logger.info("the uploaded file %s was needed by nothing any more and is gone", key)
        except FencingError:
            raise
        except (StoreError, OSError, ValueError) as error:
            logger.warning("uploaded files could not be looked through: %s", error)

    async def _cancel_quietly(self, job: ManagedJob) -> None:
        try:
            await job.runner.cancel()
        except (JobStateError, NotLeadingError):
            pass  # it ended by itself meanwhile, or there is nobody in it who could be asked

    # -- small things ---------------------------------------------------------------------------------------------

    def _check_leading(self) -> None:
        if self._closed:
            raise NotLeadingError("this node leads no more; ask the new leader")

    def _remembers(self, job_id: JobID) -> bool:
        return job_id in self._jobs or self._services.results.get(job_id) is not None

    def _live_job(self, job_id: JobID) -> ManagedJob:
        self._check_leading()
        job = self._jobs.get(job_id)
        if job is not None and not job.result.done():
            return job
        if job_id in self._parking:
            raise JobStateError(f"what was stored of job {job_id} cannot be read; it is being ended")
        result = self._services.results.get(job_id)
        if result is None:
            raise _unknown(job_id)
        raise JobStateError(f"job {job_id} is {result.status}; it has ended for good")

    async def _ask(self, question: Awaitable[T]) -> T:
        try:
            return await question
        except FencingError as error:
            self._on_error(error)
            raise NotLeadingError("this node leads no more; ask the new leader") from error


async def _all_reconciled(jobs: Sequence[ManagedJob]) -> None:
    for job in jobs:
        await job.runner.reconciled()


def _unknown(job_id: JobID) -> JobNotFoundError:
    return JobNotFoundError(f"no job {job_id} is known here")
