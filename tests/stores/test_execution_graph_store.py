from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.stores.store_doubles import job, threads_used

from firesteel.fs.files import open_plain
from firesteel.stores import codec, execution_graphs
from firesteel.stores.execution_graphs import ExecutionGraphInfoStore
from firesteel.types import JobID, new_job_id

DETAILS = {"state": "FINISHED", "vertices": [{"name": "käse", "rows": 3}], "v": 7}


def store(
    directory: Path,
    *,
    max_count: int = 100,
    max_age: float = 1000.0,
    cache_bytes: int = 100_000,
    now: float = 0.0,
    on_evict: Callable[[JobID], None] = lambda _: None,
) -> ExecutionGraphInfoStore:
    return ExecutionGraphInfoStore(
        directory,
        max_count=max_count,
        max_age=max_age,
        cache_bytes=cache_bytes,
        now=lambda: now,
        on_evict=on_evict,
    )


def files(directory: Path) -> list[str]:
    return sorted(str(f.relative_to(directory)) for f in directory.rglob("*") if f.is_file())


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read from here on."""
    seen: list[Path] = []

    def opened(path: Path) -> BinaryIO:
        seen.append(path)
        return open_plain(path)

    monkeypatch.setattr(execution_graphs, "open_plain", opened)
    return seen


def test_details_are_kept_across_a_restart_and_opening_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        first = store(tmp_path / "graphs")
        await first.open()
        await first.put(job(1), 12.3456, DETAILS)
        assert job(1) in first
        assert job(2) not in first
        assert await first.get(job(1)) == DETAILS
        assert await first.get(job(2)) is None
        assert files(tmp_path) == [f"graphs/00/{job(1)}-12346.json"]

        seen = reads(monkeypatch)
        second = store(tmp_path / "graphs")
        await second.open()
        assert second.job_ids() == [job(1)]
        assert len(second) == 1
        assert seen == []
        assert await second.get(job(1)) == DETAILS
        assert await second.get(job(1)) == DETAILS
        assert len(seen) == 1  # the second time from memory

    asyncio.run(run())


def test_what_a_caller_does_to_the_details_stays_with_the_caller(tmp_path: Path) -> None:
    async def run() -> None:
        one = store(tmp_path)
        data: dict[str, Any] = {"list": []}
        await one.put(job(1), 1.0, data)
        data["list"].append(1)
        got = await one.get(job(1))
        assert got == {"list": []}
        got["list"].append(2)
        assert await one.get(job(1)) == {"list": []}

    asyncio.run(run())


def test_memory_holds_those_used_last_and_the_disk_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        seen = reads(monkeypatch)
        text = {"text": "x" * 1000}
        one = store(tmp_path, cache_bytes=4000)  # room for three
        for number in (1, 2, 3):
            await one.put(job(number), float(number), text)
        await one.get(job(1))
        await one.put(job(4), 4.0, text)
        for number in (1, 3, 4):
            assert await one.get(job(number)) == text
        assert seen == []
        assert await one.get(job(2)) == text
        assert [p.name for p in seen] == [f"{job(2)}-2000.json"]
        await one.put(job(5), 5.0, {"text": "x" * 5000})  # more than the memory takes at all
        assert len(((await one.get(job(5))) or {})["text"]) == 5000
        assert len(seen) == 2
        assert await one.get(job(2)) == text
        assert len(seen) == 2

    asyncio.run(run())


def test_large_details_are_not_parsed_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []
    real = codec.decode

    def decode(*args: Any) -> Any:
        where.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        return real(*args)

    async def run() -> None:
        one = store(tmp_path)
        await one.put(job(1), 1.0, {"rows": list(range(10_000))})
        await one.put(job(2), 1.0, {"rows": []})
        monkeypatch.setattr(execution_graphs, "decode", decode)
        assert await one.get(job(1)) == {"rows": list(range(10_000))}
        assert await one.get(job(2)) == {"rows": []}

    asyncio.run(run())
    assert where == ["thread", "loop"]


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    async def run() -> None:
        gone: list[JobID] = []
        one = store(tmp_path, max_count=2, on_evict=gone.append)
        for number in (3, 1, 4, 2):
            await one.put(job(number), float(number), DETAILS)
        assert gone == [job(1), job(2)]
        assert set(one.job_ids()) == {job(3), job(4)}
        assert await one.get(job(1)) is None
        assert files(tmp_path) == [f"00/{job(3)}-3000.json", f"00/{job(4)}-4000.json"]

        smaller = store(tmp_path, max_count=1, on_evict=gone.append)
        await smaller.open()
        assert gone[2:] == [job(3)]
        assert files(tmp_path) == [f"00/{job(4)}-4000.json"]

    asyncio.run(run())


def test_the_old_go_by_age(tmp_path: Path) -> None:
    async def run() -> None:
        gone: list[JobID] = []
        clock = [100.0]
        one = ExecutionGraphInfoStore(
            tmp_path, max_count=10, max_age=60.0, cache_bytes=1000, now=lambda: clock[0], on_evict=gone.append
        )
        await one.put(job(1), 50.0, DETAILS)
        await one.put(job(2), 90.0, DETAILS)
        clock[0] = 110.0
        await one.expire()
        assert gone == []
        clock[0] = 111.0
        await one.expire()
        assert gone == [job(1)]
        clock[0] = 151.0
        await one.put(job(3), 150.0, DETAILS)
        assert gone == [job(1), job(2)]
        assert one.job_ids() == [job(3)]
        clock[0] = 500.0
        again = ExecutionGraphInfoStore(
            tmp_path, max_count=10, max_age=60.0, cache_bytes=1000, now=lambda: clock[0], on_evict=gone.append
        )
        await again.open()
        assert gone == [job(1), job(2), job(3)]
        assert files(tmp_path) == []

    asyncio.run(run())


def test_an_eviction_whose_callback_fails_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        def fail(job_id: JobID) -> None:
            raise OSError("no")

        one = store(tmp_path, max_count=1, on_evict=fail)
        for number in (1, 2, 3):
            await one.put(job(number), float(number), DETAILS)
        assert one.job_ids() == [job(3)]
        assert job(2) in caplog.text

    asyncio.run(run())


def test_details_put_again_replace_the_ones_before(tmp_path: Path) -> None:
    async def run() -> None:
        gone: list[JobID] = []
        one = store(tmp_path, max_count=2, on_evict=gone.append)
        await one.put(job(1), 1.0, {"n": 1})
        await one.put(job(1), 1.0, {"n": 2})
        assert await one.get(job(1)) == {"n": 2}
        await one.put(job(1), 9.0, {"n": 3})
        assert files(tmp_path) == [f"00/{job(1)}-9000.json"]
        await one.put(job(2), 2.0, DETAILS)
        await one.put(job(3), 3.0, DETAILS)
        assert gone == [job(2)]  # job 1 ended last, whatever was said of it before
        assert await one.get(job(1)) == {"n": 3}

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"", b'{"v":1,"job_id":"', b"[]", b'{"v":2}', b"\xff\xff", None])
def test_a_torn_file_counts_as_absent_and_goes_when_its_time_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    async def run() -> None:
        await store(tmp_path).put(job(1), 1.0, DETAILS)
        file = tmp_path / "00" / f"{job(1)}-1000.json"
        file.unlink() if content is None else file.write_bytes(content)
        gone: list[JobID] = []
        one = ExecutionGraphInfoStore(
            tmp_path, max_count=10, max_age=10, cache_bytes=1000, now=lambda: clock[0], on_evict=gone.append
        )
        clock = [5.0]
        await one.open()
        if content is None:  # the index comes from names, so the file went after it
            await one.put(job(1), 1.0, DETAILS)
            file.unlink()
            one._cache.clear()
        assert job(1) in one
        assert await one.get(job(1)) is None
        assert job(1) not in one
        assert one.job_ids() == []
        assert job(1) in caplog.text
        assert await one.get(job(1)) is None
        assert gone == []  # its logs may still be of use
        clock[0] = 50.0
        await one.expire()
        assert gone == [job(1)]
        assert files(tmp_path) == []

    asyncio.run(run())


def test_a_torn_file_can_be_written_anew(tmp_path: Path) -> None:
    async def run() -> None:
        await store(tmp_path).put(job(1), 1.0, DETAILS)
        (tmp_path / "00" / f"{job(1)}-1000.json").write_bytes(b"{")
        gone: list[JobID] = []
        one = store(tmp_path, on_evict=gone.append)
        await one.open()
        assert await one.get(job(1)) is None
        await one.put(job(1), 1.0, {"n": 2})
        assert await one.get(job(1)) == {"n": 2}
        assert gone == []

    asyncio.run(run())


def test_opening_tidies_up_after_a_crash_and_leaves_other_files_alone(tmp_path: Path) -> None:
    async def run() -> None:
        await store(tmp_path).put(job(1), 1.0, {"n": 1})
        part = tmp_path / "00"
        newer = (part / f"{job(1)}-1000.json").read_bytes().replace(b'"n":1', b'"n":2')
        (part / f"{job(1)}-5000.json").write_bytes(newer)
        old, young = part / f".{job(2)}-1.json.77.tmp", part / f".{job(3)}-1.json.77.tmp"
        for temporary in (old, young):
            temporary.write_bytes(b"x")
        os.utime(old, (time.time() - 3600,) * 2)
        (part / "notes.txt").write_text("mine")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / f"{job(4)}-1.json").write_text("{}")
        one = store(tmp_path)
        await one.open()
        assert one.job_ids() == [job(1)]
        assert await one.get(job(1)) == {"n": 2}
        assert files(tmp_path) == sorted(
            [
                f"00/{job(1)}-5000.json",
                f"00/{young.name}",
                "00/notes.txt",
                f"elsewhere/{job(4)}-1.json",
            ]
        )

    asyncio.run(run())


def test_a_disk_that_takes_nothing_is_told_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        one = store(tmp_path)
        await one.put(job(1), 1.0, {"n": 1})

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(execution_graphs, "write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            await one.put(job(1), 2.0, {"n": 2})
        with pytest.raises(OSError, match="No space"):
            await one.put(job(2), 2.0, {"n": 2})
        assert one.job_ids() == [job(1)]
        assert await one.get(job(1)) == {"n": 1}

    asyncio.run(run())


def test_ten_thousand_jobs_open_off_the_loop_into_little_memory(tmp_path: Path) -> None:
    for part in range(256):
        (tmp_path / f"{part:02x}").mkdir()
    for number in range(10_000):
        job_id = new_job_id()
        (tmp_path / job_id[:2] / f"{job_id}-{1_700_000_000_000 + number}.json").touch()

    async def run() -> None:
        one = store(tmp_path, max_count=10_000, now=1_700_000_000.0)
        threads = await threads_used(one.open())
        assert len(one) == 10_000
        assert threads, "the loop did it itself"

        lean = store(tmp_path, max_count=10_000, now=1_700_000_000.0)
        gc.collect()
        tracemalloc.start()
        try:
            await lean.open()
            gc.collect()
            used = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert len(lean) == 10_000
        assert used <= 5e6, f"{used / 1e6:.1f} MB"

    asyncio.run(run())
