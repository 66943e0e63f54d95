"""Deliberate bugs of workers and of the leader's view of them, each of which the schedules must catch (I27)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.fleet_world import ISOLATION, WorkerPlan
from tests.simulation.test_fleet_schedules import simulate

from firesteel.fleet.contact import Contact
from firesteel.fleet.registry import Fleet
from firesteel.worker.isolation import LeaderContact
from firesteel.worker.service import WorkerService

Patch = Callable[[pytest.MonkeyPatch], None]


def the_leader_gives_up_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Contact, "gone_at", property(lambda self: self.since + self.isolation_timeout / 3))


def the_worker_does_not_stop(patch: pytest.MonkeyPatch) -> None:
    async def stop_everything(self: WorkerService, guard: Any) -> bool:
        return True

    patch.setattr(WorkerService, "stop_everything", stop_everything)


def a_new_process_of_the_worker_begins_to_count_anew(patch: pytest.MonkeyPatch) -> None:
    original = LeaderContact.__init__

    def init(self: LeaderContact, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.last = self.now()

    patch.setattr(LeaderContact, "__init__", init)


def a_new_leader_takes_silence_for_death(patch: pytest.MonkeyPatch) -> None:
    original = Fleet._expect

    def expect(self: Fleet, worker: str, record: Any) -> Any:
        link = original(self, worker, record)
        link.contact = replace(link.contact, since=link.contact.since - 2 * ISOLATION)
        return link

    patch.setattr(Fleet, "_expect", expect)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [
        the_leader_gives_up_too_early,
        the_worker_does_not_stop,
        a_new_process_of_the_worker_begins_to_count_anew,
        a_new_leader_takes_silence_for_death,
    ],
)
def test_a_deliberate_bug_is_caught(bug: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(40):
        directory = tmp_path / str(seed)
        directory.mkdir()
        plan = WorkerPlan(seed, cuts=(4.0, 40.0), kills=True, elections=seed % 2 == 1)
        if simulate(plan, directory).overlaps:
            return
    pytest.fail("nothing was noticed")
