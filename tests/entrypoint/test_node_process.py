"""`python -m firesteel.entrypoint` as a process: how it begins, and the exit code that it ends with."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.small_disk import small_disk
from tests.support.marks import samples

from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.ports import unused_port
from firesteel.processes import ProcessIdentity

DEADLINE = 30.0


class NodeProcess:
    def __init__(self, directory: Path, *definitions: str, name: str = "node", **more: Any) -> None:
        self.directory = directory
        self._log = directory / f"{name}.log"
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("FIRESTEEL_", "XDG_"))}
        arguments = [a for d in definitions for a in ("-D", d)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firesteel.entrypoint", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**environ, "HOME": str(directory)},
                **more,
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def children(self) -> list[int]:
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(p) for t in threads for p in t.read_text().split()]

    def until(self, condition: Callable[[], bool], what: str, *, ended: bool = False) -> None:
        """`ended`: it need not be alive any more."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if (self.process.poll() is not None and not ended) or time.monotonic() > deadline:
                pytest.fail(f"no {what}; exit code {self.process.poll()}:\n{self.said}")
            time.sleep(0.02)

    def until_said(self, words: str, *, ended: bool = False) -> None:
        self.until(lambda: words in self.said, words, ended=ended)

    def exit_code(self) -> int:
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


Start = Callable[..., NodeProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(*definitions: str, directory: Path = tmp_path, **more: Any) -> NodeProcess:
            node = NodeProcess(directory, f"data.dir={directory / 'data'}", "rest.port=0", *definitions, **more)
            stack.callback(node.close)
            return node

        yield begin


def leadership(database: Path) -> tuple[int, str]:
    """(epoch, holder), as another program reads it."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        epoch, holder = connection.execute("SELECT epoch, holder FROM firesteel_leadership").fetchone()
    return int(epoch), str(holder)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", samples([signal.SIGTERM, signal.SIGINT]))
def test_signal_ends_it_well(tmp_path: Path, start: Start, number: signal.Signals) -> None:
    node = start()
    node.until_said("dispatcher of epoch 1 leads")
    database = tmp_path / "data" / "cluster.db"
    epoch, holder = leadership(database)
    assert epoch == 1
    assert f":{node.process.pid}/" in holder
    children = node.children
    assert children, "the parent of its drivers"
    assert node.said.count(" firesteel.worker.sandboxing: ") == 1, "what guards the files of owners"
    node.process.send_signal(number)
    assert node.exit_code() == 0
    assert f"received {number.name}; ending" in node.said
    assert leadership(database) == (1, ""), "given up, not left to run out"
    assert not [c for c in children if alive(c)]
    assert "Traceback" not in node.said


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessIdentity]:
    """A process that is noted as an engine of the cluster which is still starting: nothing listens at its port."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    process = ProcessIdentity.of(child.pid)
    assert process is not None
    directory = EngineDirectory(tmp_path / "data" / "clusters" / "default")
    record = EngineRecord("e", EngineSpec("local[1]"), "localhost", unused_port(), process=process)
    directory.save(dataclasses.replace(record, started_at=time.time()))
    yield process
    child.kill()
    child.wait()


def test_last_node_that_ends_by_a_signal_leaves_no_engine_behind(
    tmp_path: Path, start: Start, engine: ProcessIdentity
) -> None:
    """Also one that is just starting."""
    node = start()
    node.until_said("dispatcher of epoch 1 leads")
    node.process.terminate()
    assert node.exit_code() == 0
    assert not engine.alive
    assert not (tmp_path / "data" / "clusters" / "default" / "engines" / "e").exists()
    assert "Traceback" not in node.said


@pytest.mark.slow
def test_node_that_ends_beside_another_leaves_its_engines_to_it(
    tmp_path: Path, start: Start, engine: ProcessIdentity
) -> None:
    first = start(name="first")
    first.until_said("dispatcher of epoch 1 leads")
    second = start(name="second")
    announced = tmp_path / "data" / "clusters" / "default" / "rest.json"
    second.until(lambda: len(json.loads(announced.read_text())["nodes"]) == 2, "announcement of both")
    first.process.terminate()
    assert first.exit_code() == 0
    second.until_said("dispatcher of epoch 2 leads")
    assert engine.alive
    second.process.terminate()
    assert second.exit_code() == 0
    assert not engine.alive


@pytest.mark.slow
def test_second_node_of_a_host_with_another_data_directory_is_refused(tmp_path: Path, start: Start) -> None:
    """Its leader would see neither engines nor files of the first; once nothing runs from there, it may lead."""
    store = f"high-availability.sql.url=sqlite:///{tmp_path / 'one.db'}"
    other = tmp_path / "other"
    other.mkdir()
    first = start(store)
    first.until_said("dispatcher of epoch 1 leads")
    second = start(store, directory=other)
    assert second.exit_code() != 0
    assert f"-Ddata.dir={tmp_path / 'data'}" in second.said
    assert str(first.process.pid) in second.said
    assert "Traceback" not in second.said
    first.process.terminate()
    assert first.exit_code() == 0
    third = start(store, directory=other)
    third.until_said("dispatcher of epoch 2 leads")


@pytest.mark.slow
def test_node_with_another_store_than_its_data_directory_belongs_to_is_refused(tmp_path: Path, start: Start) -> None:
    first = start(f"high-availability.sql.url=sqlite:///{tmp_path / 'one.db'}")
    first.until_said("dispatcher of epoch 1 leads")
    second = start()
    assert second.exit_code() != 0
    assert "high-availability.sql.url" in second.said
    assert "Traceback" not in second.said


@pytest.mark.slow
def test_second_node_waits_and_takes_over_at_once_from_one_that_was_killed(tmp_path: Path, start: Start) -> None:
    """Long before the lease has run out: the dead are told from the silent on one host."""
    lease = "high-availability.lease-duration=300 s"
    first = start(lease, name="first")
    first.until_said("dispatcher of epoch 1 leads")
    second = start(lease, name="second")
    database = tmp_path / "data" / "cluster.db"

    def has_it_open() -> bool:
        descriptors = Path(f"/proc/{second.process.pid}/fd")
        targets = []
        for d in descriptors.iterdir():
            with contextlib.suppress(OSError):
                targets.append(os.readlink(d))
        return targets.count(str(database)) >= 2  # one to prepare it, and one that reads who leads

    second.until(has_it_open, "look at the database")
    assert leadership(database)[0] == 1
    assert "granted" not in second.said
    orphans = first.children
    assert orphans
    first.process.kill()
    killed = time.monotonic()
    second.until_said("dispatcher of epoch 2 leads")
    assert time.monotonic() - killed < 100
    second.until(lambda: not [o for o in orphans if alive(o)], "end of the dead node's parent of drivers")
    second.process.terminate()
    assert second.exit_code() == 0
    assert leadership(database) == (2, "")


@pytest.mark.slow
def test_fatal_error(tmp_path: Path, start: Start) -> None:
    """The database is taken away from under it."""
    node = start("high-availability.lease-duration=1 s")
    node.until_said("dispatcher of epoch 1 leads")
    (tmp_path / "data" / "cluster.db").unlink()
    assert node.exit_code() == 70
    assert "fatal error" in node.said
    assert "cluster.db was deleted or replaced while it was open" in node.said
    assert "put the file back" in node.said


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "words"),
    samples(
        [
            ("engine.slotss=3", "'engine.slotss': no such option"),
            ("engine.slots=many", "engine.slots"),
            ("high-availability.sql.url=mysql://me:hunter2@db/x", "high-availability.sql.url"),
            ("jobmanager.failure-enrichers=nope", "no failure enricher 'nope' is installed"),
            ("jobmanager.parallelism-overrides=orders", "is not of the form name:N"),
        ],
        quick=3,
    ),
)
def test_bad_configuration(start: Start, definition: str, words: str) -> None:
    node = start(definition)
    assert node.exit_code() == 4
    assert words in node.said
    assert "Traceback" not in node.said
    assert "hunter2" not in node.said


