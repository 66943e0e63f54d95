"""What nothing needs goes, and nothing else does (I12, I13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.blob.blob_tools import (
    Clock,
    Interleaving,
    all_files,
    chunks,
    finished_upload,
    key_of,
    read,
    stored_files,
)

from firesteel.blob import disk
from firesteel.blob.keys import BlobKey
from firesteel.blob.shelf import Shelf, owner_mark
from firesteel.blob.store import BlobStore
from firesteel.errors import BlobNotFoundError

pytestmark = pytest.mark.usefixtures("quick_disk")
GRACE = 3600.0
ADA, BOB = owner_mark("ada"), owner_mark("bob")


def with_clock(root: Path, work: Callable[[BlobStore, Clock], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = Clock()
        store = BlobStore(root, max_size=1 << 20, quota=1 << 20, now=clock)
        await store.open()
        await work(store, clock)
        await store.close()

    asyncio.run(main())


def test_old_files_that_nothing_needs_go_with_their_marks(tmp_path: Path) -> None:
    async def work(store: BlobStore, clock: Clock) -> None:
        old = (await store.put(chunks(b"old"), owner="ada")).key
        await store.put(chunks(b"old"), owner="bob")
        needed = (await store.put(chunks(b"needed"), owner="ada")).key
        clock.time += GRACE + 1
        young = (await store.put(chunks(b"young"), owner="ada")).key
        assert await store.collect([needed], grace=GRACE) == [old]
        assert {i.key for i in await store.list(None)} == {needed, young}
        assert {i.key for i in await store.list("ada")} == {needed, young}
        assert await store.list("bob") == []
        assert await store.usage("ada") == 2 * 4096
        assert len(all_files(tmp_path)) == 4

    with_clock(tmp_path, work)


def test_age_is_since_somebody_last_wanted_the_file(tmp_path: Path) -> None:
    async def work(store: BlobStore, clock: Clock) -> None:
        touched = (await store.put(chunks(b"touched"), owner="ada")).key
        again = (await store.put(chunks(b"again"), owner="ada")).key
        forgotten = (await store.put(chunks(b"forgotten"), owner="ada")).key
        clock.time += GRACE
        await store.touch([touched])
        await store.put(chunks(b"again"), owner="bob")
        clock.time += 1
        assert await store.collect([], grace=GRACE) == [forgotten]
        assert await read(store, touched, "ada") + await read(store, again, "ada") == b"touchedagain"
        clock.time += GRACE
        assert set(await store.collect([], grace=GRACE)) == {touched, again}
        assert all_files(tmp_path) == []
        with pytest.raises(BlobNotFoundError):
            await store.touch([touched])

    with_clock(tmp_path, work)


def test_clock_that_jumped_back_loses_no_file(tmp_path: Path) -> None:
    """F12."""

    async def work(store: BlobStore, clock: Clock) -> None:
        key = (await store.put(chunks(b"x"), owner="ada")).key
        clock.time -= 100_000
        assert await store.collect([], grace=GRACE) == []
        await store.touch([key])
        clock.time += GRACE - 1
        assert await store.collect([], grace=GRACE) == []
        clock.time += 2
        assert await store.collect([], grace=GRACE) == [key]

    with_clock(tmp_path, work)


def test_marks_of_what_is_gone_go_too(tmp_path: Path) -> None:
    """I23: a file that went without the collector leaves no marks for ever."""

    async def work(store: BlobStore, clock: Clock) -> None:
        key = (await store.put(chunks(b"x"), owner="ada")).key
        (tmp_path / key[:2] / key).unlink()
        await store.collect([], grace=GRACE)
        assert len(all_files(tmp_path)) == 1  # it may be uploaded anew by somebody
        clock.time += GRACE + 1
        await store.collect([], grace=GRACE)
        assert all_files(tmp_path) == []

    with_clock(tmp_path, work)


def test_files_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    async def work(store: BlobStore, clock: Clock) -> None:
        key = (await store.put(chunks(b"x"), owner="ada")).key
        note = tmp_path / key[:2] / "README"
        note.write_text("whoever put this here")
        clock.time += GRACE + 1
        assert await store.collect([], grace=GRACE) == [key]
        assert note.exists()

    with_clock(tmp_path, work)


CONTENT = b"wanted by one, unwanted by the other"
KEY = key_of(CONTENT)


class TwoProcesses:
    """Two shelves over one directory, which know nothing of each other, and an old file of ada's on it."""

    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        self.one, self.other = Shelf(root, self.clock), Shelf(root, self.clock)
        self.one.open()
        self.put(ADA)
        self.clock.time += GRACE + 1

    def put(self, mark: str) -> None:
        upload = finished_upload(self.one.uploads, CONTENT, self.clock())
        self.one.install(upload, KEY, mark)
        upload.discard()

    def collect(self) -> list[BlobKey]:
        return self.other.collect(KEY[:2], [], GRACE)


SEEDS = range(200)


