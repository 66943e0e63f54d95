"""Copies for the processes of jobs, whose code may do anything to them."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.blob.blob_tools import all_files, chunks, key_of, read, with_store

from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.blob.shelf import PIECE, OpenBlob
from firesteel.blob.store import BlobStore
from firesteel.errors import BlobNotFoundError, StoreFailingError

CONTENT = b"print('hello')\n" * (2 * PIECE // 15)
KEY = key_of(CONTENT)
REF = BlobRef(KEY, "job.py")


async def delivered(store: BlobStore, into: Path) -> Path:
    await store.put(chunks(CONTENT), owner="ada")
    return await store.materialize(REF, into)


def test_copy_is_read_only_and_lies_under_the_name_that_the_job_gave(tmp_path: Path) -> None:
    job = tmp_path / "job"

    async def work(store: BlobStore) -> None:
        path = await delivered(store, job)
        assert path == job / KEY[:16] / "job.py"
        assert path.read_bytes() == CONTENT
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        other = await store.materialize(BlobRef(KEY, "other.py"), job)
        assert other.read_bytes() == CONTENT
        assert all_files(job) == [f"{KEY[:16]}/job.py", f"{KEY[:16]}/other.py"]

    with_store(tmp_path / "blobs", work)


def test_job_that_writes_into_its_copy_changes_no_stored_byte(tmp_path: Path) -> None:
    """S22: the next job that names the file gets what was uploaded. A hard link would give it what the first one wrote."""

    async def work(store: BlobStore) -> None:
        path = await delivered(store, tmp_path / "job-1")
        path.chmod(0o600)
        path.write_bytes(b"evil")
        assert await read(store, KEY) == CONTENT
        assert (await store.materialize(REF, tmp_path / "job-2")).read_bytes() == CONTENT

    with_store(tmp_path / "blobs", work)


def written(path: Path) -> None:
    path.chmod(0o600)
    with path.open("r+b") as f:
        f.write(b"evil")


def written_and_hidden(path: Path) -> None:
    before = path.stat()
    written(path)
    path.chmod(0o400)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def linked_elsewhere(path: Path) -> None:
    os.link(path, path.with_name("link"))


def made_writable(path: Path) -> None:
    path.chmod(0o600)


def made_a_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def made_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def removed(path: Path) -> None:
    path.unlink()


MISDEEDS = [written, written_and_hidden, linked_elsewhere, made_writable, made_a_link, made_a_pipe, removed]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_copy_that_was_tampered_with_is_replaced(
    tmp_path: Path, misdeed: Callable[[Path], None], restarted: bool
) -> None:
    """The code of an earlier attempt leaves no trap for the next one."""
    job = tmp_path / "job"

    async def first(store: BlobStore) -> None:
        await delivered(store, job)
        if not restarted:
            misdeed(job / KEY[:16] / "job.py")
            await second(store)

    async def second(store: BlobStore) -> None:
        path = await store.materialize(REF, job)
        assert not path.is_symlink()
        there = path.stat()
        assert stat.S_ISREG(there.st_mode)
        assert there.st_nlink == 1
        assert stat.S_IMODE(there.st_mode) == 0o400
        assert path.read_bytes() == CONTENT

    with_store(tmp_path / "blobs", first)
    if restarted:
        misdeed(job / KEY[:16] / "job.py")
        with_store(tmp_path / "blobs", second)


def test_directory_that_was_made_a_link_is_not_written_through(tmp_path: Path) -> None:
    """S4: code of the job could point it anywhere."""
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    job.mkdir()
    elsewhere.mkdir()
    (job / KEY[:16]).symlink_to(elsewhere)

    async def work(store: BlobStore) -> None:
        with pytest.raises(StoreFailingError, match="could not copy the file"):
            await delivered(store, job)

    with_store(tmp_path / "blobs", work)
    assert list(elsewhere.iterdir()) == []


def test_again_is_cheap_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "job"
    reads = 0
    real = OpenBlob.read

    def counted(self: OpenBlob, count: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        return real(self, count, offset)

    monkeypatch.setattr(OpenBlob, "read", counted)

    async def work(store: BlobStore) -> None:
        path = await delivered(store, job)
        before, inode = reads, path.stat().st_ino
        assert before > 0
        for _ in range(3):
            assert await store.materialize(REF, job) == path
        assert (reads, path.stat().st_ino) == (before, inode)

    async def restarted(store: BlobStore) -> None:
        before, inode = reads, (job / KEY[:16] / "job.py").stat().st_ino
        path = await store.materialize(REF, job)
        assert (reads, path.stat().st_ino) == (before, inode)  # the copy was read, and nothing was copied

    with_store(tmp_path / "blobs", work)
    with_store(tmp_path / "blobs", restarted)


def test_many_at_once_get_the_same_whole_file(tmp_path: Path) -> None:
    job = tmp_path / "job"

    async def work(store: BlobStore) -> None:
        await store.put(chunks(CONTENT), owner="ada")
        paths = await asyncio.gather(*[store.materialize(REF, job) for _ in range(8)])
        assert len(set(paths)) == 1
        assert paths[0].read_bytes() == CONTENT
        assert all_files(job) == [f"{KEY[:16]}/job.py"]

    with_store(tmp_path / "blobs", work)


def test_file_with_the_same_first_digits_and_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """64 bits of a digest can be made to collide by who wants to; the content decides."""
    job = tmp_path / "job"

    async def work(store: BlobStore) -> None:
        path = job / KEY[:16] / "job.py"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"another file, of a key that begins the same")
        path.chmod(0o400)
        assert (await delivered(store, job)).read_bytes() == CONTENT

    with_store(tmp_path / "blobs", work)


def test_missing_file_is_named(tmp_path: Path) -> None:
    async def work(store: BlobStore) -> None:
        with pytest.raises(BlobNotFoundError, match=KEY):
            await store.materialize(REF, tmp_path / "job")

    with_store(tmp_path / "blobs", work)
    assert not (tmp_path / "job").exists()


def test_full_disk_leaves_no_half_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "job"

    async def work(store: BlobStore) -> None:
        await store.put(chunks(CONTENT), owner="ada")
        real, writes = os.write, 0

        def full(fd: int, data: memoryview) -> int:
            nonlocal writes
            writes += 1
            if writes == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data[:1000])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StoreFailingError, match="disk is full"):
            await store.materialize(REF, job)
        monkeypatch.setattr(os, "write", real)
        assert all_files(job) == []
        assert (await store.materialize(REF, job)).read_bytes() == CONTENT

    with_store(tmp_path / "blobs", work)


@pytest.mark.parametrize("good", [True, False], ids=["sound", "damaged"])
def test_copy_that_shares_blocks_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool) -> None:
    """A file system that can clone, played: the clone's bytes decide, and nothing is copied by hand."""
    cloned = 0

    def clone(target: int, request: int, source: int) -> int:
        nonlocal cloned
        assert request == 0x40049409
        cloned += 1
        os.write(target, os.pread(source, 1 << 30, 0) if good else b"damaged")
        return 0

    async def work(store: BlobStore) -> None:
        await store.put(chunks(b"cloned"), owner="ada")
        monkeypatch.setattr(fcntl, "ioctl", clone)
        ref = BlobRef(BlobKey(key_of(b"cloned")), "x")
        if good:
            assert (await store.materialize(ref, tmp_path / "job")).read_bytes() == b"cloned"
        else:
            with pytest.raises(BlobNotFoundError):
                await store.materialize(ref, tmp_path / "job")
        assert cloned == 1

    with_store(tmp_path / "blobs", work)
