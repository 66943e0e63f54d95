"""The index of archives: kept on disk, refreshed by what has changed, and not to be had by bad files (S16, S17)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import pickle
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.history.archived import EPOCH, details, job, put

from firesteel.errors import EnvironmentNotReadyError
from firesteel.history import archives
from firesteel.history.archives import ArchivedJobs, Retention
from firesteel.history.index import FILE
from firesteel.stores import archive_files
from firesteel.stores.history import pack


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read."""
    names: list[str] = []
    read = archive_files.ArchiveFiles.read

    def counted(self: archive_files.ArchiveFiles, name: str) -> bytes | None:
        names.append(name)
        return read(self, name)

    monkeypatch.setattr(archive_files.ArchiveFiles, "read", counted)
    return names


def opened(main: Callable[[ArchivedJobs], Awaitable[None]], urls: list[Path], index: Path, **more: Any) -> None:
    async def run() -> None:
        jobs = ArchivedJobs([str(u) for u in urls], index, **more)
        try:
            await jobs.open()
            await main(jobs)
        finally:
            await jobs.close()

    asyncio.run(run())


def ids(jobs: ArchivedJobs) -> list[str]:
    return [j.job_id for j in jobs.newest_first()]


def test_jobs_are_there_at_once_after_the_first_time_and_only_changes_are_read(
    tmp_path: Path, reads: list[str]
) -> None:
    directory, index = tmp_path / "archive", tmp_path / "index"
    for number in (1, 2, 3):
        put(directory, number)

    async def first(jobs: ArchivedJobs) -> None:
        assert ids(jobs) == []
        await jobs.refresh()
        assert ids(jobs) == [job(3), job(2), job(1)]
        assert len(reads) == 3
        await jobs.refresh()
        assert len(reads) == 3

    async def again(jobs: ArchivedJobs) -> None:
        assert ids(jobs) == [job(3), job(2), job(1)]
        assert reads == []
        new: list[str] = []
        jobs.on_new = lambda j: new.append(j.job_id)
        put(directory, 4)
        put(directory, 2, name="sums", ended_at=EPOCH + 20)
        (directory / f"{job(1)}.json.gz").unlink()
        await jobs.refresh()
        assert ids(jobs) == [job(2), job(4), job(3)]
        assert sorted(reads) == [f"{job(2)}.json.gz", f"{job(4)}.json.gz"]
        assert new == [job(4)]
        assert jobs.newest_first()[0].name == "sums"

    async def third(jobs: ArchivedJobs) -> None:
        assert ids(jobs) == [job(2), job(4), job(3)]

    opened(first, [directory], index)
    reads.clear()
    opened(again, [directory], index)
    opened(third, [directory], index)


