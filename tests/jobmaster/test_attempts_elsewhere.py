"""Attempts of another host: not seen is not dead. They are neither ended nor started again from here, and say what to do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.jobmaster.job_desk import CANCELED, JOB, LONG, Desk, play, record_of, running
from tests.support.guards import call, certain

from firesteel.attempts.attempt import AttemptDirectory, AttemptState
from firesteel.config import load_configuration
from firesteel.errors import AttemptElsewhereError
from firesteel.fs.files import private_dir, write_json
from firesteel.hosts import Host, Whereabouts, this_host
from firesteel.jobmaster.executor import Presence
from firesteel.status import JobStatus
from firesteel.types import AttemptId
from firesteel.worker.executor import LocalAttemptExecutor

OTHER = Host("other-host", "m2", "b2")


def elsewhere() -> dict[str, Any]:
    return record_of(host=str(OTHER))


def lost(desk: Desk) -> None:
    desk.services = dataclasses.replace(desk.services, whereabouts=Whereabouts(this_host(), frozenset({OTHER.name})))


def test_job_notes_the_host_of_its_attempt() -> None:
    async def main() -> None:
        desk = Desk()
        await running(desk)
        record = await desk.record()
        assert record is not None
        assert record["host"] == str(this_host())

    play(main)


def test_attempt_of_another_host_is_left_alone_and_the_job_says_what_to_do() -> None:
    async def main() -> None:
        desk = Desk()
        desk.resources.reclaimable = False
        desk.executor.presence = Presence.ABSENT
        desk.begin(elsewhere())
        await asyncio.sleep(LONG)
        assert desk.log == []
        assert desk.master.reclaimed.is_set()
        assert not desk.master.reconciled.is_set()
        state = desk.master.state
        assert state.status is JobStatus.RECONCILING
        [entry] = state.exceptions
        assert "started on host other-host" in entry.failure.message
        assert "high-availability.lost-hosts" in entry.failure.message

    play(main)


def test_the_next_leader_elsewhere_tells_it_once() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(elsewhere())
        await desk.meet(lambda: len(desk.master.state.exceptions) == 1)
        again = desk.master.state.record()
        await desk.let_go()
        desk.begin(again)
        await asyncio.sleep(LONG)
        assert len(desk.master.state.exceptions) == 1

    play(main)


def test_cancel_is_durable_and_carried_out_by_whoever_leads_there() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin(elsewhere())
        await desk.meet(lambda: bool(desk.master.state.exceptions))
        await asyncio.wait_for(desk.master.cancel(), LONG)
        await asyncio.sleep(LONG)
        assert desk.log == ["persist"]
        assert desk.master.state.status is JobStatus.CANCELLING
        record = await desk.record()
        assert record is not None
        assert record["cancel_requested"]
        await desk.let_go()
        # Also the next leader here does nothing but wait …
        desk.begin(record)
        await asyncio.sleep(LONG)
        assert desk.log == ["persist"]
        await desk.let_go()
        # … until one there leads.
        desk.services = dataclasses.replace(desk.services, whereabouts=Whereabouts(OTHER))
        desk.executor.fenced = CANCELED
        desk.begin(record)
        assert (await desk.finish()).status is JobStatus.CANCELED
        assert "cancel 1" in desk.log

    play(main)


def test_attempt_is_taken_over_by_a_leader_of_its_own_host() -> None:
    async def main() -> None:
        desk = Desk()
        desk.services = dataclasses.replace(desk.services, whereabouts=Whereabouts(OTHER))
        desk.begin(elsewhere())
        await desk.until("watch 1")
        assert desk.master.state.status is JobStatus.RUNNING

    play(main)


def test_attempt_of_a_host_that_is_gone_for_good_is_replaced() -> None:
    async def main() -> None:
        desk = Desk()
        lost(desk)
        desk.resources.reclaimable = False
        desk.executor.presence = Presence.ABSENT
        desk.begin(elsewhere())
        await desk.until("start 2")
        assert desk.at("fence 1") < desk.at("start 2")
        await desk.until("watch 2")
        record = await desk.record()
        assert record is not None
        assert record["host"] == str(this_host())

    play(main)


def test_job_between_two_attempts_runs_wherever_somebody_leads() -> None:
    async def main() -> None:
        desk = Desk()
        desk.begin({**elsewhere(), "deployed": False})
        await desk.until("start 2")

    play(main)


# -- the executor, should anybody ask it all the same --------------------------------------------------------------


class Files:
    """An attempt that a leader of another host has started, in a directory that both have."""

    def __init__(self, root: Path, **options: str) -> None:
        self.attempt = AttemptId(JOB, 1)
        self.directory = AttemptDirectory(private_dir(root / "jobs" / JOB / "attempts" / "1"))
        write_json(self.directory.spec, {"host": str(OTHER)})
        # No such process is here; that is all that can be seen.
        write_json(self.directory.driver, {"pid": 1, "started": "never"})
        overrides = {"data.dir": str(root), **{k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}}
        self.configuration = load_configuration(overrides=overrides, environ={"HOME": str(root)})

    def ask(self, call: Callable[[LocalAttemptExecutor], Any]) -> Any:
        async def inside() -> Any:
            executor = LocalAttemptExecutor(self.configuration, self.directory.jobs)
            try:
                return await asyncio.wait_for(call(executor), 30)
            finally:
                await executor.close()

        return asyncio.run(inside())


@pytest.mark.parametrize("act", ["fence", "cancel", "forget"])
def test_executor_ends_no_attempt_of_another_host(tmp_path: Path, act: str) -> None:
    files = Files(tmp_path)
    before = sorted(p.name for p in files.directory.root.iterdir())
    with pytest.raises(AttemptElsewhereError, match=r"host other-host .*lost-hosts"):
        files.ask(lambda executor: call(executor, act, files.attempt))
    after = sorted(p.name for p in files.directory.root.iterdir())
    assert after == before  # not even a mark that it was called off


def test_executor_does_not_take_a_driver_that_it_cannot_see_for_dead(tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def waits(executor: LocalAttemptExecutor) -> bool:
        waiting = asyncio.ensure_future(executor.wait(files.attempt))
        done, _ = await asyncio.wait([waiting], timeout=1)
        waiting.cancel()
        return not done

    assert files.ask(waits)
    assert not files.directory.has_result


def test_executor_ends_attempts_of_hosts_that_are_gone_for_good(tmp_path: Path) -> None:
    files = Files(tmp_path, high_availability__lost_hosts=OTHER.name)
    result = files.ask(lambda executor: executor.fence(files.attempt, guard=certain))
    assert result.state is AttemptState.CANCELED


def test_attempt_with_a_result_is_nobodys_any_more(tmp_path: Path) -> None:
    files = Files(tmp_path)
    private_dir(files.directory.output)
    write_json(files.directory.result, {"state": "FINISHED", "ended_at": 1.0})
    result = files.ask(lambda executor: executor.fence(files.attempt, guard=certain))
    assert result.state is AttemptState.FINISHED