def test_refresh_of_a_file_that_is_taken_away_meanwhile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time can be set while it is already judged: only that it is still there afterwards proves that it stays."""
    path = tmp_path / "x"
    path.touch()

    def taken_away_first(target: Path, when: float) -> None:
        assert disk.take_away(path, lambda _: True)  # and our call, which had found the file before, sets its time

    monkeypatch.setattr(disk, "set_time", taken_away_first)
    assert not disk.refresh(path, 0.0)


@pytest.mark.parametrize("mark", [ADA, BOB], ids=["the owner", "another owner"])
def test_upload_in_the_instant_of_a_collection_by_another_process_is_whole_or_refused(
    tmp_path: Path, mark: str
) -> None:
    """I13, I17: in whatever order their steps fall, a file that was acknowledged is there."""
    kept = 0
    for seed in SEEDS:
        two = TwoProcesses(tmp_path / str(seed))
        order = Interleaving(seed)
        put, _ = order.run(lambda two=two: two.put(mark), two.collect)  # type: ignore[misc]
        there = two.one.open_file(KEY, mark)
        if put is None:
            kept += 1
            assert there is not None, (seed, order.trace)
            assert two.one.sound(KEY, there)
            assert two.collect() == []  # it is young
        else:
            assert isinstance(put, BlobNotFoundError), (seed, put, order.trace)
    assert kept > len(SEEDS) / 2


def test_touch_in_the_instant_of_a_collection_by_another_process_keeps_the_file_or_says_that_it_is_gone(
    tmp_path: Path,
) -> None:
    """I13: a job is accepted only with files that stay."""
    outcomes = set()
    for seed in SEEDS:
        two = TwoProcesses(tmp_path / str(seed))
        order = Interleaving(seed)
        touched, collected = order.run(lambda two=two: two.one.refresh(KEY), two.collect)  # type: ignore[misc]
        if touched is True:
            assert two.one.find(KEY, ADA) is not None, (seed, order.trace)
            assert collected == [], (seed, order.trace)
        outcomes.add(touched)
    assert outcomes == {True, False}


def test_upload_in_the_instant_in_which_the_last_owner_deletes_is_whole_or_refused(tmp_path: Path) -> None:
    for seed in SEEDS:
        two = TwoProcesses(tmp_path / str(seed))
        order = Interleaving(seed)
        put, deleted = order.run(lambda two=two: two.put(BOB), lambda two=two: two.other.release(KEY, ADA))  # type: ignore[misc]
        assert deleted is True
        assert two.one.find(KEY, ADA) is None
        if put is None:
            assert two.one.find(KEY, BOB) is not None, (seed, order.trace)
        else:
            assert isinstance(put, BlobNotFoundError), (seed, put, order.trace)


def test_two_collectors_remove_a_file_once(tmp_path: Path) -> None:
    for seed in SEEDS:
        two = TwoProcesses(tmp_path / str(seed))
        order = Interleaving(seed)
        results = order.run(two.collect, lambda two=two: two.one.collect(KEY[:2], [], GRACE))  # type: ignore[misc]
        assert sorted(map(str, results)) == sorted(["[]", str([KEY])]), (seed, order.trace)
        assert all_files(tmp_path / str(seed)) == []


def test_opening_in_the_instant_of_a_collection_undoes_it_or_does_not(tmp_path: Path) -> None:
    outcomes = set()
    for seed in SEEDS:
        two = TwoProcesses(tmp_path / str(seed))
        order = Interleaving(seed)
        shard = tmp_path / str(seed) / KEY[:2]
        collected, mended = order.run(two.collect, lambda shard=shard, two=two: disk.put_back(shard, two.clock()))  # type: ignore[misc]
        assert mended is None, (seed, mended)
        outcomes.add(str(collected))
        there = stored_files(tmp_path / str(seed))
        assert there == ([] if collected == [KEY] else [f"{KEY[:2]}/{KEY}"]), (seed, collected, order.trace)
    assert outcomes == {"[]", str([KEY])}


def test_touch_and_collection_and_opening_in_one_instant(tmp_path: Path) -> None:
    """Three processes: whatever each of them undoes of the others, nobody is told wrongly, and none of them breaks."""
    for seed in SEEDS:
        two = TwoProcesses(tmp_path / str(seed))
        order = Interleaving(seed)
        shard = tmp_path / str(seed) / KEY[:2]
        touched, collected, mended = order.run(
            lambda two=two: two.one.refresh(KEY),  # type: ignore[misc]
            two.collect,
            lambda shard=shard, two=two: disk.put_back(shard, two.clock()),  # type: ignore[misc]
        )
        assert (touched in (True, False), collected in ([], [KEY]), mended) == (True, True, None), (seed, order.trace)
        if touched is True:
            assert two.one.find(KEY, ADA) is not None, (seed, order.trace)
        if collected == [KEY]:
            assert stored_files(tmp_path / str(seed)) == [], (seed, order.trace)
