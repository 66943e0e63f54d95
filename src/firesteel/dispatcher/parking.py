"""Jobs whose stored state cannot be read end FAILED, with their bytes kept, and do not affect other jobs."""

from __future__ import annotations

import logging

from firesteel.dispatcher.services import DispatcherServices
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster.runner import fence_all
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult
from firesteel.stores.parked import ParkedJob
from firesteel.types import JobID

logger = logging.getLogger(__name__)


async def park(services: DispatcherServices, job_id: JobID, reason: str) -> JobResult:
    """The dirty result of the job, durable; clean-up is the caller's."""
    for path, raw in (
        (f"graphs/{job_id}", await services.graphs.raw(job_id)),
        (f"jobs/{job_id}", await services.records.raw(job_id)),
        (f"results/{job_id}", await services.results.raw(job_id)),
    ):
        if raw is not None:
            await services.parked.put(ParkedJob(job_id, path, raw, reason, services.now()), epoch=services.epoch)
    # What an earlier leader started for it must not keep running unseen.
    await fence_all(job_id, services.executor, services.guard, services.backoff)
    now = services.now()
    result = JobResult(
        job_id=job_id,
        name=job_id,
        status=JobStatus.FAILED,
        failure=Failure(FailureKind.INTERNAL, f"the stored state of the job cannot be read: {reason}"),
        submitted_at=now,
        started_at=None,
        ended_at=now,
        attempts=0,
        restarts=0,
        digest="",
        note="parked",
    )
    await services.results.replace_unreadable(result, epoch=services.epoch)
    logger.error("job %s was parked: %s", job_id, reason)
    return result


async def put_away(services: DispatcherServices, name: str, reason: str) -> None:
    """Move an entry that stands among the graphs but is not a job out of the way, and keep its bytes."""
    raw = await services.graphs.raw(JobID(name))
    if raw is not None:
        parked = ParkedJob(JobID(name), f"graphs/{name}", raw, reason, services.now())
        await services.parked.put(parked, epoch=services.epoch)
        await services.graphs.delete(JobID(name), epoch=services.epoch)
    logger.error("graphs/%s is not a job and was moved aside: %s", name, reason)
