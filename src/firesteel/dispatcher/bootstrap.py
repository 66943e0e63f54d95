"""What a Dispatcher begins with once it has recovered: nothing in a session cluster, the program in an application cluster.

The program is a job like others, whose id is that of the application: its driver process outlives leaders, is adopted, and is
never started twice. Jobs that it submits have ids that are derived from the application's, so a program that runs again gets
its running jobs back. The application has ended when its program and all of its jobs have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.services import DispatcherServices
from firesteel.errors import JobStateError, VersionConflictError
from firesteel.jobgraph.model import ScriptApi
from firesteel.status import JobStatus
from firesteel.stores.applications import ApplicationRecord, ApplicationState
from firesteel.stores.job_graphs import Submission
from firesteel.stores.job_results import JobResult
from firesteel.types import JobID

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
OnApplicationEnd = Callable[[ApplicationRecord], Awaitable[None]]
Ship = Callable[[], Awaitable[Submission]]
"""Brings the files of the program into the cluster, and gives it as it is submitted. May be repeated."""


class DispatcherBootstrap(Protocol):
    async def run(self) -> None:
        """Called once the Dispatcher serves; cancelled when leadership ends."""
        ...


class NoOpBootstrap:
    """Of a session cluster: jobs come from outside."""

    async def run(self) -> None:
        return


class ApplicationDispatcherBootstrap:
    """Runs the application of this cluster, or goes on with it, to its end."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        services: DispatcherServices,
        record: ApplicationRecord | None,
        *,
        ship: Ship | None = None,
        on_end: OnApplicationEnd,
    ) -> None:
        """`record`: of an application that an earlier leader has accepted. `ship`: the program, if there is none."""
        self._dispatcher = dispatcher
        self._services = services
        self._record = record
        self._ship = ship
        self._on_end = on_end

    async def run(self) -> None:
        if self._record is None:
            await self._accept()
        record = self._known
        self._dispatcher.application = record
        if not record.state.terminal:
            # Known already, unless a leader died between its two writes: then this is the first time.
            await self._dispatcher.submit_job(record.program)
            if record.state is ApplicationState.CREATED:
                await self._enter(ApplicationState.RUNNING)
            await self._end_of_jobs()
        while self._dispatcher.busy:  # noqa: ASYNC110 - archives are written by the clean-up of each job
            await asyncio.sleep(LOOK_SECONDS)
        await self._on_end(self._known)

    @property
    def _known(self) -> ApplicationRecord:
        assert self._record is not None
        return self._record

    async def _accept(self) -> None:
        assert self._ship is not None
        submission = await self._ship()
        now = self._services.now()
        record = ApplicationRecord(submission, ApplicationState.CREATED, {ApplicationState.CREATED.value: now})
        try:
            await self._services.applications.create(record, epoch=self._services.epoch)
        except VersionConflictError:
            # An answer got lost, and the write had happened.
            record = await self._services.applications.get() or record
        self._record = record
        logger.info("application %s (%s) accepted", record.application_id, submission.graph.name)

    async def _end_of_jobs(self) -> None:
        program = await self._dispatcher.request_job_result(self._known.application_id)
        if program.status is not JobStatus.FINISHED:
            failed = program.status is JobStatus.FAILED
            if self._known.state is ApplicationState.RUNNING:
                await self._enter(ApplicationState.FAILING if failed else ApplicationState.CANCELING)
            await self._cancel_jobs()
        while (live := self._others_live()) is not None:
            await self._dispatcher.request_job_result(live)
        state, failure = conclusion(self._known.program, program, self._others())
        await self._enter(state, failure)

    async def _cancel_jobs(self) -> None:
        while (live := self._others_live()) is not None:
            try:
                await self._dispatcher.cancel_job(live)
            except JobStateError:
                pass  # it has just ended by itself
            await self._dispatcher.request_job_result(live)

    def _others_live(self) -> JobID | None:
        return next((j for j in self._dispatcher.unfinished_jobs() if j != self._known.application_id), None)

    def _others(self) -> Sequence[JobResult]:
        return [r for r in self._services.results.all() if r.job_id != self._known.application_id]

    async def _enter(self, state: ApplicationState, failure: str = "") -> None:
        record = self._known.entered(state, self._services.now(), failure)
        await self._services.persistently(
            lambda: self._services.applications.put(record, epoch=self._services.epoch),
            f"writing that application {record.application_id} is {state.value}",
        )
        self._record = self._dispatcher.application = record
        logger.info("application %s: %s%s", record.application_id, state.value, f": {failure}" if failure else "")


def conclusion(submission: Submission, program: JobResult, others: Sequence[JobResult]) -> tuple[ApplicationState, str]:
    """How an application ends whose program and jobs have ended so, and why where no job says it."""
    if program.status is JobStatus.FAILED:
        return ApplicationState.FAILED, ""
    if program.status is JobStatus.CANCELED:
        return ApplicationState.CANCELED, ""
    failed = [r for r in others if r.status is JobStatus.FAILED]
    if failed:
        return ApplicationState.FAILED, f"job {failed[0].job_id} ({failed[0].name}) has failed"
    if any(r.status is JobStatus.CANCELED for r in others):
        return ApplicationState.CANCELED, ""
    script = submission.graph.script
    if script is not None and script.api is ScriptApi.NONE and not others:
        return ApplicationState.FAILED, NOTHING_SUBMITTED
    return ApplicationState.FINISHED, ""


NOTHING_SUBMITTED = (
    "the program has ended and has submitted no job; submit at least one with firesteel.connect(), "
    "or use a SparkSession"
)