def test_configuration_file_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "firesteel.entrypoint", "--config", "nowhere.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("error: ")
    assert "nowhere.yaml" in done.stderr


# -- databases that cannot be used ------------------------------------------------------------------------------------


def filled(path: Path) -> bytes:
    """A database with values in it, closed; what the file holds."""

    async def main() -> None:
        services = await SqlHighAvailabilityServices.open(
            f"sqlite:///{path}", cluster_id="default", lease_duration=10.0
        )
        await services.close()

    asyncio.run(main())
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]
    return path.read_bytes()


def refused(node: NodeProcess, database: Path, *words: str) -> None:
    """It ended with one clear message that names the file."""
    assert node.exit_code() == 4, node.said
    assert f"the high-availability services could not start: the database {database}" in node.said
    for word in words:
        assert word in node.said
    assert "Traceback" not in node.said


def test_database_that_is_damaged(tmp_path: Path, start: Start) -> None:
    database = tmp_path / "data" / "cluster.db"
    content = bytearray(filled(database))
    content[100:] = b"\xa5" * (len(content) - 100)
    database.write_bytes(content)
    refused(start(), database, "is damaged", "restore it from a backup")
    assert database.read_bytes() == content


@pytest.mark.slow
def test_file_that_is_no_database(tmp_path: Path, start: Start) -> None:
    database = tmp_path / "data" / "cluster.db"
    database.parent.mkdir()
    content = b"the minutes of the last meeting\n" * 100
    database.write_bytes(content)
    refused(start(), database, "is not an SQLite database", "set high-availability.sql.url to another file")
    assert database.read_bytes() == content


