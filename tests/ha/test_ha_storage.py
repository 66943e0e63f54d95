"""Large values in files: pointers that verify, and orphans that are collected without ever taking what is needed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from firesteel.errors import (
    FencingError,
    InvalidConfigError,
    StoreBrokenError,
    StoreFailingError,
    StoreUnavailableError,
    VersionConflictError,
)
from firesteel.ha.protocols import Epoch
from firesteel.ha.storage import DamagedValueError, LargeValues, Pointer, ValueFiles
from firesteel.ha.storage_files import FsspecFiles, LocalFiles, open_files

REFUSED = (FencingError, VersionConflictError)
LARGE = bytes(range(256)) * 8
ONE, TWO = Epoch(1), Epoch(2)


class Memory:
    """Files in memory that can be told to stop at a step."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.listed = threading.Event()

    def write(self, name: str, value: bytes) -> None:
        assert name not in self.files
        self.files[name] = value

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def names(self) -> list[str]:
        self.listed.set()
        return list(self.files)

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


class Nodes:
    """Records by path, in the place of a store."""

    def __init__(self, values: LargeValues) -> None:
        self.values = values
        self.records: dict[str, bytes] = {}

    async def put(self, path: str, value: bytes, epoch: Epoch = ONE, error: BaseException | None = None) -> None:
        async with self.values.packed(value, epoch, refused=REFUSED) as record:
            if error is not None:
                raise error
            self.records[path] = record

    async def all(self) -> Iterable[bytes]:
        return list(self.records.values())

    async def collect(self, epoch: Epoch = ONE) -> int:
        return await self.values.collect(epoch, self.all)


def on(files: ValueFiles, test: Callable[[Nodes], Awaitable[None]], *, limit: int = 100) -> None:
    async def main() -> None:
        values = LargeValues(files, limit=limit)
        try:
            await test(Nodes(values))
        finally:
            await values.close()

    asyncio.run(main())


