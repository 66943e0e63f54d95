"""The same promises on a real HDFS: a one-node mini cluster, reached through WebHDFS.

The jars come with scripts/fetch-test-jars.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from tests.needs import jars

from firesteel.engines.java import find_java
from firesteel.fs.remote import FsspecStore
from firesteel.fs.store import FileStore, locate, open_store
from firesteel.ports import unused_port

if TYPE_CHECKING:
    from tests.sinks import sink_model as model
else:
    import sink_model as model

pytestmark = [pytest.mark.integration, pytest.mark.hdfs, pytest.mark.timeout(900), pytest.mark.xdist_group("hdfs")]


class HdfsWorld:
    def __init__(self, options: dict[str, Any]) -> None:
        self._root = f"/{uuid.uuid4().hex}/täble 100%25/day=1 [x]*"
        self.uri = f"hdfs://localhost{self._root}"
        self.trip = model.Trip()
        self._options = options
        self._fs = fsspec.filesystem("webhdfs", **options)

    def store(self) -> FileStore:
        location = locate(self.uri, "out", {**self._options, "protocol": "webhdfs"})
        opened = open_store(location)
        assert isinstance(opened, FsspecStore)
        opened._fs = model.TrippingFs(opened._fs, self.trip)
        return opened

    def put(self, path: str, text: str) -> None:
        self._fs.pipe_file(f"{self._root}/{path}", text.encode())

    def files(self) -> dict[str, str]:
        found = self._fs.find(self._root, detail=True).items()
        return {n[len(self._root) + 1 :]: self._fs.cat_file(n).decode() if i["size"] else "" for n, i in found}

    def delete_tree(self, path: str) -> None:
        self._fs.rm(f"{self._root}/{path}", recursive=True)

    def directories(self) -> set[str]:
        found = self._fs.find(self._root, withdirs=True, detail=True).items()
        return {n[len(self._root) + 1 :] for n, i in found if i["type"] == "directory" and n != self._root}


@pytest.fixture(scope="module")
def make_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], HdfsWorld]]:
    found = jars("hdfs")
    home = tmp_path_factory.mktemp("hdfs")
    rpc, http = unused_port(), unused_port()
    ready = home / "site.xml"
    command = [
        str(find_java().executable),
        "-Xmx512m",
        "--add-opens",
        "java.base/java.lang=ALL-UNNAMED",
        f"-Dtest.build.data={home}/data",
    ]
    command += ["-cp", f"{found}/*", "org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"]
    command += ["-nnport", str(rpc), "-httpport", str(http), "-writeConfig", str(ready)]
    with (home / "log").open("w") as log:
        cluster = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home)
    try:
        give_up = time.monotonic() + 120
        while not ready.exists():
            assert cluster.poll() is None, (home / "log").read_text()[-2000:]
            assert time.monotonic() < give_up, (home / "log").read_text()[-2000:]
            time.sleep(0.2)
        user = os.environ.get("USER", "root")
        yield lambda: HdfsWorld({"host": "localhost", "port": http, "user": user})
    finally:
        cluster.kill()
        cluster.wait()


@pytest.mark.parametrize("mode", ["append", "overwrite", "dynamic"])
def test_commit_on_hdfs_puts_rows_in_place_and_leaves_nothing(make_hdfs: Callable[[], HdfsWorld], mode: str) -> None:
    world = make_hdfs()
    for name, text in model.OLD.items():
        world.put(name, text)
    sink = model.sink_of(world, mode)
    model.run(world, sink)
    assert model.rows_of(world) == model.expected(mode)
    sink.cleanup()
    assert model.ours(world) == set()
    assert ("k=1" in world.directories()) == (mode != "overwrite")


def test_create_on_hdfs_is_exclusive_though_webhdfs_answers_a_refused_rename_with_success(
    make_hdfs: Callable[[], HdfsWorld],
) -> None:
    world = make_hdfs()
    store, root = world.store(), world.uri.removeprefix("hdfs://localhost")
    store.make_directory(root)
    assert store.create(f"{root}/commit.json", b"one")
    assert not store.create(f"{root}/commit.json", b"two")
    assert world.files() == {"commit.json": "one"}


def test_directory_that_is_not_empty_survives_remove_empty_on_hdfs(make_hdfs: Callable[[], HdfsWorld]) -> None:
    world = make_hdfs()
    root = world.uri.removeprefix("hdfs://localhost")
    world.put("k=1/row.csv", "x")
    world.store().remove_empty([f"{root}/k=1", root])
    assert world.files() == {"k=1/row.csv": "x"}


@pytest.mark.slow
@pytest.mark.parametrize("recovery", ["new attempt", "abandon"])
def test_crash_on_hdfs_then_recovery_has_rows_exactly_once(make_hdfs: Callable[[], HdfsWorld], recovery: str) -> None:
    for n in range(1, 1000, 5):
        world = make_hdfs()
        for name, text in model.OLD.items():
            world.put(name, text)
        try:
            with world.trip.armed(n):
                model.run(world, model.sink_of(world, "overwrite"))
            return
        except model.Crash:
            sink = model.sink_of(world, "overwrite")
            committed = True
            if recovery == "abandon":
                committed = sink.abandon() is not None
            else:
                model.run(world, sink, attempt=2)
            assert model.rows_of(world) == model.rows_in(model.NEW if committed else model.OLD)
            sink.cleanup()
            assert model.ours(world) == set()
