"""Deliberate bugs that both the simulation and real nodes are given. Each takes what puts an attribute in place of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.jobmaster import machine
from firesteel.jobmaster.executor import Presence
from firesteel.jobmaster.restart import NO_FAILURES
from firesteel.stores.job_graphs import Submission

Put = Callable[[object, str, object], None]


def acknowledged_before_the_write(put: Put, late: float = 0.0) -> None:
    async def put_late(self: Dispatcher, submission: Submission) -> None:
        if late:
            await asyncio.sleep(late)
        await self._services.graphs.put(submission, epoch=self._services.epoch)

    async def submit(self: Dispatcher, submission: Submission) -> None:
        if not self._known(submission):
            self._run(submission, None)
            self._tasks.start(put_late(self, submission), "put")

    put(Dispatcher, "_submit", submit)


def cleaned_before_the_result(put: Put) -> None:
    async def look_after(self: Dispatcher, job: Any) -> None:
        job_id = job.submission.job_id
        result = await job.runner.run()
        job.state = job.runner.state
        await self._services.graphs.delete(job_id, epoch=self._services.epoch)
        await self._services.results.put_dirty(result, epoch=self._services.epoch)
        if not job.result.done():
            job.result.set_result(result)
        self._start_cleanup(job_id)

    put(Dispatcher, "_look_after", look_after)


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
