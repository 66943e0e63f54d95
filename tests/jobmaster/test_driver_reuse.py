"""Drivers that go on to the next attempt: only after success, only without user code, and never ended for an old attempt."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, graph_of
from tests.jobmaster.local_attempts import Leader, leading, numbers, until
from tests.support.guards import certain

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptSpec, AttemptState
from firesteel.config import Configuration
from firesteel.driver import children
from firesteel.driver.children import IDLE_SECONDS, MOST_IDLE, MOST_TASKS, Child, Children
from firesteel.jobgraph.model import JobGraph, runs_user_code
from firesteel.jobmaster.executor import Presence
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.pool import DriverPool, DriverProcess


def plain(query: str = "SELECT id FROM range(3)") -> JobGraph:
    return graph_of(
        {"kind": "sql", "name": "a", "query": query},
        {"kind": "sink", "name": "o", "input": "a", "format": "noop", "mode": "overwrite"},
    )


class Seen:
    """The processes that a pool has given out, by attempt."""

    def __init__(self, pool: DriverPool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drivers: list[DriverProcess] = []
        real = pool.spawn

        def spawn(task: str, *args: Any, **more: Any) -> DriverProcess:
            found = real(task, *args, **more)
            if task == "attempt":
                self.drivers.append(found)
            return found

        monkeypatch.setattr(pool, "spawn", spawn)

    @property
    def pids(self) -> list[int]:
        return [d.process.pid for d in self.drivers]


async def finished(leader: Leader, graph: JobGraph, cluster: Cluster) -> AttemptId:
    attempt = await leader.start(graph, cluster.engine())
    assert (await leader.executor.wait(attempt)).state is AttemptState.FINISHED
    await leader.executor.tidied(attempt)
    return attempt


def with_leader(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    test: Callable[[Leader, Seen], Any],
) -> None:
    async def main() -> None:
        with DriverPool() as pool:
            seen = Seen(pool, monkeypatch)
            async with leading(cluster.configuration, tmp_path / "jobs", pool) as leader:
                await leader.executor.open()
                await test(leader, seen)

    asyncio.run(main())


@pytest.mark.spark
def test_driver_goes_on_to_the_next_attempt(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(leader: Leader, seen: Seen) -> None:
        # First, since the others wait for no longer than IDLE_SECONDS, which its job may take on a busy machine.
        with_code = await finished(leader, numbers(1, tmp_path / "o"), cluster)
        first = await finished(leader, plain(), cluster)
        second = await finished(leader, plain("SELECT 1 AS one"), cluster)
        third = await finished(leader, plain(), cluster)
        another, one, two, three = seen.pids
        assert one == two == three != another
        for attempt in (first, second, third, with_code):
            directory = leader.directory(attempt)
            assert directory.read_driver() is None or attempt == with_code
            assert await leader.executor.find(attempt) is Presence.ENDED
        assert not seen.drivers[0].process.alive
        # Nothing of a job is held on to: its directory could be on a disk that is to be unmounted.
        held = {os.readlink(f"/proc/{one}/fd/{fd}") for fd in os.listdir(f"/proc/{one}/fd")}
        assert not [f for f in held if str(tmp_path) in f]
        assert os.readlink(f"/proc/{one}/cwd") == "/"

    with_leader(cluster, tmp_path, monkeypatch, test)


@pytest.mark.slow
@pytest.mark.spark
def test_failed_or_cancelled_driver_is_not_kept(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(leader: Leader, seen: Seen) -> None:
        attempt = await leader.start(plain("SELECT raise_error('no')"), cluster.engine())
        assert (await leader.executor.wait(attempt)).state is AttemptState.FAILED
        assert not seen.drivers[0].process.alive
        long = plain("SELECT max(sha2(CAST(id AS STRING), 512)) FROM range(0, 10000000000, 1, 5000)")
        attempt = await leader.start(long, cluster.engine())
        await leader.runs(attempt)
        await leader.executor.cancel(attempt, guard=certain)
        assert (await leader.executor.wait(attempt)).state is AttemptState.CANCELED
        assert not seen.drivers[1].process.alive

    with_leader(cluster, tmp_path, monkeypatch, test)


@pytest.mark.slow
@pytest.mark.spark
def test_driver_that_went_on_is_not_ended_for_the_attempt_before(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(leader: Leader, seen: Seen) -> None:
        first = await finished(leader, plain(), cluster)
        long = plain("SELECT max(sha2(CAST(id AS STRING), 512)) FROM range(0, 10000000000, 1, 5000)")
        second = await leader.start(long, cluster.engine())
        await leader.runs(second)
        assert seen.pids[0] == seen.pids[1]
        await leader.executor.cancel(first, guard=certain)
        assert (await leader.executor.fence(first, guard=certain)).state is AttemptState.FINISHED
        await leader.executor.tidied(first)
        await leader.executor.forget(first, guard=certain)
        assert seen.drivers[1].process.alive
        assert (await leader.executor.fence(second, guard=certain)).state is AttemptState.CANCELED
        assert not seen.drivers[1].process.alive

    with_leader(cluster, tmp_path, monkeypatch, test)


@pytest.mark.slow
@pytest.mark.spark
def test_next_leader_notices_that_an_adopted_driver_is_done(cluster: Cluster, tmp_path: Path) -> None:
    """The driver of another node's zygote rings, and goes on to wait for an attempt; its process does not end."""

    async def main() -> None:
        with DriverPool() as pool:
            async with leading(cluster.configuration, tmp_path / "jobs", pool) as leader:
                attempt = await leader.start(plain("SELECT sum(id) FROM range(300000000)"), cluster.engine())
                await leader.runs(attempt)
                # Without a bell: what it would tell is noticed all the same.
                async with leading(cluster.configuration, tmp_path / "jobs") as heir:
                    driver = heir.directory(attempt).read_driver()
                    assert driver is not None
                    async with asyncio.timeout(60):
                        assert (await heir.executor.wait(attempt)).state is AttemptState.FINISHED
                        await heir.executor.tidied(attempt)
                    assert driver.alive

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.spark
def test_drivers_that_wait_end_with_their_zygote(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[ProcessIdentity] = []

    async def test(leader: Leader, seen: Seen) -> None:
        await finished(leader, plain(), cluster)
        kept.append(seen.drivers[0].process)
        assert kept[0].alive

    with_leader(cluster, tmp_path, monkeypatch, test)
    assert kept[0].wait(20)


@pytest.mark.slow
@pytest.mark.spark
def test_task_is_given_to_another_when_the_one_that_waited_was_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(leader: Leader, seen: Seen) -> None:
        await finished(leader, plain(), cluster)
        waiting = seen.drivers[0].process
        waiting.signal(signal.SIGKILL)

        async def gone() -> bool:
            return not waiting.alive

        await until(gone)
        await finished(leader, plain(), cluster)
        assert seen.pids[0] != seen.pids[1]

    with_leader(cluster, tmp_path, monkeypatch, test)


# -- the parts --------------------------------------------------------------------------------------------------------


def done(tmp_path: Path, configuration: Configuration) -> AttemptDirectory:
    directory = AttemptDirectory(tmp_path / "jobs" / new_job_id() / "attempts" / "1")
    directory.prepare(AttemptSpec(directory.attempt, plain(), None))
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert directory.take(me)
    directory.write_result(AttemptResult(AttemptState.FINISHED, ended_at=time.time()))
    return directory


def test_driver_stays_bound_when_somebody_is_about_to_end_it(configuration: Configuration, tmp_path: Path) -> None:
    """Whichever comes first, the mark or the driver's going on, one of the two sees the other."""
    directory = done(tmp_path, configuration)
    assert directory.let_go()
    assert directory.read_driver() is None
    for mark in ("dismissal", "cancel_request"):
        directory = done(tmp_path, configuration)
        getattr(directory, mark).touch()
        assert not directory.let_go()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (plain(), False),
        (graph_of({"kind": "script", "name": "s", "file": "/x.py"}), True),
        (
            graph_of(
                {"kind": "python", "name": "a", "function": "m:f"},
                {"kind": "sink", "name": "o", "input": "a", "format": "noop", "mode": "overwrite"},
            ),
            True,
        ),
        (
            graph_of(
                {"kind": "source", "name": "a", "format": "m:Source"},
                {"kind": "sink", "name": "o", "input": "a", "format": "noop", "mode": "overwrite"},
            ),
            True,
        ),
        (plain().model_copy(update={"settings": numbers(1, Path("/o")).settings}), True),
    ],
)
def test_what_counts_as_user_code(graph: JobGraph, expected: bool) -> None:
    assert runs_user_code(graph) is expected


