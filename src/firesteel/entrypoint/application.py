"""The application of an application cluster: the one job that the cluster runs for."""

from __future__ import annotations

import asyncio
import logging
import time

from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.component import DispatcherResourceManagerComponent
from firesteel.errors import JobNotFoundError, NotLeadingError
from firesteel.status import JobStatus
from firesteel.types import JobID

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
GRACE_SECONDS = 3.0
"""How long clients can still get the result after everything is done."""

STATUS = {
    JobStatus.FINISHED: ApplicationStatus.SUCCEEDED,
    JobStatus.FAILED: ApplicationStatus.FAILED,
    JobStatus.CANCELED: ApplicationStatus.CANCELED,
}


async def application_ended(
    component: DispatcherResourceManagerComponent, job_id: JobID, patience: float
) -> ApplicationStatus:
    """Wait for the job to be submitted, to end, and to be cleaned up after.

    A job that is not submitted within `patience` seconds was given up by its client.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            result = await component.dispatcher.request_job_result(job_id)
            while component.dispatcher.busy:  # noqa: ASYNC110 - the clean-up takes a moment; NotLeadingError begins anew
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(GRACE_SECONDS)
            return STATUS[result.status]
        except NotLeadingError:
            deadline = time.monotonic() + patience
        except JobNotFoundError:
            if time.monotonic() > deadline:
                logger.error("the application %s was not submitted within %g s", job_id, patience)
                return ApplicationStatus.CANCELED
        await asyncio.sleep(LOOK_SECONDS)
