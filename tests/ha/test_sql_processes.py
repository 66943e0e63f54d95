"""Nodes that are real processes: killed, and stopped past their lease."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from firesteel.errors import FencingError
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import DEADLINE, LONG_LEASE, Recorder

T = TypeVar("T")
CHILD = Path(__file__).with_name("ha_child.py")


class Child:
    def __init__(self, what: str, database: Path | str, lease: float, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), what, str(database), str(lease), *more], stdout=subprocess.PIPE, text=True
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self._lines.put(line)

    @property
    def has_spoken(self) -> bool:
        return not self._lines.empty()

    def line(self) -> str:
        """The next line, waiting for it."""
        return self._lines.get(timeout=DEADLINE).strip()

    def kill(self) -> list[str]:
        """End it without warning; returns what it had said by then and was not read."""
        self.process.kill()
        self.process.wait()
        self._reading.join()
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]


def wait_for(condition: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + DEADLINE
    while (found := condition()) is None:
        assert time.monotonic() < deadline, "did not come in time"
        time.sleep(0.01)
    return found


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "cluster.db"


@contextlib.contextmanager
def child(what: str, database: Path, *, lease: float) -> Iterator[Child]:
    made = Child(what, database, lease)
    try:
        yield made
    finally:
        made.kill()


@contextlib.asynccontextmanager
async def node(database: Path, *, lease: float) -> AsyncIterator[SqlHighAvailabilityServices]:
    services = await SqlHighAvailabilityServices.open(f"sqlite:///{database}", cluster_id="test", lease_duration=lease)
    try:
        yield services
    finally:
        await services.close()


def test_every_acknowledged_put_survives_kill_9(database: Path) -> None:
    with child("put", database, lease=LONG_LEASE) as putter:
        assert putter.line() == "granted 1"
        acknowledged: list[str] = []
        while len(acknowledged) < 300:
            word, path = putter.line().split()
            assert word == "ack"
            acknowledged.append(path)
        # The last line may have been cut off by the kill; an acknowledgement is a whole one.
        acknowledged += [line.split()[1] for line in putter.kill() if line.endswith("\n")]

    async def check() -> None:
        async with node(database, lease=LONG_LEASE) as services:
            stored = await services.store.list("acks")
            assert set(acknowledged) <= set(stored)
            assert all(value.value == path.encode() * 50 for path, value in stored.items())

    asyncio.run(check())


def test_leader_whose_process_is_gone_from_this_host_is_replaced_at_once(database: Path) -> None:
    with child("lead", database, lease=LONG_LEASE) as old:
        assert old.line() == "granted 1"
        old.kill()

    async def check() -> None:
        async with node(database, lease=LONG_LEASE) as services:
            listener = Recorder()
            began = time.monotonic()
            await services.election("heir").start(listener)
            assert await listener.granted() == 2
            assert time.monotonic() - began < LONG_LEASE / 2
            with pytest.raises(FencingError):
                await services.store.put("a", b"", epoch=Epoch(1))

    asyncio.run(check())


@pytest.mark.slow
def test_leader_that_was_stopped_past_its_lease_is_revoked_and_refused_when_it_goes_on(database: Path) -> None:
    with child("lead", database, lease=4.0) as old:
        assert old.line() == "granted 1"
        old.process.send_signal(signal.SIGSTOP)

        async def check() -> None:
            async with node(database, lease=4.0) as services:
                listener = Recorder()
                began = time.monotonic()
                await services.election("heir").start(listener)
                assert await listener.granted() == 2
                assert time.monotonic() - began >= 4.0  # it is alive, so its lease is waited out
                old.process.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(old.line) == "revoked and knows it"
                assert await asyncio.to_thread(old.line) == "fenced"
                assert await services.store.get("stale") is None
                assert listener.events == ["grant"]

        asyncio.run(check())


@pytest.mark.slow
def test_stopped_leader_that_nobody_replaced_leads_anew_with_another_epoch(database: Path) -> None:
    """Its old epoch is not trusted again: somebody may have led in between, for all it knows."""
    with child("lead", database, lease=3.0) as old:
        assert old.line() == "granted 1"
        old.process.send_signal(signal.SIGSTOP)
        time.sleep(3.5)  # the lease itself: nothing can be waited for in a process that is stopped
        old.process.send_signal(signal.SIGCONT)
        assert old.line() == "revoked and knows it"
        assert old.line() == "granted 2"


def test_many_processes_open_a_new_database_at_once(database: Path) -> None:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child("lead", database, lease=LONG_LEASE)) for _ in range(3)]
        epochs = []
        while children:  # each that leads is killed, and so makes room for the next

            def one_has_spoken() -> Child | None:
                return next((c for c in children if c.has_spoken), None)

            leader = wait_for(one_has_spoken)
            word, epoch = leader.line().split()
            assert word == "granted"
            epochs.append(epoch)
            leader.kill()
            children.remove(leader)
        assert epochs == ["1", "2", "3"]
