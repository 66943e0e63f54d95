"""Files of an attempt that code of its job has forged: what the node does about them, to whom, and what it reads (S21, S44)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.jobmaster.local_attempts import dead, fake_engine, leading, locked, numbers, prepared, taken
from tests.support.guards import call, certain
from tests.support.marks import samples
from tests.support.sleeper import sleeper

from firesteel.attempts.attempt import AttemptDirectory, AttemptState, EventTail
from firesteel.config import Configuration
from firesteel.errors import FiresteelError
from firesteel.fs.files import LARGEST_FOREIGN_JSON
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, SparkIds, new_job_id
from firesteel.worker.endings import result_of
from firesteel.worker.pool import DriverProcess

CANARY = "fst_a-token-of-the-node"
IDS = SparkIds(AttemptId(new_job_id(), 1), "alice", "s")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.worker.settling.CLAIM_SECONDS", 0.5)
    monkeypatch.setattr("firesteel.worker.executor.CANCEL_SECONDS", 1.0)


def of(pid: int) -> ProcessIdentity:
    process = ProcessIdentity.of(pid)
    assert process is not None
    return process


@pytest.mark.parametrize("asked", samples(["cancel", "fence", "stop"]))
def test_stranger_that_the_file_of_a_driver_names_gets_no_signal(
    configuration: Configuration, tmp_path: Path, asked: str
) -> None:
    """The driver was forked here, so who it is is known; and it is ended, also when it has let go of its lock."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            for held in (True, False):
                attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
                directory = leader.directory(attempt)
                with sleeper() as stranger, sleeper() as unheld, locked(directory) as holder:
                    driver = of(holder) if held else unheld
                    if not held:
                        (directory.root / "driver.lock").unlink()
                    leader.executor._processes.drivers[attempt] = DriverProcess(driver)
                    taken(leader, attempt, stranger)
                    waiting = asyncio.create_task(leader.executor.wait(attempt))
                    await call(leader.executor, asked, attempt)
                    # SIGUSR1 ends a process that does not handle it: this is how it is seen to have come.
                    assert await asyncio.to_thread(driver.wait, 20)
                    ended = AttemptState.FAILED if asked == "stop" else AttemptState.CANCELED
                    assert (await waiting).state is ended
                    # All that may follow, also when nobody holds a handle of the driver any more.
                    await leader.executor.cancel(attempt, guard=certain)
                    assert (await leader.executor.fence(attempt, guard=certain)).state is ended
                    await leader.executor.forget(attempt, guard=certain)
                    assert stranger.alive

    asyncio.run(main())


@pytest.mark.parametrize("asked", ["cancel", "fence", "stop"])
def test_stranger_that_the_file_of_an_adopted_driver_names_gets_no_signal(
    configuration: Configuration, tmp_path: Path, asked: str
) -> None:
    """Who holds the attempt is known to the kernel, and it is another."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            with sleeper() as stranger, locked(leader.directory(attempt)) as holder:
                taken(leader, attempt, stranger)
                if asked == "fence":
                    with pytest.raises(FiresteelError, match=f"locked by process {holder},"):
                        await leader.executor.fence(attempt, guard=certain)
                else:
                    await call(leader.executor, asked, attempt)
                assert of(holder).alive
                taken(leader, attempt, of(holder))
                assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED
                assert stranger.alive

    asyncio.run(main())


def test_result_of_a_job_that_was_cancelled_is_the_nodes(configuration: Configuration, tmp_path: Path) -> None:
    """What a program that its driver has started writes afterwards changes nothing."""

    async def main() -> None:
        async with leading(configuration, tmp_path) as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
            directory = leader.directory(attempt)
            taken(leader, attempt, dead())
            cancelled = await leader.executor.fence(attempt, guard=certain)
            assert cancelled.state is AttemptState.CANCELED
            directory.result.write_text('{"state": "FINISHED", "ended_at": 1.0}')
            assert await leader.executor.wait(attempt) == cancelled

    asyncio.run(main())


def test_node_writes_nothing_where_a_job_could_have_put_a_link(configuration: Configuration, tmp_path: Path) -> None:
    """S4, S44: every file that the node writes of an attempt, and every mark, is out of the job's reach."""
    engine = fake_engine(dead())

    async def main() -> None:
        async with leading(configuration, tmp_path / "jobs") as leader:
            attempt = prepared(leader, numbers(1, tmp_path / "o"), engine)
            taken(leader, attempt, dead())
            before = set(leader.directory(attempt).output.iterdir())
            leader.directory(attempt).released.touch()
            await leader.executor.stop(attempt)
            assert (await leader.executor.fence(attempt, guard=certain)).state is AttemptState.CANCELED
            assert set(leader.directory(attempt).output.iterdir()) == before
            await leader.executor.forget(attempt, guard=certain)
            assert set(leader.directory(attempt).output.iterdir()) == before

    asyncio.run(main())


READERS: dict[str, tuple[str, Callable[[AttemptDirectory], Any]]] = {
    "failure": ("stderr.log", lambda d: result_of(d, dead(), None).to_json()),
    "events": ("events.jsonl", lambda d: EventTail(d.events).new()),
    "events before": ("events.1.jsonl", lambda d: EventTail(d.events).new()),
    "result": ("result.json", lambda d: d.read_result()),
    "operators": ("operators.json", lambda d: d.read_operators()),
    "sessions": ("sessions.txt", lambda d: d.session_ids(IDS)),
}


@pytest.mark.parametrize("reader", READERS)
def test_link_in_the_place_of_what_a_driver_writes_is_not_followed(tmp_path: Path, reader: str) -> None:
    """S4: the node would read for the job what the job may not, and show it."""
    secret = tmp_path / "secret"
    secret.write_text(f'{{"state": "FINISHED", "ended_at": 1.0, "note": "{CANARY}"}}\n')
    directory = AttemptDirectory(tmp_path / "attempt")
    directory.output.mkdir(parents=True)
    file, read = READERS[reader]
    (directory.output / file).symlink_to(secret)
    answer = str(read(directory))
    assert CANARY not in answer
    assert "FINISHED" not in answer
    assert CANARY in secret.read_text()


def test_result_that_is_too_large_to_be_held_is_none(tmp_path: Path) -> None:
    directory = AttemptDirectory(tmp_path)
    directory.output.mkdir()
    with directory.result.open("wb") as file:
        os.truncate(file.fileno(), LARGEST_FOREIGN_JSON + 1)
    assert directory.read_result() is None


def test_program_names_no_sessions_but_its_own(tmp_path: Path) -> None:
    """S41: what is ended for it are sessions of this attempt, whatever the file says."""
    directory = AttemptDirectory(tmp_path)
    directory.output.mkdir()
    directory.note_session(IDS.further_session_id(2))
    directory.note_session("x;user_id=bob;session_id=1")
    assert directory.session_ids(IDS) == [IDS.session_id, IDS.further_session_id(2), IDS.further_session_id(3)]