def test_details_are_what_was_archived(tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    put(directory, 1)

    async def main(jobs: ArchivedJobs) -> None:
        await jobs.refresh()
        found = await jobs.details(job(1))
        assert found == json.loads(json.dumps({**details(1), "operations": []}))
        assert await jobs.details(job(2)) is None
        (directory / f"{job(1)}.json.gz").write_bytes(pack(job(1), details(1, owner="mallory")))
        jobs._details.clear()
        assert await jobs.details(job(1)) is None  # not what was listed, and for whom

    opened(main, [directory], tmp_path / "index")


def test_many_directories_and_the_same_job_in_two_of_them(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    put(one, 1, name="older")
    put(two, 1, name="newer", ended_at=EPOCH + 100)
    put(two, 2)

    async def main(jobs: ArchivedJobs) -> None:
        await jobs.refresh()
        assert [(j.job_id, j.name) for j in jobs.newest_first()] == [(job(1), "newer"), (job(2), "orders")]
        found = await jobs.details(job(1))
        assert found is not None
        assert found["name"] == "newer"
        (two / f"{job(1)}.json.gz").unlink()
        await jobs.refresh()
        assert [(j.job_id, j.name) for j in jobs.newest_first()] == [(job(2), "orders"), (job(1), "older")]

    opened(main, [one, two], tmp_path / "index")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (BOMBED,)


BOMBED = ""


def test_bad_archives_are_passed_over_once_and_run_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "archive"
    put(directory, 1)
    monkeypatch.setitem(globals(), "BOMBED", str(tmp_path / "bombed"))
    bad: dict[int, bytes] = {
        2: b"",
        3: pickle.dumps(Bomb()),
        4: gzip.compress(pickle.dumps(Bomb())),
        5: gzip.compress(b'{"v":1,"job_id":"%s","data":{}}' % job(5).encode()),
        6: pack(job(6), {**details(6), "status": "RUNNING"}),
        7: pack(job(7), {**details(7), "ended_at": 1e300}),
        8: pack(job(8), {**details(8), "vertices": [7]}),
        9: pack(job(9), details(10)),
        10: gzip.compress(b"[" * 300_000),
        11: pack(job(11), details(11))[:-20],
        12: pack(job(12), {**details(12), "name": "x" * 100_000}),
        13: pack(job(13), {**details(13), "owner": ["alice"]}),
        14: pack(job(14), {**details(14), "ended_at": float("nan")}),
    }
    for number, raw in bad.items():
        (directory / f"{job(number)}.json.gz").write_bytes(raw)
    os.mkfifo(directory / f"{job(30)}.json.gz")
    (directory / f"{job(31)}.json.gz").mkdir()
    (directory / "README").write_text("not an archive")

    async def main(jobs: ArchivedJobs) -> None:
        await jobs.refresh()
        assert ids(jobs) == [job(1)]
        for number in bad:
            assert job(number) in caplog.text
            assert await jobs.details(job(number)) is None
        seen = len(reads)
        await jobs.refresh()
        assert len(reads) == seen
        put(directory, 2)
        await jobs.refresh()
        assert ids(jobs) == [job(2), job(1)]

    opened(main, [directory], tmp_path / "index")
    assert not (tmp_path / "bombed").exists()


def test_retention_by_count_and_by_age_removes_archives_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    for number in range(1, 8):
        put(directory, number)
    (directory / "README").write_text("not an archive")
    (directory / f"{job(9)}.json.gz").write_bytes(b"no archive either")

    async def by_age(jobs: ArchivedJobs) -> None:
        await jobs.refresh()
        assert ids(jobs) == [job(n) for n in (7, 6, 5, 4, 3)]

    async def by_count(jobs: ArchivedJobs) -> None:
        await jobs.refresh()
        assert ids(jobs) == [job(7), job(6)]

    opened(by_age, [directory], tmp_path / "index", retention=Retention(seconds=10), now=lambda: EPOCH + 13)
    opened(by_count, [directory], tmp_path / "index", retention=Retention(jobs=2))
    left = sorted(os.listdir(directory))
    assert left == sorted([*(f"{job(n)}.json.gz" for n in (6, 7, 9)), "README"])


def test_directory_that_cannot_be_listed_keeps_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "archive"
    put(directory, 1)

    async def main(jobs: ArchivedJobs) -> None:
        await jobs.refresh()

        def fails(_: object) -> None:
            raise OSError("the network is down")

        monkeypatch.setattr(archive_files.ArchiveFiles, "list", fails)
        await jobs.refresh()
        assert ids(jobs) == [job(1)]
        assert "the network is down" in caplog.text

    opened(main, [directory], tmp_path / "index")


@pytest.mark.parametrize("damage", ["garbage", "another version", "another schema"])
def test_damaged_index_is_made_anew(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    directory, index = tmp_path / "archive", tmp_path / "index"
    put(directory, 1)
    index.mkdir(mode=0o700)
    if damage == "garbage":
        (index / FILE).write_bytes(b"no database" * 1000)
    else:
        with sqlite3.connect(index / FILE) as database:
            database.execute("create table archives (x)")
            database.execute(f"pragma user_version = {99 if damage == 'another version' else 1}")
        database.close()

    async def main(jobs: ArchivedJobs) -> None:
        await jobs.refresh()
        assert ids(jobs) == [job(1)]

    opened(main, [directory], index)
    assert "rebuilding the index" in caplog.text


def test_interrupted_first_indexing_goes_on_where_it_was(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, index = tmp_path / "archive", tmp_path / "index"
    monkeypatch.setattr(archives, "TOGETHER", 2)
    for number in range(1, 7):
        put(directory, number)

    async def dies(jobs: ArchivedJobs) -> None:
        def stop(_: object) -> None:
            raise KeyboardInterrupt

        jobs.on_new = stop
        with pytest.raises(KeyboardInterrupt):
            await jobs.refresh()

    async def goes_on(jobs: ArchivedJobs) -> None:
        assert len(ids(jobs)) == 2
        await jobs.refresh()
        assert len(ids(jobs)) == 6

    opened(dies, [directory], index)
    assert len(reads) == 2
    opened(goes_on, [directory], index)
    assert len(reads) == 6


def test_url_without_a_client_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReadyError, match=r"historyserver\.archive\.fs\.dir"):
        asyncio.run(_open(["nonsense://x"], tmp_path))


async def _open(urls: list[str], index: Path) -> None:
    jobs = ArchivedJobs(urls, index)
    try:
        await jobs.open()
    finally:
        await jobs.close()
