"""Bytes that are not what their name says are never taken for it (I17, F21)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.blob.blob_tools import Clock, all_files, chunks, key_of, read, stored_files, with_store

from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.blob.shelf import PIECE, QUARANTINED_FOR
from firesteel.blob.store import BlobStore
from firesteel.errors import BlobNotFoundError, InvalidRequestError

CONTENT = bytes(range(251)) * (3 * PIECE // 251)


def path_of(root: Path, key: BlobKey) -> Path:
    return root / key[:2] / key


def flip_last(path: Path) -> None:
    with path.open("r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as f:
        f.write(b"!")


async def gather(pieces: AsyncIterator[bytes], into: bytearray) -> None:
    async for piece in pieces:
        into += piece


DAMAGES = [flip_last, cut, empty, grow]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("content", [b"small", CONTENT], ids=["small", "large"])
def test_damaged_file_is_found_before_its_last_piece_is_given(
    tmp_path: Path, damage: Callable[[Path], None], content: bytes
) -> None:
    """F10: a torn write, a bad sector. The reader has fewer bytes than the file, and the file is put aside."""

    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(content), owner="ada")).key
        damage(path_of(tmp_path, key))
        info, pieces = await store.open_read(key, "ada")
        got = bytearray()
        with pytest.raises(BlobNotFoundError, match=f"{key} was damaged"):
            await gather(pieces, got)
        assert len(got) < max(1, info.size)
        assert len(got) < len(content)
        assert [f.split("/")[0] for f in stored_files(tmp_path)] == ["quarantine"]
        assert not await store.visible(key, "ada")
        assert await store.usage("ada") == 0
        with pytest.raises(BlobNotFoundError):
            await store.open_read(key)

    with_store(tmp_path, work)


@pytest.mark.parametrize("damage", DAMAGES)
def test_part_of_a_damaged_file_is_not_given(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key
        assert await read(store, key, offset=0, length=10) == CONTENT[:10]
        damage(path_of(tmp_path, key))  # after it was found sound once
        with pytest.raises((BlobNotFoundError, InvalidRequestError)):
            await store.open_read(key, offset=1, length=10)
        if path_of(tmp_path, key).exists():
            assert damage is empty  # there is no byte 1 in it; whoever asks for what there is finds out
            with pytest.raises(BlobNotFoundError):
                await read(store, key)
        assert [f.split("/")[0] for f in stored_files(tmp_path)] == ["quarantine"]

    with_store(tmp_path, work)


def test_damaged_file_is_not_handed_to_a_job(tmp_path: Path) -> None:
    root, job = tmp_path / "blobs", tmp_path / "job"

    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key
        flip_last(path_of(root, key))
        with pytest.raises(BlobNotFoundError, match="was damaged"):
            await store.materialize(BlobRef(key, "lib.zip"), job)
        assert all_files(job) == []
        assert [f.split("/")[0] for f in stored_files(root)] == ["quarantine"]

    with_store(root, work)


def test_upload_heals_a_damaged_file(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key
        flip_last(path_of(tmp_path, key))
        await store.put(chunks(CONTENT), owner="bob")
        assert await read(store, key, "ada") == CONTENT
        flip_last(path_of(tmp_path, key))
        with pytest.raises(BlobNotFoundError):
            await read(store, key, "ada")
        await store.put(chunks(CONTENT), owner="ada")
        assert await read(store, key, "ada") == CONTENT
        assert await store.usage("ada") == len(CONTENT)

    with_store(tmp_path, work)


def test_sound_file_that_replaced_a_damaged_one_meanwhile_is_not_put_aside(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key
        flip_last(path_of(tmp_path, key))
        _, pieces = await store.open_read(key)
        await anext(pieces)
        await store.put(chunks(CONTENT), owner="ada")
        with pytest.raises(BlobNotFoundError):
            await gather(pieces, bytearray())
        assert await read(store, key, "ada") == CONTENT
        assert stored_files(tmp_path) == [f"{key[:2]}/{key}"]

    with_store(tmp_path, work)


def test_file_that_is_being_read_can_be_deleted_and_read_to_its_end(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key
        _, pieces = await store.open_read(key, "ada")
        await store.delete(key, "ada")
        assert b"".join([p async for p in pieces]) == CONTENT

    with_store(tmp_path, work)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, 1), (0, None), (5, None), (5, 7), (PIECE - 1, 2), (len(CONTENT) - 1, 100), (len(CONTENT), None)],
)
def test_parts(tmp_path: Path, offset: int, length: int | None) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key
        _, pieces = await store.open_read(key, "ada", offset=offset, length=length)
        got = b"".join([p async for p in pieces])
        assert got == CONTENT[offset : None if length is None else offset + length]

    with_store(tmp_path, work)


@pytest.mark.parametrize(("offset", "length"), [(-1, None), (6, None), (0, -1), (3, -2)])
def test_part_that_is_not_there_is_refused(tmp_path: Path, offset: int, length: int | None) -> None:
    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(b"12345"), owner="ada")).key
        with pytest.raises(InvalidRequestError, match="has only 5 bytes"):
            await store.open_read(key, offset=offset, length=length)

    with_store(tmp_path, work)


def test_readers_that_give_up_keep_no_descriptor(tmp_path: Path) -> None:
    """F24: not begun, left in the middle, cancelled, refused."""

    async def work(store: BlobStore) -> None:
        key = (await store.put(chunks(CONTENT), owner="ada")).key

        def descriptors() -> set[str]:
            return {os.readlink(f"/proc/self/fd/{n}") for n in _open_fds()}

        for _ in range(3):
            _, not_begun = await store.open_read(key)
            _, begun = await store.open_read(key)
            await anext(begun)
            await begun.aclose()
            _, part = await store.open_read(key, offset=3)
            await anext(part)
            await part.aclose()
            with pytest.raises(InvalidRequestError):
                await store.open_read(key, offset=len(CONTENT) + 1)
            del not_begun
        assert str(path_of(tmp_path, key)) not in descriptors()

    with_store(tmp_path, work)


def _open_fds() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]


def test_quarantine_is_emptied_in_the_end(tmp_path: Path) -> None:
    """I23."""
    clock = Clock()

    async def main() -> None:
        store = BlobStore(tmp_path, max_size=1 << 24, quota=1 << 24, now=clock)
        await store.open()
        key = (await store.put(chunks(b"small"), owner="ada")).key
        flip_last(path_of(tmp_path, key))
        with pytest.raises(BlobNotFoundError):
            await read(store, key)
        clock.time += QUARANTINED_FOR - 1
        await store.collect([], grace=10)
        assert len(all_files(tmp_path)) == 1
        clock.time += 2
        await store.collect([], grace=10)
        assert all_files(tmp_path) == []
        await store.close()

    asyncio.run(main())


def test_digest_is_of_the_whole_content() -> None:
    """A control: these tests compare with a digest of their own."""
    assert key_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
