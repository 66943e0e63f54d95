"""A model of Spark and two worlds to run sinks in: the local file system, and `memory://` as the object store.

A world can stop the sink at its n-th file system call, to crash there or to let somebody else act at that very moment.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import fsspec

from firesteel.fs import local
from firesteel.fs.local import LocalStore
from firesteel.fs.remote import FsspecStore
from firesteel.fs.store import FileStore
from firesteel.jobgraph.model import SaveMode
from firesteel.sinks import Begin, StagedFileSink
from firesteel.types import JobID

JOB = JobID("a" * 32)
OTHER_JOB = JobID("b" * 32)
VERTEX = "out_1"

OLD = {
    "k=1/old-1.csv": "o1\no2\n",
    "k=2/old-2.csv": "o3\n",
    "k=2/.old-2.csv.crc": "crc",
    "_metadata": "summary",
    ".keep": "hidden, not ours",
}
NEW = {
    "k=2/part-00000-{w}.c000.snappy.parquet": "n1\nn2\n",
    "k=2/part-00001-{w}.c000.snappy.parquet": "n1\n",
    "k=3%3A/part-00001-{w}.c000.snappy.parquet": "n3\n",
    "_h=1/part-00001-{w}.c000.snappy.parquet": "n4\n",
}
OTHER = {
    "part-00000-{w}-c000.csv.gz": "x1\n",
    "part-00001-{w}-c000.csv.gz": "x2\n",
    "k=2/part-00001-{w}.c000.csv": "x3\n",
}


class Crash(BaseException):
    """kill -9. Not an Exception, so no handler that could run in a dying process catches it."""


class Trip:
    """Counts file system calls and acts at the n-th. After a crash every further call crashes too: the process is dead."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.calls = 0
        self.action: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.at is None:
            return
        self.calls += 1
        if self.action is None:
            if self.calls >= self.at:
                raise Crash
        elif self.calls == self.at:
            self.at = None
            self.action()

    @contextmanager
    def armed(self, at: int, action: Callable[[], None] | None = None) -> Iterator[None]:
        self.at, self.calls, self.action = at, 0, action
        try:
            yield
        finally:
            self.at = None


class TrippingOs:
    """Stands for the module `os` inside `firesteel.fs.local`."""

    _UNCOUNTED = frozenset({"close", "getpid", "fspath"})
    """A dying process closes its files; the others touch none."""

    def __init__(self, trip: Trip) -> None:
        self._trip = trip

    def __getattr__(self, name: str) -> Any:
        value = getattr(os, name)
        if not callable(value) or name in self._UNCOUNTED:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._trip()
            # Counted, not done: a killed process loses no page cache, and thousands of real ones take minutes.
            return None if name == "fsync" else value(*args, **kwargs)

        return call


class TrippingFs:
    """Wraps an fsspec file system."""

    def __init__(self, fs: Any, trip: Trip) -> None:
        self._fs = fs
        self._trip = trip

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._fs, name)
        if name == "invalidate_cache":
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._trip()
            return value(*args, **kwargs)

        return call


class World(Protocol):
    uri: str
    trip: Trip

    def store(self) -> FileStore: ...
    def put(self, path: str, text: str) -> None: ...
    def files(self) -> dict[str, str]: ...
    def delete_tree(self, path: str) -> None: ...
    def directories(self) -> set[str]: ...


class LocalWorld:
    def __init__(self, directory: Path, name: str = "out dir/täble 100%25/day=1 [x]*") -> None:
        self.uri = str(directory / uuid.uuid4().hex / name)
        self.trip = Trip()

    def store(self) -> FileStore:
        setattr(local, "os", TrippingOs(self.trip))  # noqa: B010
        return LocalStore()

    def put(self, path: str, text: str) -> None:
        file = Path(self.uri) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def files(self) -> dict[str, str]:
        root = Path(self.uri)
        return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}

    def delete_tree(self, path: str) -> None:
        shutil.rmtree(Path(self.uri) / path, ignore_errors=True)

    def directories(self) -> set[str]:
        root = Path(self.uri)
        return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir()}


