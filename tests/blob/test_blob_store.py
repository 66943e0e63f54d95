"""What goes in comes out, to its owner only."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.blob.blob_tools import (
    Clock,
    all_files,
    chunks,
    key_of,
    read,
    stored_files,
    watched_disk,
    with_store,
)

from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.blob.shelf import PIECE
from firesteel.blob.store import BlobStore
from firesteel.errors import BlobNotFoundError, InvalidRequestError, TooLargeError

CONTENTS = [b"", b"x", b"print('hello')\n" * 100, bytes(range(256)) * 4 * 1024 * 3 + b"tail"]


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_content_comes_out_as_it_went_in(tmp_path: Path, content: bytes) -> None:
    async def work(store: BlobStore) -> None:
        info = await store.put(chunks(content[:7], b"", content[7:]), owner="ada", expected=key_of(content))
        assert (info.key, info.size) == (key_of(content), len(content))
        assert await read(store, info.key, "ada") == content
        assert (await store.info(info.key)).size == len(content)

    with_store(tmp_path / "blobs", work)


def test_files_lie_under_names_of_ours_and_are_private(tmp_path: Path) -> None:
    """S5: the client's name is nowhere on the server's disk; nobody else on the machine can read."""
    root = tmp_path / "blobs"
    owner = "../../ada\0/\\"

    async def work(store: BlobStore) -> BlobKey:
        return (await store.put(chunks(b"secret"), owner=owner)).key

    key = with_store(root, work)
    assert stored_files(root) == [f"{key[:2]}/{key}"]
    assert [p.name for p in tmp_path.iterdir()] == ["blobs"]
    for path in [root, *root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_owners_and_sizes_survive_a_restart(tmp_path: Path) -> None:
    async def first(store: BlobStore) -> None:
        await store.put(chunks(b"a" * 5000), owner="ada")
        await store.put(chunks(b"b" * 6000), owner="ada")
        await store.put(chunks(b"b" * 6000), owner="bob")

    async def second(store: BlobStore) -> None:
        assert [await store.usage(o) for o in ("ada", "bob", "eve")] == [11000, 6000, 0]
        assert {i.size for i in await store.list("ada")} == {5000, 6000}
        assert await store.visible(key_of(b"a" * 5000), "ada")
        assert not await store.visible(key_of(b"a" * 5000), "bob")

    with_store(tmp_path, first)
    with_store(tmp_path, second)


def test_others_files_are_as_absent_as_those_that_nobody_has(tmp_path: Path) -> None:
    """S19: by no answer can a guess be told from a hit."""

    async def work(store: BlobStore) -> None:
        theirs = (await store.put(chunks(b"theirs"), owner="ada")).key
        nobodys = key_of(b"nobody's")
        for attempt in (store.info, store.open_read, store.delete):
            answers = []
            for key in (theirs, nobodys):
                with pytest.raises(BlobNotFoundError) as caught:
                    await attempt(key, "eve")
                answers.append(str(caught.value).replace(key, "<key>"))
            assert answers[0] == answers[1]
        with pytest.raises(BlobNotFoundError):
            await store.touch([theirs], owner="eve")
        assert not await store.visible(theirs, "eve")
        assert await store.list("eve") == []
        assert await read(store, theirs, "ada") == b"theirs"
        assert [i.key for i in await store.list(None)] == [theirs]
        assert await store.visible(theirs, None)

    with_store(tmp_path, work)


def test_upload_of_the_same_bytes_tells_nothing_of_another_owner(tmp_path: Path) -> None:
    """S19: neither its price nor its date differ, then or when the other one uses its file."""
    clock = Clock()

    async def main() -> None:
        store = BlobStore(tmp_path, max_size=100_000, quota=100_000, now=clock)
        await store.open()
        key = (await store.put(chunks(b"s" * 9000), owner="ada")).key
        clock.time += 100
        mine = await store.put(chunks(b"s" * 9000), owner="eve")
        clock.time += 100
        await store.touch([key], owner="ada")
        await store.put(chunks(b"s" * 9000), owner="ada")
        assert mine.created == pytest.approx(clock.time - 100, abs=0.01)
        assert (await store.info(key, "eve")).created == pytest.approx(mine.created, abs=0.01)
        assert await store.usage("eve") == 9000
        await store.close()

    asyncio.run(main())


def test_same_content_again_takes_no_space(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        for owner in ("ada", "ada", "bob"):
            await store.put(chunks(b"same"), owner=owner)
        assert len(stored_files(tmp_path)) == 1
        assert len(await store.list("ada")) == 1

    with_store(tmp_path, work)


def test_delete_takes_the_file_from_one_owner_and_the_bytes_with_the_last(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(b"shared"), owner="ada")).key
        await store.put(chunks(b"shared"), owner="bob")
        await store.delete(key, "ada")
        assert not await store.visible(key, "ada")
        assert await store.usage("ada") == 0
        with pytest.raises(BlobNotFoundError, match=key):
            await store.delete(key, "ada")
        assert await read(store, key, "bob") == b"shared"
        await store.delete(key, "bob")
        assert all_files(tmp_path) == []

    with_store(tmp_path, work)


def test_who_sees_all_deletes_for_all(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        for owner in ("ada", "bob"):
            await store.put(chunks(b"shared"), owner=owner)
        await store.delete(key_of(b"shared"), None)
        assert all_files(tmp_path) == []
        assert [await store.usage(o) for o in ("ada", "bob")] == [0, 0]

    with_store(tmp_path, work)


@pytest.mark.parametrize("sizes", [[101], [60, 41], [1] * 101])
def test_largest_file_is_the_limit_and_nothing_of_a_larger_one_is_left(tmp_path: Path, sizes: list[int]) -> None:
    """S24: the rest is not even read."""
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        for size in [*sizes, *[1] * 1000]:
            asked += 1
            yield bytes(size)

    async def work(store: BlobStore) -> None:
        await store.put(chunks(bytes(100)), owner="ada")
        with pytest.raises(TooLargeError, match="100 bytes"):
            await store.put(endless(), owner="bob")

    with_store(tmp_path, work, max_size=100)
    assert asked == len(sizes)
    assert len(all_files(tmp_path)) == 2


def test_content_that_is_not_what_was_announced_is_refused_with_both_digests(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            await store.put(chunks(b"what came"), owner="ada", expected=key_of(b"announced"))
        assert key_of(b"what came") in str(caught.value)
        assert key_of(b"announced") in str(caught.value)

    with_store(tmp_path, work)
    assert all_files(tmp_path) == []


def test_touch_names_all_that_are_missing(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        there = (await store.put(chunks(b"there"), owner="ada")).key
        await store.touch([there])
        with pytest.raises(BlobNotFoundError) as caught:
            await store.touch([there, key_of(b"1"), key_of(b"2")])
        assert key_of(b"1") in str(caught.value)
        assert key_of(b"2") in str(caught.value)
        assert there not in str(caught.value)

    with_store(tmp_path, work)


@pytest.mark.parametrize("key", ["../../etc/passwd", "", "..", "ab/../../x", "A" * 64])
def test_key_that_nobody_checked_makes_no_path(tmp_path: Path, key: str) -> None:
    """S4: below the doors that parse keys there is one more wall."""

    async def work(store: BlobStore) -> None:
        for attempt in (store.info, store.open_read, store.delete, store.visible):
            with pytest.raises(ValueError, match="SHA-256"):
                await attempt(BlobKey(key), None)

    with_store(tmp_path, work)


def test_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """S4."""
    root, secret = tmp_path / "blobs", tmp_path / "secret"
    secret.write_bytes(b"secret")

    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(b"secret"), owner="ada")).key
        (root / key[:2] / key).unlink()
        (root / key[:2] / key).symlink_to(secret)
        with pytest.raises(BlobNotFoundError):
            await store.open_read(key)
        with pytest.raises(BlobNotFoundError):
            await store.materialize(BlobRef(key, "x"), tmp_path / "job")
        assert not await store.visible(key, "ada")

    with_store(root, work)


def test_event_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    """Every step on the disk is taken by a thread of the store's."""
    users: set[str] = set()

    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(bytes(2 * PIECE), b"x"), owner="ada")).key
        assert len(await read(store, key, "ada")) == 2 * PIECE + 1
        assert await read(store, key, offset=2 * PIECE) == b"x"
        await store.materialize(BlobRef(key, "x"), tmp_path / "job")
        await store.touch([key])
        await store.list("ada")
        await store.list(None)
        await store.usage("ada")
        await store.collect([], grace=1000)
        await store.delete(key, "ada")

    with watched_disk(lambda _: users.add(threading.current_thread().name)):
        with_store(tmp_path / "blobs", work)
    assert users
    assert all(u.startswith("blob") for u in users), users
