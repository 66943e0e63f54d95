"""Deliberate bugs, each of which the schedules must catch: a suite that cannot fail proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.invariants import violations
from tests.simulation.scenario import Plan, simulate
from tests.simulation.world import Process, SimElection
from tests.support import bugs

from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.jobmaster import machine
from firesteel.jobmaster.master import JobMaster
from firesteel.resourcemanager.manager import ResourceManager
from firesteel.status import JobStatus

Patch = Callable[[pytest.MonkeyPatch], None]


def fencing_is_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Process, "check", lambda self, epoch: None)


def acknowledged_before_the_write(patch: pytest.MonkeyPatch) -> None:
    bugs.acknowledged_before_the_write(patch.setattr)


def cleaned_before_the_result(patch: pytest.MonkeyPatch) -> None:
    bugs.cleaned_before_the_result(patch.setattr)


def marked_clean_before_the_outputs(patch: pytest.MonkeyPatch) -> None:
    original = Dispatcher.__init__

    def init(self: Dispatcher, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        late = ("outputs", "attempts")
        self._cleaner._steps = tuple(sorted(self._cleaner._steps, key=lambda step: step.name in late))

    patch.setattr(Dispatcher, "__init__", init)


def results_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    async def read(self: Any, job_id: Any) -> None:
        return None

    patch.setattr("firesteel.stores.job_results.JobResultStore.read", read)
    patch.setattr("firesteel.stores.job_results.JobResultStore.dirty", lambda self: [])


def cancel_acknowledged_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    original = JobMaster._perform

    async def perform(self: JobMaster, instructions: Any, answer: asyncio.Future[None] | None) -> None:
        if answer is not None and not answer.done():
            answer.set_result(None)
            await asyncio.sleep(0.1)
        await original(self, instructions, answer)

    patch.setattr(JobMaster, "_perform", perform)


def counters_are_not_durable(patch: pytest.MonkeyPatch) -> None:
    bugs.counters_not_durable(patch.setattr)


def recovered_jobs_are_restarted(patch: pytest.MonkeyPatch) -> None:
    bugs.restarted_on_adoption(patch.setattr)


def attempts_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    def failing(state: Any, attempt: int, failure: Any, labels: Any, now: float) -> machine.Step:
        if attempt != state.attempt or state.status is not JobStatus.RUNNING:
            return state, ()
        entry = machine.ExceptionEntry(failure, now, attempt, labels)
        return machine._decide(machine._enter(replace(state, pending=entry), JobStatus.FAILING, now), now)

    patch.setattr(machine, "_failing", failing)


def duplicates_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    bugs.duplicates_not_noticed(patch.setattr)


def delay_is_forgotten_by_a_new_leader(patch: pytest.MonkeyPatch) -> None:
    original = machine._recovered

    def recovered(state: machine.JobState, event: machine.Recovered, now: float) -> machine.Step:
        return original(replace(state, restart_at=None), event, now)

    patch.setattr(machine, "_recovered", recovered)


def nobody_looks_at_the_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimElection, "holds", lambda self, epoch: True)


def cancel_is_obeyed_late(patch: pytest.MonkeyPatch) -> None:
    original = JobMaster._cancel

    async def cancel(self: JobMaster, number: int) -> None:
        await asyncio.sleep(15)
        await original(self, number)

    patch.setattr(JobMaster, "_cancel", cancel)


def fenced_leader_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    async def reconsider(self: DispatcherRunner, epoch: Any) -> None:
        return None

    patch.setattr(DispatcherRunner, "_reconsider", reconsider)


def system_errors_break_the_job(patch: pytest.MonkeyPatch) -> None:
    async def impatiently(self: JobMaster, action: Any, what: str) -> Any:
        return await action()

    patch.setattr(JobMaster, "_patiently", impatiently)


def stray_engines_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    async def find(self: ResourceManager) -> None:
        return None

    patch.setattr(ResourceManager, "_find_strays", find)


MUTANTS: list[tuple[Patch, str, dict[str, Any]]] = [
    (fencing_is_skipped, "I6", {"nodes": 2, "pauses": 4}),
    (acknowledged_before_the_write, "I1", {"crash": True}),
    (cleaned_before_the_result, "I1", {"crash": True}),
    (marked_clean_before_the_outputs, "I12", {"crash": True}),
    (results_are_not_asked, "I", {"crash": True}),
    (cancel_acknowledged_before_it_is_durable, "I10", {"crash": True}),
    (counters_are_not_durable, "I11", {"kills": 6}),
    (recovered_jobs_are_restarted, "I8", {"kills": 4}),
    (attempts_are_not_fenced, "I2", {"start_errors": 0.3}),
    (duplicates_are_not_noticed, "I", {}),
    (delay_is_forgotten_by_a_new_leader, "I11", {"kills": 6}),
    (nobody_looks_at_the_lease, "I7", {"pause": True}),
    (stray_engines_are_not_looked_for, "I12", {"pause": True}),
    (cancel_is_obeyed_late, "I10", {"kills": 2}),
    (fenced_leader_waits_for_ever, "I", {"doubts": 0.1}),
    (system_errors_break_the_job, "I", {"nasty": 0.1, "kills": 2}),
]


SLOW = {results_are_not_asked}
"""Caught after hundreds of schedules."""


@pytest.mark.parametrize(
    ("bug", "invariant", "options"),
    [pytest.param(*m, id=m[0].__name__, marks=[pytest.mark.slow] * (m[0] in SLOW)) for m in MUTANTS],
)
def test_bug_is_caught(
    bug: Patch, invariant: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level("CRITICAL")
    plans = list(_plans(**options))
    bug(monkeypatch)
    for tried, plan in enumerate(plans):
        found = violations(simulate(plan))
        if any(v.startswith(invariant) for v in found):
            return
        assert tried < 1000, "too many"
    pytest.fail(f"{len(plans)} schedules did not notice")


def _plans(*, crash: bool = False, pause: bool = False, **options: Any) -> list[Plan]:
    if pause:
        return [
            Plan(seed, jobs=2, nodes=2, engine_kills=1, pause_at=step)
            for seed in range(1_000, 1_010)
            for step in range(1, 50)
        ]
    if not crash:
        return [Plan(seed, **options) for seed in range(200)]
    return [
        Plan(seed, jobs=2, crash_at=(step, side))
        for seed in range(12)
        for step in range(1, 45)
        for side in ("before", "after")
    ]
