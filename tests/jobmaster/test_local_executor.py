"""Attempts that outlive the control plane: started, found again, ended; with processes in place of Spark."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster
from tests.jobmaster.local_attempts import (
    dead,
    fake_engine,
    leading,
    locked,
    numbers,
    prepared,
    still_waits,
    stream,
    taken,
)
from tests.support.guards import certain
from tests.support.sleeper import sleeper

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.attempts.bell import ring
from firesteel.attempts.claim import NOT_MINE, claimed
from firesteel.config import Configuration
from firesteel.errors import EngineLostError, FencingError, FiresteelError
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster.executor import AttemptExecutor, Deployment, Presence
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.executor import LocalAttemptExecutor


def conforms(executor: LocalAttemptExecutor) -> AttemptExecutor:
    return executor


def test_what_is_found_of_an_attempt(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path / "jobs") as leader:
            find = leader.executor.find
            assert await find(AttemptId(new_job_id(), 3)) is Presence.ABSENT
            assert not (tmp_path / "jobs").exists()
            graph = numbers(1, tmp_path / "o")
            intended = prepared(leader, graph, None)
            assert await find(intended) is Presence.ABSENT
            # A driver that has taken the attempt, and has not said so yet.
            with locked(leader.directory(intended)):
                assert await find(intended) is Presence.RUNNING
            assert await find(intended) is Presence.ABSENT
            died = prepared(leader, graph, None)
            taken(leader, died, dead())
            assert await find(died) is Presence.RUNNING
            assert (await leader.executor.wait(died)).state is AttemptState.FAILED
            assert await find(died) is Presence.ENDED

    asyncio.run(main())


def test_find_waits_for_a_driver_that_is_about_to_take_the_attempt(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.worker.executor.FIND_SECONDS", 20)

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            finding = asyncio.create_task(leader.executor.find(attempt))
            assert await still_waits(finding)
            taken(leader, attempt, dead())
            assert await finding is Presence.RUNNING

    asyncio.run(main())


def test_fence_of_an_attempt_that_never_began_spends_its_id(configuration: Configuration, tmp_path: Path) -> None:
    """Without a zygote and without an engine: nothing can have been made there."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            with sleeper() as engine:
                attempt = prepared(leader, numbers(1, tmp_path / "o"), fake_engine(engine))
                result = await leader.executor.fence(attempt, guard=certain)
                assert (result.state, result.note) == (AttemptState.CANCELED, "called off before it started")
                assert await leader.executor.fence(attempt, guard=certain) == result
                await leader.executor.start(Deployment(attempt, numbers(1, tmp_path / "o"), fake_engine(engine)))
                assert await leader.executor.wait(attempt) == result
                assert not leader.executor._processes.warm
                absent = AttemptId(new_job_id(), 1)
                assert (await leader.executor.fence(absent, guard=certain)).state is AttemptState.CANCELED

    asyncio.run(main())


@pytest.mark.slow
def test_fence_says_when_the_engine_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    """As long as the session may run, the attempt has no result; when the engine is gone, it has."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, sleeper() as engine:
            async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
                record = fake_engine(engine, silent.getsockname()[1])
                attempt = prepared(leader, numbers(1, tmp_path / "o"), record)
                taken(leader, attempt, dead())
                began = time.monotonic()
                with pytest.raises(EngineLostError, match="engine fake at localhost"):
                    await leader.executor.fence(attempt, guard=certain)
                assert time.monotonic() - began < 60
                assert leader.directory(attempt).read_result() is None
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                assert await still_waits(waiting)
                engine.signal(signal.SIGKILL)
                assert engine.wait(20)
                result = await leader.executor.fence(attempt, guard=certain)
                assert result.state is AttemptState.CANCELED
                async with asyncio.timeout(20):
                    assert await waiting == result

    asyncio.run(main())


@pytest.mark.slow
def test_fence_does_not_trust_a_failed_driver_to_have_released_its_session(cluster: Cluster, tmp_path: Path) -> None:
    """It failed because its engine did not answer: its session may run again when the engine does."""
    failed = AttemptResult(AttemptState.FAILED, Failure(FailureKind.ENGINE_LOST, "no answer"), 1.0)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, sleeper() as engine:
            async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
                record = fake_engine(engine, silent.getsockname()[1])
                attempt = prepared(leader, numbers(1, tmp_path / "o"), record)
                taken(leader, attempt, dead())
                leader.directory(attempt).write_result(failed)
                assert await leader.executor.wait(attempt) == failed
                with pytest.raises(EngineLostError):
                    await leader.executor.fence(attempt, guard=certain)
                leader.directory(attempt).released.touch()
                assert await leader.executor.fence(attempt, guard=certain) == failed

    asyncio.run(main())


def test_fence_kills_a_driver_whose_lock_is_gone(configuration: Configuration, tmp_path: Path) -> None:
    """User code may close every descriptor of its process, and the lock with them."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            with sleeper() as driver:
                attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
                taken(leader, attempt, driver)
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED
                assert driver.wait(5)
                assert (await waiting).state is AttemptState.CANCELED

    asyncio.run(main())


