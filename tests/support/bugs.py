"""Deliberate bugs that both the simulation and real nodes are given. Each takes what puts an attribute in place of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from firesteel.dispatcher import job_table
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.ha.protocols import Epoch
from firesteel.jobmaster import machine
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.restart import NO_FAILURES
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_results import JobResult, JobResultStore

Put = Callable[[object, str, object], None]


def acknowledged_before_the_write(put: Put, late: float = 0.0) -> None:
    async def put_late(self: Dispatcher, submission: Submission) -> None:
        if late:
            await asyncio.sleep(late)
        await self._services.graphs.put(submission, epoch=self._services.epoch)

    async def submit(self: Dispatcher, submission: Submission) -> None:
        if not self._known(submission):
            runner = self._runner(submission, None)
            self._table.happened(submission.job_id, job_table.Found(runner))
            self._begin(runner)
            self._tasks.start(put_late(self, submission), "put")

    put(Dispatcher, "_submit", submit)


def cleaned_before_the_result(put: Put) -> None:
    original = JobResultStore.put_dirty

    async def put_dirty(self: JobResultStore, result: JobResult, *, epoch: Epoch) -> None:
        await JobGraphStore(self._store).delete(result.job_id, epoch=epoch)
        await original(self, result, epoch=epoch)

    put(JobResultStore, "put_dirty", put_dirty)


def duplicates_not_noticed(put: Put) -> None:
    """Neither who asks the table nor the table itself sees that an id is taken."""
    original = job_table.step

    def step(entry: job_table.Entry | None, event: job_table.Event) -> job_table.Entry | None:
        return original(None if isinstance(event, job_table.Submitted) else entry, event)

    put(job_table, "step", step)
    put(Dispatcher, "_known", lambda self, submission: False)


def restarted_on_adoption(put: Put) -> None:
    original = machine._recovered

    def recovered(state: machine.JobState, event: machine.Recovered, now: float) -> machine.Step:
        lost = event.presence is Presence.RUNNING
        return original(state, machine.Recovered(False, event.presence) if lost else event, now)

    put(machine, "_recovered", recovered)


def counters_not_durable(put: Put) -> None:
    original = machine.JobState.of_record

    def of_record(restart: Any, size: int, data: Mapping[str, Any]) -> machine.JobState:
        return replace(original(restart, size, data), failures=NO_FAILURES)

    put(machine.JobState, "of_record", staticmethod(of_record))
