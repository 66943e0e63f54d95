"""What happens to files and to a store of files: F10, F11 on SQLite, F21 and F22."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import uuid
from collections.abc import Iterator

import httpx

from firesteel_chaos.controlled import ASK_SECONDS, trust
from firesteel_chaos.faults.model import NoTargetError, Strike, World, fault
from firesteel_chaos.faults.nodes import down
from firesteel_chaos.faults.processes import limited

NEWER_VERSION = 99


@fault(
    "F10",
    "write-errors",
    "the leader cannot write to any file (EFBIG, which SQLite takes for an error of the disk)",
    needs="limits",
    harms="disk nodes drivers",
    hold=(1.0, 6.0),
)
def write_errors(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    if node.pid is None:
        raise NoTargetError(f"the process of {node.name} is not on this host")
    strike.begin(node.name)
    with limited(node.pid, resource.RLIMIT_FSIZE, 0):
        yield


@fault(
    "F10",
    "no-space",
    "the disk of the data directory is full (ENOSPC)",
    needs="small-disk",
    harms="disk nodes drivers",
    hold=(1.0, 5.0),
)
def no_space(world: World, strike: Strike) -> Iterator[None]:
    ballast = world.cluster.data_dir / "ballast"
    strike.begin("data.dir")
    try:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        yield
    finally:
        ballast.unlink(missing_ok=True)


@fault(
    "F10",
    "torn-file",
    "the file with the details of an ended job is truncated",
    needs="processes",
    harms="",
    hold=(0.3, 1.0),
)
def torn_file(world: World, strike: Strike) -> Iterator[None]:
    found = sorted(world.home.glob("finished/*/*.json"))
    if not found:
        raise NoTargetError("no job has ended yet")
    file = world.draw.choice(found)
    content = file.read_bytes()

    def mend() -> None:
        if file.exists():
            file.write_bytes(content)

    def check() -> None:
        said = _ask(world, "/history")
        strike.expect(said == 200, f"ended jobs can be listed although one file is torn (answered {said})", "I26")

    strike.later(check)
    strike.finally_(mend)
    strike.begin(file.name)
    file.write_bytes(content[: len(content) // 2])
    yield


@fault(
    "F11",
    "locked",
    "another process holds the write lock of the database",
    needs="sqlite",
    harms="store",
    hold=(0.3, 2.0),
    leases=True,
)
def locked(world: World, strike: Strike) -> Iterator[None]:
    file = world.cluster.data_dir / "cluster.db"
    with contextlib.closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as connection:
        strike.begin(str(file.name))
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise NoTargetError(f"the lock is not available: {error}") from None
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


@fault(
    "F21",
    "damaged-record",
    "a record of the store is damaged, and the next leader reads it",
    needs="records kill",
    harms="nodes",
    hold=(0.5, 2.0),
)
def damaged_record(world: World, strike: Strike) -> Iterator[None]:
    yield from _strange_record(world, strike, b'{"v": 1, "job_id": "')


@fault(
    "F21",
    "newer-record",
    "a record of the store has a newer version, and the next leader reads it",
    needs="records kill",
    harms="nodes",
    hold=(0.5, 2.0),
)
def newer_record(world: World, strike: Strike) -> Iterator[None]:
    yield from _strange_record(world, strike, json.dumps({"v": NEWER_VERSION, "from": "the future"}).encode())


def _strange_record(world: World, strike: Strike, content: bytes) -> Iterator[None]:
    assert world.records is not None
    job = uuid.UUID(int=world.draw.getrandbits(128)).hex
    kind = world.draw.choice(["graphs", "jobs", "results"])
    node = world.leader()
    records = world.records

    def clean() -> None:
        records.delete(f"parked/{job}/{kind}")  # what was made of it, a result, stays

    # That the cluster answers by then is what is looked at.
    strike.later(lambda: strike.expect(True, f"the cluster is led although {kind}/{job} cannot be read", "I9"))
    strike.finally_(clean)
    strike.begin(f"{kind}/{job}", [job])
    world.history.record("job", job=job, load="fault", digest=None)
    records.put(f"{kind}/{job}", content)
    with down(node):
        yield


@fault(
    "F22",
    "leftovers",
    "files of an older cluster with the same id exist when a leader starts",
    needs="processes kill",
    harms="nodes",
    hold=(0.3, 1.5),
)
def leftovers(world: World, strike: Strike) -> Iterator[None]:
    job = uuid.UUID(int=world.draw.getrandbits(128)).hex
    engine = uuid.UUID(int=world.draw.getrandbits(128)).hex[:16]
    attempt = world.home / "jobs" / job / "attempts" / "1"
    home = world.home / "engines" / engine
    half = world.home / "blobs" / ".half-an-upload"
    node = world.leader()
    # A pid that is somebody's, and a start that is not theirs.
    process: dict[str, object] = {"pid": os.getpid(), "started": "1"}

    def clean() -> None:
        shutil.rmtree(world.home / "jobs" / job, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)
        half.unlink(missing_ok=True)

    def check() -> None:
        said = _ask(world, f"/jobs/{job}")
        strike.expect(said == 404, f"a job that only left files is not known (answered {said})", "I1")

    strike.later(check)
    strike.finally_(clean)
    strike.begin(node.name)
    world.history.record("job", job=job, load="leftover", digest=None)
    for directory in (attempt, home):
        directory.mkdir(parents=True, mode=0o700)
    (attempt / "driver.json").write_text(json.dumps(process))
    (attempt / "spec.json").write_text("{}")
    (attempt / "driver.lock").touch()
    (home / "engine.json").write_text(json.dumps(_engine(engine, process)))
    (home / "pid").write_text(f"{os.getpid()}\n")
    half.write_bytes(b"half")
    with down(node):
        yield


def _engine(engine: str, process: dict[str, object]) -> dict[str, object]:
    return {
        "engine_id": engine,
        "spec": {"master": "local[2]", "memory": "1g", "spark": [], "jvm_options": []},
        "host": "127.0.0.1",
        "port": 1,
        "process": process,
    }


def _ask(world: World, path: str) -> int | None:
    """What the first node that answers says, as a status."""
    for node in world.cluster.nodes():
        with contextlib.suppress(httpx.HTTPError):
            headers = {"authorization": f"Bearer {world.cluster.token}"}
            asked = httpx.get(node.address + path, headers=headers, timeout=ASK_SECONDS, verify=trust(world.cluster.ca))
            status = asked.status_code
            if status not in (502, 503, 504):
                return status
    return None


FAULTS = (write_errors, no_space, torn_file, locked, damaged_record, newer_record, leftovers)