def test_leader_that_is_held_up_while_it_ends_the_work_does_not_hold_the_attempt(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4, I7: a leader that is stopped while it waits for an engine keeps nobody else from fencing the attempt."""
    at_work, go_on = threading.Event(), threading.Event()

    def held_up(*_: Any, **__: Any) -> None:
        at_work.set()
        assert go_on.wait(60)

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader, leading(configuration, tmp_path) as following:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            taken(leader, attempt, dead())
            monkeypatch.setattr(leader.executor._settling, "_release", held_up)
            fencing = asyncio.create_task(leader.executor.fence(attempt, guard=certain))
            assert await asyncio.to_thread(at_work.wait, 60)
            with locked(leader.directory(attempt)):
                pass  # another process can have it
            result = await following.executor.fence(attempt, guard=certain)
            assert result.state is AttemptState.CANCELED
            go_on.set()
            assert await fencing == result

    asyncio.run(main())


def test_attempt_that_is_held_and_not_let_go_cannot_be_fenced(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firesteel.worker.settling.CLAIM_SECONDS", 0.5)

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            with locked(leader.directory(attempt)) as pid, pytest.raises(FiresteelError, match=f"process {pid},"):
                await leader.executor.fence(attempt, guard=certain)
            assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED

    asyncio.run(main())


@pytest.mark.slow
def test_checkpoint_waits_for_the_batch_in_flight(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path / "jobs") as leader:
            with sleeper() as driver:
                attempt = prepared(leader, stream(tmp_path, files=0), None, checkpoints=str(tmp_path / "c"))
                taken(leader, attempt, driver)
                assert await leader.executor.checkpoint(attempt) == {"o": -1}
                for kind, last in (("offsets", 11), ("commits", 9)):
                    (tmp_path / "c" / "o" / kind).mkdir(parents=True)
                    for n in range(last + 1):
                        (tmp_path / "c" / "o" / kind / str(n)).touch()
                        (tmp_path / "c" / "o" / kind / f".{n}.crc").touch()
                asking = asyncio.create_task(leader.executor.checkpoint(attempt))
                assert await still_waits(asking)
                (tmp_path / "c" / "o" / "commits" / "10").touch()
                assert await still_waits(asking)
                (tmp_path / "c" / "o" / "commits" / "11").touch()
                (tmp_path / "c" / "o" / "offsets" / "12").touch()
                assert await asking == {"o": 11}
                asking = asyncio.create_task(leader.executor.checkpoint(attempt))
                driver.signal(signal.SIGKILL)
                assert driver.wait(20)
                with pytest.raises(FiresteelError, match="ended before its current batch"):
                    await asking

    asyncio.run(main())


def test_forgotten_attempt_keeps_its_logs_and_no_secret(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            secret = dataclasses.replace(fake_engine(None), token="do-not-tell")
            attempt = prepared(leader, numbers(1, tmp_path / "o"), secret)
            directory = leader.directory(attempt)
            await leader.executor.stop(attempt)
            for file in (directory.stdout, directory.stderr, directory.events):
                file.write_text("")
            (directory.root / "jvm-1").mkdir()
            await leader.executor.forget(attempt, guard=certain)
            assert (await leader.executor.wait(attempt)).state is AttemptState.CANCELED
            await leader.executor.forget(attempt, guard=certain)
            await leader.executor.forget(AttemptId(new_job_id(), 1), guard=certain)
            assert {f.name for f in directory.root.iterdir()} == {"output", "result.json"}
            assert {f.name for f in directory.output.iterdir()} == {"stdout.log", "stderr.log", "events.jsonl"}
            assert await leader.executor.find(attempt) is Presence.ENDED
            await leader.executor.start(Deployment(attempt, numbers(1, tmp_path / "o"), secret))
            assert not directory.spec.exists()

    asyncio.run(main())


def test_leader_that_leads_no_more_forgets_nothing(configuration: Configuration, tmp_path: Path) -> None:
    """I7: whoever leads by now may still need the files, and may run the attempt."""

    def refused() -> None:
        raise FencingError("another one leads")

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), fake_engine(None))
            directory = leader.directory(attempt)
            before = {f.name for f in directory.root.iterdir()}
            with pytest.raises(FencingError):
                await leader.executor.forget(attempt, guard=refused)
            assert {f.name for f in directory.root.iterdir()} == before
            assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED
            with pytest.raises(FencingError):
                await leader.executor.forget(attempt, guard=refused)
            assert directory.spec.exists()

    asyncio.run(main())


def test_attempt_that_cannot_be_started_says_why_and_can_be_fenced(
    configuration: Configuration, tmp_path: Path
) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = AttemptId(new_job_id(), 1)
            deployment = Deployment(attempt, numbers(1, tmp_path / "o"), fake_engine(None))
            leader.executor._processes.python = str(tmp_path / "no-python")
            with pytest.raises(FiresteelError, match="no-python"):
                await leader.executor.start(deployment)
            assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED

    asyncio.run(main())


def test_driver_that_yields_leaves_the_result_to_the_one_that_has_the_attempt(cluster: Cluster, tmp_path: Path) -> None:
    """Our driver finds the attempt taken; we wait for the one that has it."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            directory = leader.directory(attempt)
            finished = AttemptResult(AttemptState.FINISHED, ended_at=1.0)
            with sleeper() as other, locked(directory):
                taken(leader, attempt, other)
                args = {"directory": str(directory.root)}
                made = cluster.pool.spawn(
                    "attempt", args, stdout=directory.stdout, stderr=directory.stderr, cwd=tmp_path
                )
                leader.executor._processes.drivers[attempt] = made
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                exited = await asyncio.to_thread(made.exited.result, 30)
                assert exited.status == NOT_MINE
                assert await still_waits(waiting)
                directory.write_result(finished)
            async with asyncio.timeout(10):
                assert await waiting == finished
            assert leader.executor._processes.drivers == {}

    asyncio.run(main())


def test_finished_attempt_is_told_before_its_driver_has_tidied_up(cluster: Cluster, tmp_path: Path) -> None:
    """The driver rings when its result is written. What it does after that, others need not wait for; `forget` does."""

    async def main() -> None:
        async with leading(cluster.configuration, tmp_path, cluster.pool) as leader:
            await leader.executor.open()
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            directory = leader.directory(attempt)
            finished = AttemptResult(AttemptState.FINISHED, ended_at=1.0)
            with sleeper() as driver:
                taken(leader, attempt, driver)
                waiting = asyncio.create_task(leader.executor.wait(attempt))
                assert await still_waits(waiting)
                directory.write_result(finished)
                ring(directory.jobs, directory.attempt)
                async with asyncio.timeout(10):
                    assert await waiting == finished
                assert driver.alive
                forgetting = asyncio.create_task(leader.executor.forget(attempt, guard=certain))
                assert await still_waits(forgetting)
            async with asyncio.timeout(10):
                await forgetting
            assert not directory.spec.exists()

    asyncio.run(main())


def test_driver_is_let_go_of_off_the_event_loop_and_not_by_a_node_that_closes(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classic one has a JVM, whose end may have to be waited for; and when the node closes, all of it runs on."""
    dismissed: list[str] = []

    def fails(*_: Any) -> None:
        raise OSError("no space left")

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            executor = leader.executor
            monkeypatch.setattr(executor._settling, "settle", fails)
            monkeypatch.setattr(
                executor._processes, "dismiss", lambda *_: dismissed.append(threading.current_thread().name)
            )
            await executor._tidy(AttemptId(new_job_id(), 1), dead())
            assert [name.startswith("attempts") for name in dismissed] == [True]
            with sleeper() as driver:
                tidying = asyncio.create_task(executor._tidy(AttemptId(new_job_id(), 1), driver))
                await asyncio.sleep(0)
                tidying.cancel()
                await asyncio.wait([tidying])
            assert len(dismissed) == 1

    asyncio.run(main())


def test_bell_of_a_node_that_is_gone_is_removed(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            jobs = leader.directory(AttemptId(new_job_id(), 1)).jobs
            jobs.mkdir(parents=True, exist_ok=True)
            stale = jobs / ".bells" / "4194303"
            stale.parent.mkdir()
            stale.touch()
            await leader.executor.open()
            assert not stale.exists()
            assert [p.name for p in stale.parent.iterdir()] == [str(os.getpid())]
        assert list(stale.parent.iterdir()) == []

    asyncio.run(main())


def test_a_running_attempt_costs_little(configuration: Configuration, tmp_path: Path) -> None:
    count = 50

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            with sleeper() as driver:
                attempts = [prepared(leader, numbers(1, tmp_path / "o"), None) for _ in range(count)]
                for attempt in attempts:
                    taken(leader, attempt, driver)
                    leader.directory(attempt).events.write_text('{"t": 1, "type": "phase", "phase": "running"}\n' * 100)
                await leader.executor.progress(attempts[0])
                threads = leader.executor._threads._threads
                tracemalloc.start()
                before, _ = tracemalloc.get_traced_memory()
                waiting = [asyncio.create_task(leader.executor.wait(a)) for a in attempts]
                for attempt in attempts:
                    await leader.executor.progress(attempt)
                after, _ = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert (after - before) / count < 30_000
                assert len(threads) <= 16
                driver.signal(signal.SIGKILL)
                assert driver.wait(20)
                results = await asyncio.gather(*waiting)
                assert {r.state for r in results} == {AttemptState.FAILED}

    asyncio.run(main())


def test_lock_file_is_not_needed_to_tell_that_an_attempt_is_over(configuration: Configuration, tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            with claimed(leader.directory(attempt).root) as mine:
                assert mine
            assert await leader.executor.find(attempt) is Presence.ABSENT
            assert conforms(leader.executor) is leader.executor

    asyncio.run(main())