@pytest.fixture(params=["local", "fsspec"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> ValueFiles:
    if request.param == "local":
        return open_files(str(tmp_path / "storage"), "c/1", uuid.uuid4().hex)
    return open_files(f"memory://storage-{uuid.uuid4().hex}/x", "..", uuid.uuid4().hex)


def test_small_values_are_in_their_records_and_large_ones_in_files(files: ValueFiles) -> None:
    async def test(nodes: Nodes) -> None:
        for n, value in enumerate([b"", b"x", b"p{}", b"v", b"x" * 99]):
            await nodes.put(str(n), value)
            assert await nodes.values.unpack(nodes.records[str(n)]) == value
            assert len(nodes.records[str(n)]) <= 100
        assert files.names() == []
        await nodes.put("large", LARGE[:100])
        assert len(files.names()) == 1
        assert await nodes.values.unpack(nodes.records["large"]) == LARGE[:100]

    on(files, test)


def test_files_are_written_read_listed_and_deleted(files: ValueFiles) -> None:
    assert files.names() == []
    assert files.read("a") is None
    files.write("a", LARGE)
    files.write("b", b"")
    assert files.read("a") == LARGE
    assert files.read("b") == b""
    assert sorted(files.names()) == ["a", "b"]
    files.delete("a")
    files.delete("a")
    assert files.names() == ["b"]


def test_damage_is_noticed(files: ValueFiles) -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.put("a", LARGE)
        [name] = files.names()
        good = nodes.records["a"]
        for wrong in (LARGE[:-1], LARGE[:-1] + b"!", b""):
            files.delete(name)
            files.write(name, wrong)
            with pytest.raises(DamagedValueError, match=name):
                await nodes.values.unpack(good)
        files.delete(name)
        with pytest.raises(DamagedValueError, match="missing"):
            await nodes.values.unpack(good)

    on(files, test)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"x",
        b"p",
        b"p[]",
        b"p{}",
        b'p{"name": "../../etc/passwd", "size": 1, "sha256": ""}',
        b'p{"name": 1, "size": 1, "sha256": ""}',
        b"p" + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_record_of_no_known_form_is_damage(record: bytes) -> None:
    with pytest.raises(DamagedValueError, match="form"):
        Pointer.decode(record)


def test_orphans_of_refused_and_replaced_writes_are_collected(files: ValueFiles) -> None:
    async def test(nodes: Nodes) -> None:
        await nodes.put("kept", LARGE)
        await nodes.put("replaced", LARGE)
        await nodes.put("replaced", LARGE)
        for error in (FencingError("stale"), VersionConflictError("other")):
            with pytest.raises(type(error)):
                await nodes.put("never", LARGE, error=error)
        assert len(files.names()) == 5
        assert await nodes.collect() == 3
        assert await nodes.collect() == 0
        for path in ("kept", "replaced"):
            assert await nodes.values.unpack(nodes.records[path]) == LARGE
        nodes.records.clear()
        assert await nodes.collect() == 2
        assert files.names() == []

    on(files, test)


def test_file_that_could_not_be_written_is_not_held() -> None:
    """No pointer was sent: whatever there is of it may go, also while this leadership lasts."""

    class Half(Memory):
        def write(self, name: str, value: bytes) -> None:
            super().write(name, value[:10])
            raise StoreUnavailableError("the bucket is away")

    files = Half()

    async def test(nodes: Nodes) -> None:
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await nodes.put("a", LARGE)
        assert len(files.files) == 3
        assert await nodes.collect() == 3
        assert not nodes.values._held

    on(files, test)


def test_write_without_an_answer_keeps_its_file_until_the_next_leadership() -> None:
    files = Memory()

    async def test(nodes: Nodes) -> None:
        for error in (StoreUnavailableError("no answer"), asyncio.CancelledError(), RuntimeError()):
            with contextlib.suppress(type(error)):
                await nodes.put("perhaps", LARGE, error=error)
        assert await nodes.collect(ONE) == 0
        assert len(files.files) == 3
        assert await nodes.collect(TWO) == 3
        assert files.files == {}

    on(files, test)


def test_file_of_a_write_under_way_is_never_collected() -> None:
    files = Memory()

    async def test(nodes: Nodes) -> None:
        async with nodes.values.packed(LARGE, ONE, refused=REFUSED) as record:
            assert len(files.files) == 1
            assert await nodes.collect() == 0
            nodes.records["a"] = record
        assert await nodes.collect() == 0
        assert await nodes.values.unpack(nodes.records["a"]) == LARGE

    on(files, test)


def test_write_that_begins_while_files_are_collected_is_safe_also_with_the_same_value() -> None:
    files = Memory()

    async def test(nodes: Nodes) -> None:
        with pytest.raises(FencingError):
            await nodes.put("orphan", LARGE, error=FencingError(""))

        async def meanwhile() -> Iterable[bytes]:
            seen = await nodes.all()
            await nodes.put("a", LARGE)  # the collector does not see this record
            return seen

        assert await nodes.values.collect(ONE, meanwhile) == 1
        assert await nodes.values.unpack(nodes.records["a"]) == LARGE

    on(files, test)


def test_stale_leader_that_goes_on_collecting_takes_nothing_of_the_new_one() -> None:
    """It was paused after it had read the records; the new leader has written since."""
    files = Memory()

    async def test(new: Nodes) -> None:
        old = Nodes(LargeValues(files, limit=100))
        async with new.values.packed(LARGE, TWO, refused=REFUSED) as record:  # its file is there already

            async def before() -> Iterable[bytes]:
                return await old.all()

            assert await old.values.collect(ONE, before) == 0
            new.records["a"] = record
        assert await new.values.unpack(new.records["a"]) == LARGE
        await old.values.close()

    on(files, test)


def test_crash_between_file_and_pointer_leaves_an_orphan_for_the_next_leader(files: ValueFiles) -> None:
    async def crashed(nodes: Nodes) -> None:
        await nodes.values.packed(LARGE, ONE, refused=REFUSED).__aenter__()  # and the process is no more

    async def next_one(nodes: Nodes) -> None:
        await nodes.put("mine", LARGE, TWO)
        assert await nodes.collect(TWO) == 1
        assert await nodes.values.unpack(nodes.records["mine"]) == LARGE

    on(files, crashed)
    assert len(files.names()) == 1
    on(files, next_one)


def test_what_is_none_of_ours_and_what_odd_records_name_is_left_alone() -> None:
    files = Memory()

    async def test(nodes: Nodes) -> None:
        await nodes.put("a", LARGE)
        newer = nodes.records.pop("a")
        nodes.records["of-a-newer-version"] = b"q" + newer[1:] + b"more"
        files.files |= {"README": b"", "0000000001-x": b""}
        assert await nodes.collect() == 0
        assert len(files.files) == 3

    on(files, test)


def test_local_files_are_private_and_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    original = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink() if Path("/proc").is_dir() else Path())
        original(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    directory = tmp_path / "storage" / "cluster" / "instance"
    LocalFiles(directory).write("a", LARGE)
    assert stat.S_IMODE((directory / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    if Path("/proc").is_dir():
        assert set(synced) >= {directory / "a", directory, directory.parent, tmp_path / "storage", tmp_path}
        assert synced[-2:] == [directory / "a", directory]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFailingError),
        (errno.EIO, StoreFailingError),
        (errno.EROFS, StoreBrokenError),
        (errno.EACCES, StoreBrokenError),
        (errno.ESTALE, StoreUnavailableError),
        (errno.ETIMEDOUT, StoreUnavailableError),
    ],
)
def test_errors_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def fails(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fails)
    with pytest.raises(kind, match="storage") as caught:
        LocalFiles(tmp_path / "storage").write("a", LARGE)
    assert type(caught.value) is kind
    assert LocalFiles(tmp_path / "storage").names() == []


def test_errors_of_a_remote_file_system_may_pass() -> None:
    class Fails:
        def __getattr__(self, name: str) -> Callable[..., object]:
            def fail(*_: object, **__: object) -> object:
                raise RuntimeError("no route")

            return fail

    files = FsspecFiles(Fails(), "bucket/x")
    for action in (lambda: files.write("a", b""), lambda: files.read("a"), files.names, lambda: files.delete("a")):
        with pytest.raises(StoreUnavailableError, match="no route"):
            action()


def test_clusters_of_one_id_do_not_share_files(tmp_path: Path) -> None:
    one, other = (open_files(str(tmp_path), "default", instance) for instance in ("1", "2"))
    one.write("a", b"1")
    assert other.names() == []
    odd = open_files(f"file://{tmp_path}", "../..", "../x")
    odd.write("a", b"")
    assert odd.names() == ["a"]
    assert all(tmp_path in found.parents for found in tmp_path.rglob("a"))


def test_every_spelling_of_a_local_directory_is_that_directory(tmp_path: Path) -> None:
    for n, location in enumerate([f"{tmp_path}", f"{tmp_path}/", f"file:{tmp_path}", f"file://{tmp_path}"]):
        open_files(location, "c", "i").write(str(n), b"")
    assert sorted(path.name for path in (tmp_path / "c" / "i").iterdir()) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("location", [None, "", "no-such-protocol://x"])
def test_location_is_needed(location: str | None) -> None:
    with pytest.raises(InvalidConfigError, match=r"high-availability\.storageDir"):
        open_files(location, "c", "i")
