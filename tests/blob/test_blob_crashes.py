"""Death, and a disk that fails, between every two steps (F5, F10)."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.blob.blob_tools import (
    Clock,
    all_files,
    chunks,
    crash_at,
    finished_upload,
    key_of,
    read,
    stored_files,
    watched_disk,
    with_store,
)
from tests.small_disk import small_disk

from firesteel.blob.shelf import Shelf, owner_mark
from firesteel.blob.store import BlobStore
from firesteel.errors import StoreFailingError

pytestmark = pytest.mark.usefixtures("quick_disk")
ADA, BOB = owner_mark("ada"), owner_mark("bob")
OLD, NEW = b"what is there already", b"what is being uploaded"
GRACE = 3600.0


class Desk:
    """A shelf with an old file of ada's, and what can be done to it as the process that dies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.shelf = Shelf(root, self.clock)
        self.shelf.open()
        self.put(OLD, ADA)
        self.clock.time += GRACE + 1

    def put(self, content: bytes, mark: str) -> None:
        upload = finished_upload(self.shelf.uploads, content, self.clock())
        try:
            self.shelf.install(upload, key_of(content), mark)
        finally:
            upload.discard()

    def next_process(self) -> Shelf:
        for fd in map(int, os.listdir("/proc/self/fd")):  # the dead hold no locks
            if os.path.lexists(link := f"/proc/self/fd/{fd}") and os.readlink(link).startswith(str(self.root)):
                os.close(fd)
        self.clock.time += 10_000
        shelf = Shelf(self.root, self.clock)
        shelf.open()
        return shelf

    def collect_all(self, shelf: Shelf) -> None:
        """Twice what may happen in an hour, later."""
        for _ in range(2):
            self.clock.time += 2 * GRACE
            for shard in {key_of(c)[:2] for c in (OLD, NEW)}:
                shelf.collect(shard, [], GRACE)
            shelf.tidy(GRACE)


def sound(shelf: Shelf, content: bytes, mark: str | None) -> bool | None:
    handle = shelf.open_file(key_of(content), mark)
    return None if handle is None else shelf.sound(key_of(content), handle)


WORKS: dict[str, Callable[[Desk], object]] = {
    "upload": lambda d: d.put(NEW, BOB),
    "upload again": lambda d: d.put(OLD, ADA),
    "upload of another's": lambda d: d.put(OLD, BOB),
    "touch": lambda d: d.shelf.refresh(key_of(OLD)),
}


@pytest.mark.parametrize("work", WORKS)
def test_death_at_any_step_of_what_keeps_files_loses_none_and_shows_no_half_one(tmp_path: Path, work: str) -> None:
    """I17: the next process finds each file whole or not at all; the collector leaves nothing of what was half done."""
    step = 1
    while True:
        desk = Desk(tmp_path / str(step))
        if not crash_at(step, lambda desk=desk: WORKS[work](desk)):  # type: ignore[misc]
            break
        shelf = desk.next_process()
        assert sound(shelf, OLD, ADA) is True, step
        assert sound(shelf, NEW, None) is not False, step
        assert sound(shelf, NEW, ADA) is None, step
        assert [f for f in stored_files(desk.root) if f.startswith("uploads/")] == [], step
        desk.put(NEW, BOB)  # the client tries again
        assert sound(shelf, NEW, BOB) is True, step
        desk.collect_all(shelf)
        assert all_files(desk.root) == [], step
        step += 1
    assert step > (3 if work == "touch" else 10)
    assert sound(desk.next_process(), NEW if work == "upload" else OLD, None) is True


GOINGS: dict[str, Callable[[Desk], object]] = {
    "collect": lambda d: d.shelf.collect(key_of(OLD)[:2], [], GRACE),
    "delete": lambda d: d.shelf.release(key_of(OLD), ADA),
}


@pytest.mark.parametrize("work", GOINGS)
def test_death_at_any_step_of_a_removal_leaves_the_file_or_nothing(tmp_path: Path, work: str) -> None:
    step = 1
    while True:
        desk = Desk(tmp_path / str(step))
        if not crash_at(step, lambda desk=desk: GOINGS[work](desk)):  # type: ignore[misc]
            break
        shelf = desk.next_process()
        assert sound(shelf, OLD, None) is not False
        assert sum(shelf.sizes(ADA).values()) in (0, len(OLD))
        desk.put(OLD, ADA)
        assert sound(shelf, OLD, ADA) is True
        desk.collect_all(shelf)
        assert all_files(desk.root) == [], step
        step += 1
    assert step > 4
    assert all_files(desk.root) == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE], ids=errno.errorcode.get)
def test_disk_that_fails_at_any_step_of_an_upload_is_a_clear_error_and_nothing_is_left(
    tmp_path: Path, error: int
) -> None:
    """F10, F24. (Only where the removal of the temporary file fails, that is left for the next sweep.)"""

    async def upload(root: Path, failing: int) -> bool:
        steps = 0

        def before(name: str) -> None:
            nonlocal steps
            steps += name not in ("unlink", "listdir", "stat")
            if steps == failing and name != "unlink":
                steps += 1
                raise OSError(error, os.strerror(error))

        store = BlobStore(root, max_size=1 << 20, quota=1 << 20)
        await store.open()
        await store.put(chunks(OLD), owner="ada")
        failure: StoreFailingError | None = None
        with watched_disk(before):
            try:
                await store.put(chunks(NEW), owner="bob")
            except StoreFailingError as caught:
                failure = caught
        if failure is not None:
            assert ("the disk is full" in str(failure)) == (error == errno.ENOSPC)
            assert all_files(root) == [f"{key_of(OLD)[:2]}/{key_of(OLD)}", f"owners/{ADA}/{key_of(OLD)}"], failing
            assert await store.usage("bob") == 0
        assert await read(store, key_of(OLD), "ada") == OLD
        await store.put(chunks(NEW), owner="bob")
        assert await read(store, key_of(NEW), "bob") == NEW
        await store.close()
        return failure is not None

    failing = 1
    while asyncio.run(upload(tmp_path / str(failing), failing)):
        failing += 1
    assert failing > 10


def test_full_disk_refuses_an_upload_and_is_well_again_with_space() -> None:
    """F10: a real one."""
    with small_disk() as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk; errors of the disk are played above")
        root = disk / "blobs"

        async def work(store: BlobStore) -> None:
            first = (await store.put(chunks(b"1" * 300_000), owner="ada")).key
            before = all_files(root)
            for _ in range(3):
                with pytest.raises(StoreFailingError, match="the disk is full"):
                    await store.put(chunks(b"2" * 200_000, b"2" * 200_000), owner="bob")
                assert all_files(root) == before
            assert await store.usage("bob") == 0
            assert await read(store, first, "ada") == b"1" * 300_000
            await store.put(chunks(b"3" * 100_000), owner="bob")
            await store.delete(first, "ada")
            second = await store.put(chunks(b"2" * 400_000), owner="bob")
            assert await read(store, second.key, "bob") == b"2" * 400_000

        with_store(root, work)
