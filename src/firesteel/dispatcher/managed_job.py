"""A job as its Dispatcher holds it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from firesteel.errors import NotLeadingError
from firesteel.jobmaster.machine import JobState
from firesteel.jobmaster.runner import JobManagerRunner
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult


@dataclass(eq=False, slots=True)
class ManagedJob:
    """A job that this Dispatcher looks after, from its acceptance until it is clean."""

    submission: Submission
    runner: JobManagerRunner
    result: asyncio.Future[JobResult]
    """Done once the dirty result is durable."""
    client_deadline: float | None = None
    """When the job is cancelled unless its client is heard of."""
    state: JobState | None = None
    """The last state, kept for the archive when the JobMaster is gone."""

    @property
    def status(self) -> JobStatus:
        return self.result.result().status if self.result.done() else self.shown.status

    @property
    def shown(self) -> JobState:
        """What may be told of the job: an end that is not durable yet has not happened (I5)."""
        state = self.runner.state
        before = _BEFORE_THE_END.get(state.status)
        return replace(state, status=before) if before is not None else state


_BEFORE_THE_END = {
    JobStatus.FINISHED: JobStatus.RUNNING,
    JobStatus.FAILED: JobStatus.FAILING,
    JobStatus.CANCELED: JobStatus.CANCELLING,
}


def let_go(waited_for: asyncio.Future[JobResult]) -> None:
    if not waited_for.done():
        waited_for.set_exception(NotLeadingError("this node leads no more; ask the new leader for the result"))
        waited_for.exception()  # nobody may have been waiting
