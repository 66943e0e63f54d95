"""What the files of one owner may take together (S24), and no double counting (I21)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.blob.blob_tools import all_files, chunks, key_of, stored_files, with_store

from firesteel.blob.accounts import BLOCK
from firesteel.blob.store import BlobStore
from firesteel.errors import InvalidRequestError, QuotaExceededError

QUOTA = 100_000


def content(letter: bytes, size: int = 60_000) -> bytes:
    return letter * size


def test_owner_may_not_keep_more_than_the_quota(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        await store.put(chunks(content(b"a")), owner="ada")
        with pytest.raises(QuotaExceededError, match="100,000 bytes together: 60,000 are stored"):
            await store.put(chunks(content(b"b")), owner="ada")
        await store.put(chunks(content(b"c", 40_000)), owner="ada")
        assert await store.usage("ada") == QUOTA
        await store.put(chunks(content(b"b")), owner="bob")
        assert len(stored_files(tmp_path)) == 3

    with_store(tmp_path, work, quota=QUOTA)


def test_quota_holds_over_a_restart_and_is_free_again_after_a_delete(tmp_path: Path) -> None:
    async def fill(store: BlobStore) -> None:
        await store.put(chunks(content(b"a")), owner="ada")

    async def again(store: BlobStore) -> None:
        with pytest.raises(QuotaExceededError):
            await store.put(chunks(content(b"b")), owner="ada")
        await store.delete(key_of(content(b"a")), "ada")
        await store.put(chunks(content(b"b")), owner="ada")

    with_store(tmp_path, fill, quota=QUOTA)
    with_store(tmp_path, again, quota=QUOTA)


def test_parallel_uploads_count_together(tmp_path: Path) -> None:
    """Two uploads that fit one by one, and not both: the one that crosses the line is refused, the other one is not."""

    async def work(store: BlobStore) -> None:
        half_way = asyncio.Barrier(2)

        async def in_two_parts(letter: bytes) -> AsyncIterator[bytes]:
            yield content(letter, 30_000)
            await half_way.wait()
            yield content(letter, 30_000)

        uploads = [store.put(in_two_parts(x), owner="ada") for x in (b"a", b"b")]
        results = await asyncio.gather(*uploads, return_exceptions=True)
        assert sorted(type(r).__name__ for r in results) == ["BlobInfo", "QuotaExceededError"]
        assert await store.usage("ada") == 60_000
        await store.put(chunks(content(b"c", 40_000)), owner="ada")  # what the refused one had held is free

    with_store(tmp_path, work, quota=QUOTA)


def test_same_content_counts_once(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        same = content(b"a", 40_000)
        for _ in range(2):
            await asyncio.gather(*[store.put(chunks(same), owner="ada") for _ in range(2)])
        assert await store.usage("ada") == 40_000

    with_store(tmp_path, work, quota=4 * QUOTA)


def test_who_announces_what_it_has_may_send_it_again_with_a_full_quota(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        same = content(b"a", QUOTA)
        await store.put(chunks(same), owner="ada")
        await store.put(chunks(same[:50_000], same[50_000:]), owner="ada", expected=key_of(same))
        assert await store.usage("ada") == QUOTA

    with_store(tmp_path, work, quota=QUOTA)


def test_announcing_what_one_has_is_no_way_around_the_quota(tmp_path: Path) -> None:
    """S24: neither longer content under that name, nor many such uploads at once."""

    async def work(store: BlobStore) -> None:
        mine = content(b"a", QUOTA)
        expected = (await store.put(chunks(mine), owner="ada")).key
        with pytest.raises(QuotaExceededError):
            await store.put(chunks(mine, b"!"), owner="ada", expected=expected)
        with pytest.raises(InvalidRequestError):
            await store.put(chunks(content(b"b", QUOTA)), owner="ada", expected=expected)

        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            begun.set()
            await go_on.wait()
            yield mine

        first = asyncio.create_task(store.put(slow(), owner="ada", expected=expected))
        await begun.wait()
        with pytest.raises(QuotaExceededError):
            await store.put(chunks(mine), owner="ada", expected=expected)
        go_on.set()
        await first
        await store.put(chunks(mine), owner="ada", expected=expected)
        assert stored_files(tmp_path) == [f"{expected[:2]}/{expected}"]

    with_store(tmp_path, work, quota=QUOTA)


def test_many_small_files_are_not_free(tmp_path: Path) -> None:
    """S24: each takes a block and a name on the disk, whatever is in it."""

    async def work(store: BlobStore) -> None:
        for n in range(3):
            await store.put(chunks(b"%d" % n), owner="ada")
        with pytest.raises(QuotaExceededError):
            await store.put(chunks(b"3"), owner="ada")
        assert await store.usage("ada") == 3 * BLOCK

    with_store(tmp_path, work, quota=3 * BLOCK)


def test_refused_and_failed_uploads_hold_nothing(tmp_path: Path) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield content(b"a")
        raise ConnectionResetError("the client went away")

    async def work(store: BlobStore) -> None:
        for _ in range(3):
            with pytest.raises(ConnectionResetError):
                await store.put(breaks(), owner="ada")
        with pytest.raises(InvalidRequestError):
            await store.put(chunks(content(b"b")), owner="ada", expected=key_of(b""))
        assert await store.usage("ada") == 0
        assert all_files(tmp_path) == []
        await store.put(chunks(content(b"c", QUOTA)), owner="ada")

    with_store(tmp_path, work, quota=QUOTA)


def test_files_that_another_process_stored_count_after_the_next_collection(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        assert await store.usage("ada") == 0
        other = BlobStore(tmp_path, max_size=QUOTA, quota=QUOTA)
        await other.open()
        await other.put(chunks(content(b"a")), owner="ada")
        await other.close()
        assert await store.visible(key_of(content(b"a")), "ada")
        await store.collect([], grace=1000)
        assert await store.usage("ada") == 60_000

    with_store(tmp_path, work, quota=QUOTA)