@pytest.mark.slow
def test_database_of_a_newer_version(tmp_path: Path, start: Start) -> None:
    database = tmp_path / "data" / "cluster.db"
    filled(database)
    with contextlib.closing(sqlite3.connect(database)) as other, other:
        other.execute("UPDATE firesteel_meta SET schema_version = 99")
    content = database.read_bytes()
    refused(
        start(), database, "was written by a newer Firesteel (schema version 99", "install that version or a later one"
    )
    assert database.read_bytes() == content


def bound_by_modes() -> None:
    """In a child that is about to become a node: modes of files bind it, also if it is root's."""
    if os.geteuid() == 0:
        drop, override, read_search = 24, 1, 2
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (override, read_search):
            if libc.prctl(drop, capability, 0, 0, 0):
                os._exit(99)


@pytest.mark.slow
def test_database_without_leave_to_write(tmp_path: Path, start: Start) -> None:
    database = tmp_path / "data" / "cluster.db"
    content = filled(database)
    database.chmod(0o400)
    node = start(preexec_fn=bound_by_modes)
    if node.exit_code() == 99:
        pytest.skip("root without the right to drop capabilities: modes of files do not bind it")
    refused(node, database, "cannot be written to", "make the file and its directory writable for this user")
    assert database.read_bytes() == content


def fill_up(disk: Path, left: int) -> Path:
    ballast = disk / "ballast"
    space = os.statvfs(disk)
    ballast.write_bytes(bytes(space.f_bavail * space.f_frsize - left))
    return ballast


@pytest.mark.slow
def test_database_on_a_disk_that_is_full(start: Start) -> None:
    """It says what to do, waits for it and goes on by itself: there may be jobs that run."""
    with small_disk() as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk")
        database = disk / "cluster.db"
        content = filled(database)
        ballast = fill_up(disk, 36 * 1024)  # room for what SQLite shares between processes, and not for a write
        with contextlib.closing(start(f"high-availability.sql.url=sqlite:///{database}")) as node:
            node.until_said(f"the database {database} cannot grow: the disk is full")
            assert "free space on its disk" in node.said
            assert "dispatcher of epoch" not in node.said
            assert database.read_bytes() == content
            ballast.unlink()
            node.until_said("dispatcher of epoch 1 leads")
            node.process.terminate()
            assert node.exit_code() == 0


@pytest.mark.slow
def test_database_on_a_disk_that_is_full_to_the_last_byte(start: Start) -> None:
    with small_disk() as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk")
        database = disk / "cluster.db"
        content = filled(database)
        fill_up(disk, 0)
        with contextlib.closing(start(f"high-availability.sql.url=sqlite:///{database}")) as node:
            node.until_said(str(database), ended=True)
            assert "the disk is full" in node.said
            assert "free space on its disk" in node.said
            assert database.read_bytes() == content


@pytest.mark.slow
def test_data_directory_that_cannot_be_made(tmp_path: Path, start: Start) -> None:
    (tmp_path / "data").write_text("in the way")
    node = start()
    assert node.exit_code() == 4
    assert "the data directory could not start" in node.said
    assert str(tmp_path / "data") in node.said
    assert "Traceback" not in node.said