class Line:
    """A socket that remembers."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.gone = self.closed = False

    def sendall(self, data: bytes) -> None:
        if self.gone:
            raise BrokenPipeError
        self.sent.append(data)

    def shutdown(self, _: int) -> None:
        self.closed = True


def kept(family: Children, pid: int, now: float = 0.0, tasks: int = 1) -> tuple[Child, Line]:
    line = Line()
    child = Child(pid, "then", line, task=pid, tasks=tasks)  # type: ignore[arg-type]
    family._by_pid[pid] = child
    assert family.rests(child, now) == pid
    return child, line


def test_who_waits_gets_the_next_task_and_the_last_one_to_wait_gets_it_first() -> None:
    family = Children(())
    (first, _), (second, line) = kept(family, 1), kept(family, 2)
    assert family.give(7, {"task": "x"}) is second
    assert (second.task, second.tasks, line.sent) == (7, 2, [b'{"task": "x"}\n'])
    assert family.give(8, {}) is first
    assert family.give(9, {}) is None


def test_one_that_cannot_be_reached_is_passed_over() -> None:
    family = Children(())
    first, _ = kept(family, 1)
    _, line = kept(family, 2)
    line.gone = True
    assert family.give(7, {}) is first
    family.lost_line(first)
    assert family.ended(1) is first
    assert family.ended(1) is None


def test_those_that_nobody_needs_are_sent_away() -> None:
    family = Children(())
    assert family.until_next_dismissal(0.0) is None
    first, _ = kept(family, 1, now=10.0)
    second, _ = kept(family, 2, now=12.0)
    assert family.until_next_dismissal(11.0) == IDLE_SECONDS - 1.0
    assert family.dismiss_idle(10.0 + IDLE_SECONDS) == [first]
    assert family.give(7, {}) is second


def test_a_driver_that_has_done_much_and_one_too_many_are_not_kept() -> None:
    family = Children(())
    _, line = kept(family, 1, tasks=MOST_TASKS)
    assert line.closed
    for pid in range(2, 2 + MOST_IDLE):
        kept(family, pid)
    _, line = kept(family, 99)
    assert line.closed


def test_code_of_users_has_no_line_to_the_zygote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could say that it is done, and be given the next one's attempt with all its secrets."""
    seen: list[Any] = []

    def live(line: object, _spawn: object, _inherited: object) -> None:
        os._exit(0 if line is None else 3)

    monkeypatch.setattr(children, "_live", live)
    family = Children(())
    for reusable, code in ((False, 0), (True, 3)):
        child = family.fork(1, {"reusable": reusable})
        _, status = os.waitpid(child.pid, 0)
        assert os.waitstatus_to_exitcode(status) == code
        assert (child.line is None) is not reusable
        seen.append(family.ended(child.pid))
        children.close(child.line)
    assert all(seen)
