"""Uploads that go wrong, and many at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.blob.blob_tools import Clock, all_files, chunks, key_of, read, stored_files, with_store

from firesteel.blob.keys import BlobKey
from firesteel.blob.shelf import PIECE
from firesteel.blob.store import BlobStore
from firesteel.blob.upload import IncomingBlob
from firesteel.errors import BlobNotFoundError

WRITER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from firesteel.blob.shelf import PIECE
    from firesteel.blob.store import BlobStore

    async def parts():
        yield bytes(PIECE)
        yield bytes(PIECE)
        print("half-way", flush=True)
        await asyncio.Event().wait()

    async def main():
        store = BlobStore(Path(sys.argv[1]), max_size=1 << 30, quota=1 << 30)
        await store.open()
        await store.put(parts(), owner="ada")

    asyncio.run(main())
    """
)


async def later_store(root: Path) -> BlobStore:
    """A store whose clock is an hour ahead, so that leftovers are old."""
    clock = Clock()
    clock.time = os.stat(root).st_mtime + 3600
    store = BlobStore(root, max_size=1 << 30, quota=1 << 30, now=clock)
    await store.open()
    return store


def test_writer_that_is_killed_leaves_nothing_readable_and_its_leftover_goes(tmp_path: Path) -> None:
    """I17, F1, F19: kill -9 in the middle; and while it lives, another process leaves its upload alone."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half-way\n"

        async def while_it_lives() -> None:
            store = await later_store(tmp_path)
            assert await store.list(None) == []
            await store.close()

        asyncio.run(while_it_lives())
        (part,) = stored_files(tmp_path)
        assert part.startswith("uploads/")
        assert (tmp_path / part).stat().st_size == 2 * PIECE
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()

    async def afterwards() -> None:
        store = await later_store(tmp_path)
        assert all_files(tmp_path) == []
        assert await store.list(None) == []
        with pytest.raises(BlobNotFoundError):
            await store.info(key_of(bytes(2 * PIECE)))
        assert (await store.put(chunks(bytes(2 * PIECE)), owner="ada")).size == 2 * PIECE
        await store.close()

    asyncio.run(afterwards())


def test_young_leftover_is_left_alone(tmp_path: Path) -> None:
    """Its upload may have made it this instant, and not locked it yet."""
    with_store(tmp_path, BlobStore.open)
    (tmp_path / "uploads" / "x.part").write_bytes(b"x")
    with_store(tmp_path, BlobStore.open)
    assert all_files(tmp_path) == ["uploads/x.part"]
    asyncio.run(_open_later(tmp_path))
    assert all_files(tmp_path) == []


async def _open_later(root: Path) -> None:
    await (await later_store(root)).close()


@pytest.mark.parametrize("sent", [0, 1, PIECE, 3 * PIECE + 5])
def test_cancelled_upload_leaves_nothing(tmp_path: Path, sent: int) -> None:
    async def work(store: BlobStore) -> None:
        waiting = asyncio.Event()

        async def stalls() -> AsyncIterator[bytes]:
            yield bytes(sent)
            waiting.set()
            await asyncio.Event().wait()

        upload = asyncio.create_task(store.put(stalls(), owner="ada"))
        await waiting.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert all_files(tmp_path) == []
        await store.put(chunks(bytes(1 << 22)), owner="ada")  # and holds nothing of the quota

    with_store(tmp_path, work, quota=1 << 22)


@pytest.mark.parametrize("step", ["write", "finish", "discard"])
def test_cancellation_while_a_thread_writes_waits_for_it_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A thread that still wrote after the clean-up would leave a file that nobody knows."""

    async def work(store: BlobStore) -> None:
        loop = asyncio.get_running_loop()
        real = getattr(IncomingBlob, step)

        def slow(self: IncomingBlob, *args: object) -> object:
            loop.call_soon_threadsafe(upload.cancel)
            cancelled = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)  # the loop has gone on
            cancelled.result(60)
            return real(self, *args)

        monkeypatch.setattr(IncomingBlob, step, slow)
        upload = asyncio.create_task(store.put(chunks(b"x" * PIECE, b"y"), owner="ada"))
        with pytest.raises(asyncio.CancelledError):
            await upload

    with_store(tmp_path, work)
    key = key_of(b"x" * PIECE + b"y")
    assert stored_files(tmp_path) == ([f"{key[:2]}/{key}"] if step == "discard" else [])


def test_cancellation_in_the_last_instant_leaves_a_whole_file_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: BlobStore) -> None:
        real = os.replace
        loop = asyncio.get_running_loop()

        def slow(source: Path, target: Path) -> None:
            real(source, target)
            loop.call_soon_threadsafe(upload.cancel)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(60)

        monkeypatch.setattr(os, "replace", slow)
        upload = asyncio.create_task(store.put(chunks(b"x" * 5000), owner="ada"))
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert await read(store, key_of(b"x" * 5000), "ada") == b"x" * 5000
        assert await store.usage("ada") == 5000

    with_store(tmp_path, work)


def test_parallel_uploads_of_the_same_and_of_other_content(tmp_path: Path) -> None:
    contents = [bytes([n]) * 300_000 for n in range(4)]

    async def parts(content: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(content), 10_000):
            yield content[at : at + 10_000]
            await asyncio.sleep(0)

    async def work(store: BlobStore) -> None:
        uploads = [store.put(parts(c), owner=o) for c in contents for o in ("ada", "bob") for _ in range(3)]
        infos = await asyncio.gather(*uploads)
        assert {i.key for i in infos} == {key_of(c) for c in contents}
        for content in contents:
            assert await read(store, key_of(content), "bob") == content
        assert await store.usage("ada") == 4 * 300_000

    with_store(tmp_path, work)
    assert len(stored_files(tmp_path)) == 4


def test_nothing_can_be_read_before_the_upload_has_ended(tmp_path: Path) -> None:
    """I17."""

    async def work(store: BlobStore) -> None:
        content = b"x" * (2 * PIECE)
        key = BlobKey(key_of(content))
        seen = []

        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(content), PIECE // 2):
                yield content[at : at + PIECE // 2]
                seen.append(await store.visible(key, None))

        await store.put(parts(), owner="ada", expected=key)
        assert seen == [False] * 4
        assert await store.visible(key, "ada")

    with_store(tmp_path, work)
