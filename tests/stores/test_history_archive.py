from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.stores.store_doubles import job

from firesteel.errors import EnvironmentNotReadyError
from firesteel.stores import archive_files, history
from firesteel.stores.history import ArchiveError, HistoryArchivist

DETAILS = {"state": "FINISHED", "name": "käse"}


@pytest.fixture
def memory_url() -> Iterator[str]:
    # One for the whole process: what other tests left there is not ours.
    fsspec.filesystem("memory").store.clear()
    yield "memory://archive/jobs"
    fsspec.filesystem("memory").store.clear()


def test_without_a_url_nothing_is_archived() -> None:
    async def run() -> None:
        archivist = HistoryArchivist(None)
        await archivist.archive(job(1), DETAILS)
        assert await archivist.read_archive(job(1)) is None
        assert list(await archivist.list()) == []

    asyncio.run(run())


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_local_archive_is_one_file_per_job(tmp_path: Path, form: str) -> None:
    async def run() -> None:
        directory = tmp_path / "a b[1]" / "jobs"
        archivist = HistoryArchivist(form.format(directory))
        assert list(await archivist.list()) == []
        for number in (2, 1):
            await archivist.archive(job(number), DETAILS)
        await archivist.archive(job(1), {"n": 2})
        assert sorted(os.listdir(directory)) == [f"{job(1)}.json.gz", f"{job(2)}.json.gz"]
        assert list(await archivist.list()) == [job(1), job(2)]
        assert await archivist.read_archive(job(1)) == {"n": 2}
        assert await HistoryArchivist(str(directory)).read_archive(job(2)) == DETAILS
        assert await archivist.read_archive(job(3)) is None

    asyncio.run(run())


def test_an_archive_on_an_object_store(memory_url: str) -> None:
    async def run() -> None:
        archivist = HistoryArchivist(memory_url)
        assert list(await archivist.list()) == []
        await archivist.archive(job(1), DETAILS)
        await archivist.archive(job(1), DETAILS)
        assert list(await archivist.list()) == [job(1)]
        assert await archivist.read_archive(job(1)) == DETAILS
        assert list(fsspec.filesystem("memory").store) == [f"/archive/jobs/{job(1)}.json.gz"]

    asyncio.run(run())


class RenamingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Like WebHDFS: a rename onto a file that is there is answered with success and does nothing."""

    cachable = False
    protocol = ("webhdfs",)
    refuses = False
    writes: list[str]

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        if not self.refuses and not self.exists(path2):
            self.store[path2] = self.store.pop(path1)

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        self.writes.append(path)
        super().pipe_file(path, value, **more)


def test_where_files_can_be_seen_half_written_they_are_renamed_into_place(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RenamingFileSystem()
    fs.writes = []
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda _: (fs, "/archive/jobs"))

    async def run() -> None:
        archivist = HistoryArchivist("webhdfs://host/archive/jobs")
        await archivist.archive(job(1), DETAILS)
        await archivist.archive(job(1), {"n": 2})
        assert await archivist.read_archive(job(1)) == {"n": 2}
        assert len(fs.writes) == 2
        assert f"/archive/jobs/{job(1)}.json.gz" not in fs.writes
        assert list(fs.store) == [f"/archive/jobs/{job(1)}.json.gz"]
        fs.refuses = True
        with pytest.raises(ArchiveError, match="was not renamed into place"):
            await archivist.archive(job(2), DETAILS)
        assert list(fs.store) == [f"/archive/jobs/{job(1)}.json.gz"]

    asyncio.run(run())


def test_bad_archives_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = {
        1: b"",
        2: b"\x80\x04\x95 a pickle",
        3: b"[" * 200_000,
        4: b'{"v": 9, "job_id": "%s", "data": {}}' % job(4).encode(),
        5: b'{"v": 1, "data": {}}',
        6: json.dumps({"v": 1, "job_id": job(7), "data": {}}).encode(),
        8: json.dumps({"v": 1, "job_id": job(8), "data": []}).encode(),
    }
    for number, content in bad.items():
        (tmp_path / f"{job(number)}.json").write_bytes(content)
    os.mkfifo(tmp_path / f"{job(9)}.json")
    (tmp_path / f"{job(10)}.json").mkdir()
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / f".{job(11)}.json.1.tmp").write_text("{")

    async def run() -> None:
        archivist = HistoryArchivist(str(tmp_path))
        await archivist.archive(job(12), DETAILS)
        assert list(await archivist.list()) == [*map(job, bad), job(12)]
        for number in bad:
            assert await archivist.read_archive(job(number)) is None
            assert job(number) in caplog.text
        assert await archivist.read_archive(job(9)) is None
        assert await archivist.read_archive(job(10)) is None
        assert await archivist.read_archive(job(12)) == DETAILS

    asyncio.run(run())


def test_an_archive_of_absurd_size_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        archivist = HistoryArchivist(str(tmp_path))
        await archivist.archive(job(1), DETAILS)
        monkeypatch.setattr(archive_files, "LARGEST_FILE", 10)
        assert await archivist.read_archive(job(1)) is None
        assert "too many for an archive" in caplog.text

    asyncio.run(run())


def test_a_bomb_a_torn_file_and_one_with_an_appendix_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_LARGEST", 1 << 20)
    good = history.pack(job(1), DETAILS)
    bad = {
        2: (gzip.compress(b" " * (2 << 20)), "expands to"),
        3: (history.pack(job(3), DETAILS)[:-9], "ends in the middle"),
        4: (history.pack(job(4), DETAILS) + good, "something follows"),
        5: (b"\x1f\x8bnonsense", "is not gzip"),
        6: (good, "is the record of job"),
    }
    for number, (raw, _) in bad.items():
        (tmp_path / f"{job(number)}.json.gz").write_bytes(raw)

    async def run() -> None:
        archivist = HistoryArchivist(str(tmp_path))
        for number, (_, why) in bad.items():
            caplog.clear()
            assert await archivist.read_archive(job(number)) is None
            assert why in caplog.text

    asyncio.run(run())


def test_an_archive_of_an_earlier_version_which_did_not_compress_is_read(tmp_path: Path) -> None:
    (tmp_path / f"{job(1)}.json").write_text(json.dumps({"v": 1, "job_id": job(1), "data": DETAILS}))

    async def run() -> None:
        archivist = HistoryArchivist(str(tmp_path))
        assert await archivist.read_archive(job(1)) == DETAILS
        await archivist.archive(job(1), {"n": 2})
        assert await archivist.read_archive(job(1)) == {"n": 2}
        assert list(await archivist.list()) == [job(1)]

    asyncio.run(run())


def test_an_archive_that_cannot_be_written_names_the_job_and_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def run() -> None:
        with pytest.raises(ArchiveError, match=rf"job {job(1)} could not be archived.*jobmanager\.archive\.fs\.dir"):
            await HistoryArchivist(str(tmp_path / "file" / "jobs")).archive(job(1), DETAILS)
        with pytest.raises(EnvironmentNotReadyError, match=r"jobmanager\.archive\.fs\.dir"):
            await HistoryArchivist("nonsense://x/y").archive(job(1), DETAILS)

    asyncio.run(run())