class MemoryWorld:
    def __init__(self, *, workers: int = 1) -> None:
        self._root = f"/{uuid.uuid4().hex}/täble 100%25/day=1 [x]*"
        self.uri = f"memory:/{self._root}"
        self.trip = Trip()
        self._workers = workers
        self._fs = fsspec.filesystem("memory")
        self._fs.store.clear()  # shared by the process, and each listing scans all of it: one world at a time

    def store(self) -> FileStore:
        return FsspecStore(TrippingFs(self._fs, self.trip), workers=self._workers)

    def put(self, path: str, text: str) -> None:
        self._fs.pipe_file(f"{self._root}/{path}", text.encode())

    def files(self) -> dict[str, str]:
        prefix = f"{self._root}/"
        return {
            name[len(prefix) :]: bytes(f.getvalue()).decode()
            for name, f in list(self._fs.store.items())
            if name.startswith(prefix)
        }

    def delete_tree(self, path: str) -> None:
        for name in [n for n in self._fs.store if n.startswith(f"{self._root}/{path}/")]:
            del self._fs.store[name]

    def directories(self) -> set[str]:
        return set()


def sink_of(
    world: World,
    mode: str = "append",
    *,
    job_id: JobID = JOB,
    vertex: str = VERTEX,
    given_up: int = 0,
    cls: type[StagedFileSink] = StagedFileSink,
) -> StagedFileSink:
    return cls(
        world.uri,
        job_id,
        vertex,
        mode=SaveMode.OVERWRITE if mode == "dynamic" else SaveMode(mode),
        dynamic_partitions=mode == "dynamic",
        given_up=given_up,
        store=world.store(),
    )


def spark_writes(world: World, staging: str, rows: Mapping[str, str] = NEW, *, finishes: bool = True) -> None:
    """Spark's `mode("overwrite")` into `staging`."""
    assert staging.startswith(world.uri + "/")
    inside = staging[len(world.uri) + 1 :]
    world.delete_tree(inside)
    write = str(uuid.uuid4())
    for name, text in rows.items():
        path = name.format(w=write)
        head, _, tail = path.rpartition("/")
        world.put(f"{inside}/{path}", text)
        world.put(f"{inside}/{head}/.{tail}.crc".replace("//", "/"), "crc")
    if finishes:
        world.put(f"{inside}/_SUCCESS", "")
    else:
        world.put(f"{inside}/_temporary/0/part", "half")


def run(world: World, sink: StagedFileSink, attempt: int = 1, rows: Mapping[str, str] = NEW) -> None:
    """One attempt, as the control plane runs it."""
    if sink.begin(attempt) is Begin.RUN:
        spark_writes(world, sink.staging_path(attempt), rows)
        sink.commit(attempt)


def rows_in(files: Mapping[str, str]) -> list[str]:
    """The rows that Spark would read, each with its partition. Its rule of hidden names, written down a second time."""
    rows = []
    for path, text in files.items():
        parts = path.split("/")
        if not any(p[0] == "." or (p[0] == "_" and "=" not in p) for p in parts):
            rows += [f"{'/'.join(parts[:-1])}: {line}" for line in text.splitlines()]
    return sorted(rows)


def rows_of(world: World) -> list[str]:
    return rows_in(world.files())


def expected(mode: str, old: Mapping[str, str] = OLD, new: Mapping[str, str] = NEW) -> list[str]:
    if mode == "overwrite":
        kept: dict[str, str] = {}
    elif mode == "dynamic":
        touched = {n.rpartition("/")[0] for n in new}
        kept = {n: t for n, t in old.items() if n.rpartition("/")[0] not in touched}
    else:
        kept = dict(old)
    return sorted(rows_in(kept) + rows_in(new))


def ours(world: World) -> set[str]:
    """What a finished and cleaned-up job must not leave: anything but rows, `_SUCCESS`, and what was hidden before."""
    files = {p for p in world.files() if rows_in({p: "x"}) == [] and p != "_SUCCESS" and p not in OLD}
    return files | {d for d in world.directories() if "_firesteel" in d}


def contains(rows: list[str], part: list[str]) -> bool:
    rest = list(rows)
    for row in part:
        if row not in rest:
            return False
        rest.remove(row)
    return True
