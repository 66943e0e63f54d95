"""Leadership comes and goes: at most one leader process of a node lives, and it acts only while the node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from tests.dispatcher.sim_cluster import LONG, Cluster, once

from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.dispatcher.leader_process import DispatcherLeaderProcess
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.errors import FencingError, NotLeadingError, StoreBrokenError
from firesteel.ha.protocols import Epoch, LeaderInformation, LeaderListener
from firesteel.status import JobStatus
from firesteel.testing.virtual_time import run_in_virtual_time as run


class Election:
    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.publish_errors: list[Exception] = []
        self.certain = False
        self.listener: LeaderListener | None = None

    async def start(self, listener: LeaderListener) -> None:
        self.listener = listener
        self.log.append("contend")

    def holds(self, epoch: Epoch) -> bool:
        return self.certain

    async def publish(self, epoch: Epoch, address: str) -> None:
        if self.publish_errors:
            raise self.publish_errors.pop(0)
        self.log.append(f"publish {epoch} {address}")

    async def leader(self) -> LeaderInformation | None:
        return None

    async def resign(self, epoch: Epoch, *, patience: float) -> None:
        self.log.append(f"resign {epoch}")
        assert self.listener is not None
        self.listener.on_revoke()

    async def close(self) -> None:
        self.log.append("leave")


class FakeProcess:
    """Starts and stops when the gates are open."""

    def __init__(self, epoch: Epoch, house: House) -> None:
        self.epoch = epoch
        self.house = house
        self.serving = False

    @property
    def dispatcher(self) -> Dispatcher:
        if not self.serving:
            raise NotLeadingError("still recovering")
        return cast(Dispatcher, self)

    async def start(self) -> None:
        self.house.log.append(f"start {self.epoch}")
        try:
            await self.house.start_gate.wait()
        except asyncio.CancelledError:
            self.house.log.append(f"start {self.epoch} cancelled")
            raise
        if self.house.start_errors:
            raise self.house.start_errors.pop(0)
        self.serving = True
        self.house.log.append(f"serve {self.epoch}")

    async def close(self, _alone: object = None) -> None:
        self.serving = False
        self.house.log.append(f"stop {self.epoch}")
        await self.house.stop_gate.wait()
        self.house.log.append(f"stopped {self.epoch}")


class House:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.start_gate, self.stop_gate = asyncio.Event(), asyncio.Event()
        self.start_gate.set()
        self.stop_gate.set()
        self.start_errors: list[Exception] = []
        self.fatal: list[BaseException] = []
        self.fenced: dict[Epoch, Callable[[Epoch], None]] = {}
        self.election = Election(self.log)
        self.runner = DispatcherRunner(self.election, self._make, address="here", on_fatal=self.fatal.append)

    def _make(self, epoch: Epoch, on_fenced: Callable[[Epoch], None]) -> DispatcherLeaderProcess:
        self.fenced[epoch] = on_fenced
        return cast(DispatcherLeaderProcess, FakeProcess(epoch, self))

    def grant(self, epoch: int) -> None:
        self.runner.on_grant(Epoch(epoch))

    @property
    def leads(self) -> int | None:
        try:
            return cast(FakeProcess, self.runner.dispatcher).epoch
        except NotLeadingError:
            return None


def play(main: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        house = House()
        await house.runner.start()
        await asyncio.sleep(1)
        assert house.log == ["contend"]
        house.log.clear()
        await main(house)

    run(inside)


def test_leadership_and_its_end() -> None:
    async def main(house: House) -> None:
        assert house.leads is None
        house.grant(1)
        await asyncio.sleep(1)
        assert house.leads == 1
        assert house.log == ["start 1", "serve 1", "publish 1 here"]
        house.runner.on_revoke()
        assert house.leads is None, "from the very moment on"
        await asyncio.sleep(1)
        assert house.log[3:] == ["stop 1", "stopped 1"]
        house.grant(2)
        await asyncio.sleep(1)
        assert house.leads == 2

    play(main)


def test_address_is_published_only_by_one_that_serves() -> None:
    async def main(house: House) -> None:
        house.start_gate.clear()
        house.grant(1)
        await asyncio.sleep(LONG)
        assert house.log == ["start 1"]
        assert house.leads is None
        house.start_gate.set()
        await asyncio.sleep(1)
        assert house.log == ["start 1", "serve 1", "publish 1 here"]

    play(main)


def test_grant_while_the_old_process_stops_waits_for_it() -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.stop_gate.clear()
        house.runner.on_revoke()
        await asyncio.sleep(1)
        house.grant(2)
        await asyncio.sleep(LONG)
        assert house.log[3:] == ["stop 1"]
        assert house.leads is None
        house.stop_gate.set()
        await asyncio.sleep(1)
        assert house.log[3:8] == ["stop 1", "stopped 1", "start 2", "serve 2", "publish 2 here"]
        assert house.leads == 2

    play(main)


def test_grant_while_the_old_process_stops_starts_one_process() -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.stop_gate.clear()
        house.runner.on_revoke()
        await asyncio.sleep(1)
        house.grant(2)
        await asyncio.sleep(1)
        house.stop_gate.set()
        await asyncio.sleep(10)
        assert house.log.count("start 2") == 1

    play(main)


def test_revoke_during_the_start_cancels_it() -> None:
    async def main(house: House) -> None:
        house.start_gate.clear()
        house.grant(1)
        await asyncio.sleep(1)
        house.runner.on_revoke()
        await asyncio.sleep(1)
        assert house.log == ["start 1", "start 1 cancelled", "stop 1", "stopped 1"]
        house.start_gate.set()
        house.grant(2)
        await asyncio.sleep(1)
        assert house.leads == 2
        assert "publish 1 here" not in house.log
        assert not house.fatal

    play(main)


def test_grants_in_quick_succession_leave_the_last(tmp_path: Path) -> None:
    async def main(house: House) -> None:
        for epoch in range(1, 6):
            house.grant(epoch)
            house.runner.on_revoke()
        house.grant(6)
        await asyncio.sleep(1)
        assert house.log == ["start 6", "serve 6", "publish 6 here"]
        # And with pauses that let each begin, but not end.
        house.start_gate.clear()
        for epoch in range(7, 10):
            house.runner.on_revoke()
            house.grant(epoch)
            await asyncio.sleep(0.1)
        house.start_gate.set()
        await asyncio.sleep(1)
        assert house.leads == 9
        serving = [w for w in house.log if w.startswith(("serve", "publish"))]
        assert serving == ["serve 6", "publish 6 here", "serve 9", "publish 9 here"]
        for epoch in (6, 7, 8):
            assert house.log.index(f"stopped {epoch}") < house.log.index(f"start {epoch + 1}")

    play(main)


def test_store_that_says_so_first_ends_the_leadership() -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.fenced[Epoch(1)](Epoch(1))
        assert house.leads is None
        await asyncio.sleep(1)
        assert house.log[3:] == ["stop 1", "stopped 1"]
        house.runner.on_revoke()
        house.grant(3)
        await asyncio.sleep(1)
        assert house.leads == 3
        house.fenced[Epoch(1)](Epoch(1))  # what comes late from an old one is no news
        await asyncio.sleep(1)
        assert house.leads == 3
        assert not house.fatal

    play(main)


def test_doubt_that_proves_wrong_costs_a_recovery_and_not_the_leadership() -> None:
    """No other node could take the place of one that renews its lease and serves nobody."""

    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.fenced[Epoch(1)](Epoch(1))
        await asyncio.sleep(LONG)
        assert house.leads is None
        house.election.certain = True
        await asyncio.sleep(10)
        assert house.leads == 1
        assert house.log[3:] == ["stop 1", "stopped 1", "start 1", "serve 1", "publish 1 here"]

    play(main)


def test_doubt_that_the_election_confirms_is_the_end() -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.fenced[Epoch(1)](Epoch(1))
        house.runner.on_revoke()
        house.election.certain = True
        await asyncio.sleep(LONG)
        assert house.leads is None
        assert house.log[3:] == ["stop 1", "stopped 1"]

    play(main)


@pytest.mark.parametrize("where", ["start", "publish"])
def test_fencing_during_the_start_ends_the_leadership(where: str) -> None:
    async def main(house: House) -> None:
        errors = house.start_errors if where == "start" else house.election.publish_errors
        errors.append(FencingError("epoch 1 is not 2"))
        house.grant(1)
        await asyncio.sleep(1)
        assert house.leads is None
        assert house.log[-1] == "stopped 1"
        assert not house.fatal

    play(main)


def test_start_that_fails_is_fatal() -> None:
    async def main(house: House) -> None:
        error = StoreBrokenError("the database is damaged")
        house.start_errors.append(error)
        house.grant(1)
        await asyncio.sleep(1)
        assert house.fatal == [error]
        assert house.leads is None

    play(main)


def test_election_that_breaks_is_fatal() -> None:
    async def main(house: House) -> None:
        error = StoreBrokenError("the file was deleted")
        house.runner.on_error(error)
        assert house.fatal == [error]

    play(main)


@pytest.mark.parametrize("moment", ["serving", "starting", "idle"])
def test_close_ends_the_process_before_others_may_lead(moment: str) -> None:
    async def main(house: House) -> None:
        if moment == "starting":
            house.start_gate.clear()
        if moment != "idle":
            house.grant(1)
            await asyncio.sleep(1)
        await asyncio.wait_for(house.runner.close(), LONG)
        assert house.log[-1] == "leave"
        if moment != "idle":
            assert house.log[-2] == "stopped 1"
        assert house.leads is None
        house.grant(2)
        await asyncio.sleep(1)
        assert house.log[-1] == "leave"

    play(main)


def test_close_while_the_process_stops_waits_for_it_too() -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.stop_gate.clear()
        house.runner.on_revoke()
        await asyncio.sleep(1)
        closing = asyncio.ensure_future(house.runner.close())
        await asyncio.sleep(10)
        assert "leave" not in house.log
        house.stop_gate.set()
        await asyncio.wait_for(closing, LONG)
        assert house.log[-2:] == ["stopped 1", "leave"]

    play(main)


# -- hand-over ------------------------------------------------------------------------------------------------------


def test_hand_over_finishes_ends_and_only_then_lets_others_lead() -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        finished = asyncio.Event()

        async def finish() -> None:
            house.log.append("finish")
            await finished.wait()

        handing = asyncio.ensure_future(house.runner.hand_over(finish, patience=5))
        await asyncio.sleep(1)
        with pytest.raises(NotLeadingError, match="handing its leadership over"):
            assert house.runner.epoch
        assert house.leads == 1, "for what was accepted before"
        with pytest.raises(NotLeadingError):
            await house.runner.hand_over(finish, patience=5)
        finished.set()
        await asyncio.wait_for(handing, LONG)
        assert house.log[3:] == ["finish", "stop 1", "stopped 1", "resign 1"]
        assert house.leads is None
        house.grant(3)  # somebody else has led
        await asyncio.sleep(1)
        assert (house.leads, house.runner.epoch) == (3, 3)

    play(main)


def test_hand_over_of_a_node_that_does_not_lead() -> None:
    async def main(house: House) -> None:
        async def finish() -> None:
            house.log.append("finish")

        with pytest.raises(NotLeadingError):
            await house.runner.hand_over(finish, patience=5)
        house.start_gate.clear()
        house.grant(1)
        await asyncio.sleep(1)
        with pytest.raises(NotLeadingError):  # it has nothing to give yet
            await house.runner.hand_over(finish, patience=5)
        house.start_gate.set()
        await asyncio.sleep(1)
        assert house.leads == 1
        assert "finish" not in house.log

    play(main)


@pytest.mark.parametrize("doubt", ["fenced", "revoked"])
def test_leadership_that_is_lost_during_its_hand_over(doubt: str) -> None:
    async def main(house: House) -> None:
        house.grant(1)
        await asyncio.sleep(1)
        house.election.certain = True

        async def finish() -> None:
            if doubt == "fenced":
                house.fenced[Epoch(1)](Epoch(1))
            else:
                house.runner.on_revoke()
            await asyncio.sleep(10)

        await asyncio.wait_for(house.runner.hand_over(finish, patience=5), LONG)
        await asyncio.sleep(LONG)
        assert house.leads is None
        assert house.log[3:] == ["stop 1", "stopped 1", "resign 1"]
        assert not house.fatal
        house.grant(2)
        await asyncio.sleep(1)
        assert house.leads == 2

    play(main)


def test_close_finishes_what_was_accepted_first() -> None:
    async def main(house: House) -> None:
        async def finish() -> None:
            house.log.append("finish")
            assert house.leads == 1
            with pytest.raises(NotLeadingError):
                assert house.runner.epoch

        house.grant(1)
        await asyncio.sleep(1)
        await asyncio.wait_for(house.runner.close(finish), LONG)
        assert house.log[3:] == ["finish", "stop 1", "stopped 1", "leave"]

    play(main)


# -- with a real Dispatcher -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["graphs/", "jobs/", "results/", "operations/"])
def test_refused_write_of_any_kind_ends_the_leadership(tmp_path: Path, path: str) -> None:
    """And whoever leads next goes on with the job."""

    async def main(cluster: Cluster) -> None:
        first = await cluster.leader()
        before = cluster.runners[first].dispatcher
        job = cluster.job(1, 30.0, streaming=path == "operations/")
        if path in ("results/", "operations/"):
            await cluster.running(job)
        cluster.faults.writes.append((path, FencingError("epoch 1 is not 2")))
        if path == "operations/":
            with pytest.raises(NotLeadingError):
                await cluster.ask(lambda d: d.trigger_checkpoint(job.job_id, "t1"))
        elif path == "graphs/":
            with pytest.raises(NotLeadingError):
                await cluster.submit(job)
        elif path == "jobs/":
            await cluster.submit(job)

        await cluster.until(lambda: before._table.closed, seconds=60)
        assert not cluster.fatal
        first.crash()
        cluster.start_node()
        if path == "graphs/":
            await cluster.submit(job)
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(job.job_id) == [1]

    once(tmp_path, main)


def test_unexpected_error_of_a_task_is_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: Cluster) -> None:
        dispatcher = await cluster.dispatcher()

        async def bug() -> None:
            raise ZeroDivisionError("a bug of ours")

        monkeypatch.setattr(dispatcher, "_compare_with_store", bug)
        await cluster.until(lambda: bool(cluster.fatal), seconds=60)
        assert isinstance(cluster.fatal[0], ZeroDivisionError)

    once(tmp_path, main, fatal=True)


def test_revoked_leader_lets_go_and_its_jobs_run_on(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        job = cluster.job(1, 300.0)
        await cluster.running(job)
        first = await cluster.leader()
        before = len(cluster.world.effects)
        cluster.runners[first].on_revoke()
        await asyncio.sleep(60)
        assert cluster.world.live_runs(job.job_id)
        assert cluster.world.effects[before:] == []
        first.crash()
        cluster.start_node()
        assert (await cluster.result(job.job_id)).status is JobStatus.FINISHED
        assert cluster.numbers(job.job_id) == [1]

    once(tmp_path, main)
