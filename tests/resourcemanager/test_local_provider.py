"""LocalEngineProvider without Spark: what is left behind when calls are cancelled, and how engines are judged."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.guards import certain

from firesteel.engines import launcher
from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.errors import EngineLostError, EngineStartError, EnvironmentNotReadyError
from firesteel.ports import unused_port
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.worker.engines import STOPPING, LocalEngineProvider

X = EngineSpec("local[1]")

SERVER = """
import socket, sys, time
server = socket.socket()
server.bind(("localhost", int(sys.argv[1])))
server.listen()
print("up", flush=True)
time.sleep(600)
"""


class Engines:
    """Processes that listen on a port, in place of Spark."""

    def __init__(self, directory: EngineDirectory) -> None:
        self.directory = directory
        self.children: list[subprocess.Popen[str]] = []

    def start(self, directory: EngineDirectory, spec: EngineSpec, *_: Any, **__: Any) -> EngineRecord:
        port = unused_port()
        child = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        record = EngineRecord(
            f"e{len(self.children)}",
            spec,
            "localhost",
            port,
            process=ProcessIdentity.of(child.pid),
            started_at=time.time(),
        )
        directory.save(record)
        return record

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    made = Engines(EngineDirectory(tmp_path))
    monkeypatch.setattr(launcher, "start_engine", made.start)
    yield made
    made.close()


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LocalEngineProvider]:
    options = LaunchOptions(tmp_path / "cache", stop_timeout=5, start_timeout=1)
    made = LocalEngineProvider(EngineDirectory(tmp_path), options, patience=0.3)
    yield made
    asyncio.run(made.close())


def test_engine_is_started_found_and_stopped(engines: Engines, provider: LocalEngineProvider) -> None:
    async def scene() -> None:
        record = await provider.start(X)
        assert await provider.existing() == [record]
        assert await provider.health(record) is EngineHealth.WELL
        assert await provider.adopt(record) == record
        await provider.stop(record, guard=certain)
        assert await provider.health(record) is EngineHealth.GONE
        assert await provider.existing() == []
        await provider.stop(record, guard=certain)  # once more is harmless

        assert record.process is not None
        assert not record.process.alive

    asyncio.run(scene())


def test_start_that_is_cancelled_while_it_launches_leaves_an_engine_that_is_found(
    engines: Engines, provider: LocalEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine appears after the cancelled call has ended, and none is orphaned."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(*args: Any, **more: Any) -> EngineRecord:
        entered.set()
        assert go_on.wait(10)
        return engines.start(*args, **more)

    monkeypatch.setattr(launcher, "start_engine", slow)

    async def scene() -> None:
        starting = asyncio.create_task(provider.start(X))
        await asyncio.to_thread(entered.wait, 10)
        for _ in range(2):  # as a ResourceManager does that halts, and is closed then
            starting.cancel()
            done, _ = await asyncio.wait({starting}, timeout=0.05)
            assert not done
        go_on.set()
        await asyncio.wait({starting})
        assert starting.cancelled()
        [left] = await provider.existing()
        assert await provider.adopt(left) == left

    asyncio.run(scene())


def test_start_that_is_cancelled_while_it_waits_does_not_end_the_engine(
    engines: Engines, provider: LocalEngineProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def closed(_: EngineRecord) -> bool:
        looked.set()
        return False

    monkeypatch.setattr(launcher, "port_open", closed)

    async def scene() -> None:
        starting = asyncio.create_task(provider.start(X))
        await asyncio.to_thread(looked.wait, 10)
        starting.cancel()
        await asyncio.wait({starting})
        await provider.close()

    asyncio.run(scene())
    # Longer than engine.start-timeout, after which whoever waited would have ended it.
    with pytest.raises(subprocess.TimeoutExpired):
        engines.children[0].wait(1.3)


def test_engine_that_is_gone_while_it_starts_is_an_error_with_its_log(
    engines: Engines, provider: LocalEngineProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def dying(*args: Any, **more: Any) -> EngineRecord:
        record = engines.start(*args, **more)
        EngineDirectory(tmp_path).log(record.engine_id).write_text("out of luck\n")
        engines.children[0].kill()
        engines.children[0].wait()
        return record

    monkeypatch.setattr(launcher, "start_engine", dying)
    with pytest.raises(EngineStartError, match="out of luck"):
        asyncio.run(provider.start(X))


def test_machine_without_java_is_told_so_and_nothing_is_left(tmp_path: Path) -> None:
    options = LaunchOptions(tmp_path, java_home=tmp_path / "no-java")
    made = LocalEngineProvider(EngineDirectory(tmp_path), options)
    with pytest.raises(EnvironmentNotReadyError, match="no-java"):
        asyncio.run(made.start(X))
    assert list((tmp_path / "engines").iterdir()) == []
    asyncio.run(made.close())


def test_engine_that_was_told_to_end_is_gone_for_everybody(
    engines: Engines, provider: LocalEngineProvider, tmp_path: Path
) -> None:
    """It answers still, but its last leader told it to end; the next one must put no job on it."""
    record = engines.start(EngineDirectory(tmp_path), X)
    (tmp_path / "engines" / record.engine_id / STOPPING).touch()

    async def scene() -> None:
        assert await provider.existing() == [record]
        with pytest.raises(EngineLostError):
            await provider.adopt(record)
        await provider.stop(record, force=True, guard=certain)
        assert await provider.existing() == []

    asyncio.run(scene())
    assert record.process is not None
    assert not record.process.alive


def test_engine_whose_starter_died_before_it_noted_the_process_is_adopted(
    engines: Engines, provider: LocalEngineProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTEEL_ENGINE_ID", "e1")  # how an engine's process is told from one that has its pid later
    directory = EngineDirectory(tmp_path)
    record = engines.start(directory, X)
    process = record.process
    assert process is not None
    directory.save(dataclasses.replace(record, process=None))

    async def scene() -> None:
        [found] = await provider.existing()
        assert found.process is None
        adopting = asyncio.create_task(provider.adopt(found))
        await asyncio.wait({adopting}, timeout=0.05)
        assert not adopting.done()
        (directory.home("e1") / "pid").write_text(str(process.pid))
        assert (await asyncio.wait_for(adopting, 5)).process == process

    asyncio.run(scene())


def test_adopted_engine_that_never_answers_is_lost(
    engines: Engines, provider: LocalEngineProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = dataclasses.replace(engines.start(EngineDirectory(tmp_path), X), started_at=0.0)
    monkeypatch.setattr(launcher, "port_open", lambda _: False)
    with pytest.raises(EngineLostError, match="does not answer"):
        asyncio.run(provider.adopt(record))


def test_adopted_engine_that_ended_is_lost_at_once(engines: Engines, tmp_path: Path) -> None:
    record = engines.start(EngineDirectory(tmp_path), X)
    engines.children[0].kill()
    engines.children[0].wait()
    patient = LocalEngineProvider(EngineDirectory(tmp_path), LaunchOptions(tmp_path), patience=600)
    with pytest.raises(EngineLostError, match="is gone"):
        asyncio.run(asyncio.wait_for(patient.adopt(record), 5))
    asyncio.run(patient.close())


def test_nothing_answers_where_it_is_to_be_attached(provider: LocalEngineProvider) -> None:
    with pytest.raises(EngineStartError, match=rf"sc://localhost:{(port := unused_port())}; start"):
        asyncio.run(provider.start(EngineSpec(f"sc://localhost:{port}")))


def test_users_engines_are_listed_apart_and_only_those(engines: Engines, tmp_path: Path) -> None:
    users = EngineDirectory(tmp_path / "users")
    mine = engines.start(users, X)
    shared = dataclasses.replace(engines.start(users, X), shared=True)
    users.save(shared)
    made = LocalEngineProvider(EngineDirectory(tmp_path), LaunchOptions(tmp_path), shared=users)

    async def scene() -> None:
        assert await made.shared() == [shared]
        assert await made.existing() == []
        assert await made.health(shared) is EngineHealth.WELL
        with pytest.raises(AssertionError):
            await made.stop(shared, guard=certain)

    asyncio.run(scene())
    assert mine.process is not None
    assert mine.process.alive
    assert os.path.isdir(tmp_path / "users" / "engines" / shared.engine_id)
    asyncio.run(made.close())


def test_engine_of_another_host_is_neither_adopted_nor_taken_for_gone(engines: Engines, tmp_path: Path) -> None:
    """Two hosts that share a data directory: an engine whose process is not seen here may well work there."""
    mine, others = engines.start(engines.directory, X), engines.start(engines.directory, X)
    home = engines.directory.home(others.engine_id)
    (home / "host").write_text("other-host/m2/b2")

    async def found() -> list[str]:
        provider = LocalEngineProvider(engines.directory, LaunchOptions(cache_dir=tmp_path))
        try:
            return [r.engine_id for r in await provider.existing()]
        finally:
            await provider.close()

    assert asyncio.run(found()) == [mine.engine_id]
    assert home.is_dir()


def test_engine_is_there_for_as_long_as_its_process_and_nobody_has_told_it_to_end(
    engines: Engines, tmp_path: Path
) -> None:
    told, ended, well = (engines.start(engines.directory, X) for _ in range(3))
    (engines.directory.home(told.engine_id) / STOPPING).touch()
    engines.children[1].kill()
    engines.children[1].wait()

    async def seen() -> list[bool]:
        provider = LocalEngineProvider(engines.directory, LaunchOptions(cache_dir=tmp_path))
        try:
            return [await provider.there(r) for r in (told, ended, well, dataclasses.replace(well, process=None))]
        finally:
            await provider.close()

    assert asyncio.run(seen()) == [False, False, True, False]
