"""Databases that cannot be used: each says which file, what is wrong and what to do, and is left as it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.small_disk import small_disk

from firesteel.errors import (
    FencingError,
    InvalidConfigError,
    StoreBrokenError,
    StoreFailingError,
    StoreUnavailableError,
)
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql import sqlite as database_module
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.ha.sql.sqlite import SqliteDatabase as Database
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder, eventually

NOBODY = 65534


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def opened(path: Path, lease: float = LONG_LEASE) -> SqlHighAvailabilityServices:
    return await SqlHighAvailabilityServices.open(url_of(path), cluster_id="test", lease_duration=lease)


async def lead(services: SqlHighAvailabilityServices) -> tuple[Recorder, Epoch]:
    listener = Recorder()
    await services.election("node").start(listener)
    return listener, await listener.granted()


def refusal(path: Path) -> str:
    """What opening says, which must be that the database is broken."""

    async def main() -> str:
        with pytest.raises(StoreBrokenError) as caught:
            await (await opened(path)).close()
        return str(caught.value)

    return asyncio.run(main())


def fill(path: Path) -> None:
    """A database with one value in it, closed."""

    async def main() -> None:
        services = await opened(path)
        _, epoch = await lead(services)
        for n in range(50):
            await services.store.put(f"a/{n}", bytes(1000), epoch=epoch)
        await services.close()

    asyncio.run(main())


@contextlib.contextmanager
def without_privileges() -> Iterator[Path]:
    """A directory of the user that the block runs as, who is not root: modes of files do not bind root."""
    directory = Path(tempfile.mkdtemp(prefix="firesteel-test-"))
    me = os.geteuid()
    if me == 0:
        os.chown(directory, NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield directory
    finally:
        os.seteuid(me)
        shutil.rmtree(directory)


def test_new_file_and_directory_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cluster.db"

    async def main() -> None:
        services = await opened(path)
        await lead(services)
        modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
        assert modes == {"cluster.db": 0o600, "cluster.db-wal": 0o600, "cluster.db-shm": 0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700
        await services.close()

    asyncio.run(main())


def test_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    content = b"these are the minutes of the last meeting\n" * 100
    path.write_bytes(content)
    said = refusal(path)
    assert f"the database {path} is not an SQLite database" in said
    assert "backup" in said
    assert path.read_bytes() == content


def test_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    assert "not a Firesteel database: it holds the tables recipes" in refusal(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


@pytest.mark.parametrize("damage", ["header", "pages", "cut"])
def test_damaged_database_is_left_alone(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cluster.db"
    fill(path)
    content = bytearray(path.read_bytes())
    match damage:
        case "header":
            content[:16] = b"\0" * 16
        case "pages":
            content[100:] = os.urandom(len(content) - 100)
        case "cut":
            del content[len(content) // 2 :]
    path.write_bytes(content)
    said = refusal(path)
    assert str(path) in said
    assert "is damaged" in said or "is not an SQLite database" in said
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", ["DROP TABLE firesteel_leadership", "DELETE FROM firesteel_leadership"])
def test_damage_that_shows_while_running_reaches_callers_and_the_election(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "cluster.db"
    fill(path)

    async def main() -> None:
        services = await opened(path, lease=3.0)
        listener, epoch = await lead(services)
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE firesteel_state")
            other.execute(damage)
        with pytest.raises(StoreBrokenError, match=r"cluster\.db"):
            await services.store.put("a/1", b"", epoch=epoch)
        with pytest.raises(StoreBrokenError, match=r"cluster\.db"):
            await services.store.get("a/1")
        await listener.until(lambda: bool(listener.errors))
        assert listener.events == ["grant", "revoke", "error"]
        assert isinstance(listener.errors[0], StoreBrokenError)
        await services.close()

    asyncio.run(main())


@pytest.mark.parametrize("replace", [False, True], ids=["deleted", "replaced"])
def test_file_that_is_taken_away_while_open_is_not_written_to_any_more(tmp_path: Path, replace: bool) -> None:
    """Else the writes would go to a file without a name, and another node could lead on a new one."""
    path = tmp_path / "cluster.db"

    async def main() -> None:
        services = await opened(path, lease=3.0)
        listener, epoch = await lead(services)
        path.unlink()
        if replace:
            path.touch()
        with pytest.raises(StoreBrokenError, match="deleted or replaced"):
            await services.store.put("a", b"", epoch=epoch)
        await listener.until(lambda: bool(listener.errors))
        assert listener.events == ["grant", "revoke", "error"]
        await services.close()

    asyncio.run(main())


def test_newer_schema_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE firesteel_meta SET schema_version = 99")
    said = refusal(path)
    assert "newer Firesteel (schema version 99; this one knows 1)" in said
    assert "install" in said


def test_file_without_leave_to_write() -> None:
    with without_privileges() as directory:
        path = directory / "cluster.db"
        fill(path)
        path.chmod(0o400)
        said = refusal(path)
        assert f"the database {path} cannot be written to" in said
        assert "make the file and its directory writable" in said


def test_directory_without_leave_to_write() -> None:
    with without_privileges() as directory:
        fill(directory / "cluster.db")
        directory.chmod(0o500)
        try:
            said = refusal(directory / "cluster.db")  # there, but its log files cannot be made
            assert "make the file and its directory writable" in said
            said = refusal(directory / "other.db")
            assert f"cannot create the database {directory / 'other.db'} (Permission denied)" in said
            said = refusal(directory / "sub" / "other.db")
            assert f"cannot create the database {directory / 'sub' / 'other.db'} (Permission denied)" in said
        finally:
            directory.chmod(0o700)


def test_directory_in_place_of_the_file(tmp_path: Path) -> None:
    assert "is not a file" in refusal(tmp_path)


def by_page_limit(services: SqlHighAvailabilityServices) -> tuple[Callable[[], None], Callable[[], None]]:
    """(fill, make space) by SQLite's own limit of the size of a database."""

    def pragma(limit: str) -> None:
        assert isinstance(services._database, Database)
        with contextlib.closing(services._database._writing.raw_connection()) as raw:
            cursor = raw.cursor()
            cursor.execute(f"PRAGMA max_page_count={limit}")
            cursor.close()

    # A limit below the present size means the present size.
    return lambda: pragma("1"), lambda: pragma("1000000")


async def full_and_back(
    services: SqlHighAvailabilityServices, fill_disk: Callable[[], None], make_space: Callable[[], None]
) -> None:
    """Writes fail while the disk is full and work again afterwards; nothing that was acknowledged is lost."""
    listener, epoch = await lead(services)
    fill_disk()
    acknowledged: list[str] = []

    async def put_until_full() -> None:
        for n in range(200):
            await services.store.put(f"a/{n}", os.urandom(8000), epoch=epoch)
            acknowledged.append(f"a/{n}")

    with pytest.raises(StoreFailingError, match=r"disk is full.*free space"):
        await put_until_full()
    with pytest.raises(StoreBrokenError, match="disk is full"):
        await services.store.put("b", os.urandom(100_000), epoch=epoch)
    assert set(await services.store.paths("a")) == set(acknowledged)
    make_space()

    async def works_again() -> bool:
        try:
            await services.store.put("c", os.urandom(8000), epoch=epoch)
        except StoreBrokenError:
            return False
        return True

    await eventually(works_again)
    assert await services.store.get("b") is None
    assert set(await services.store.paths("a")) == set(acknowledged)
    assert listener.events == ["grant"]


def test_full_database_refuses_and_is_well_again_with_space(tmp_path: Path) -> None:
    async def main() -> None:
        services = await opened(tmp_path / "cluster.db")
        await full_and_back(services, *by_page_limit(services))
        await services.close()

    asyncio.run(main())


def test_full_disk_refuses_and_is_well_again_with_space() -> None:
    with small_disk() as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk; the limit of pages is tested above")

        async def main() -> None:
            services = await opened(disk / "cluster.db")
            ballast = disk / "ballast"
            await full_and_back(services, lambda: fill_up(ballast), ballast.unlink)
            await services.close()

        def fill_up(ballast: Path) -> None:
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            ballast.write_bytes(bytes(max(0, free - 60_000)))

        asyncio.run(main())


def test_full_disk_costs_a_leader_its_lease_and_not_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute without space must not end every node of a cluster: they contend on, and one leads when there is some."""
    full = False
    original = Database.write

    @contextlib.contextmanager
    def write(self: Database) -> Iterator[Any]:
        if full:
            raise StoreFailingError("the disk is full")
        with original(self) as connection:
            yield connection

    monkeypatch.setattr(Database, "write", write)

    async def main() -> None:
        nonlocal full
        services = await opened(tmp_path / "cluster.db", lease=3.0)
        listener, epoch = await lead(services)
        full = True

        async def revoked() -> bool:
            return "revoke" in listener.events

        await eventually(revoked)
        full = False

        async def again() -> bool:
            return listener.events.count("grant") >= 2

        await eventually(again)
        assert "error" not in listener.events
        with pytest.raises(FencingError):
            await services.store.put("a", b"", epoch=epoch)
        await services.close()

    asyncio.run(main())


def test_database_that_stays_locked_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT", 0.2)
    path = tmp_path / "cluster.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")

        async def main() -> None:
            with pytest.raises(StoreUnavailableError, match=r"cluster\.db is locked"):
                await opened(path)
            other.execute("ROLLBACK")
            await (await opened(path)).close()

        asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("cluster.db", "not a database URL"),
        ("mysql://user:hunter2@host/db", "'mysql' are not supported"),
        ("nonsense://user:hunter2@host/db", "'nonsense' are not supported"),
        ("sqlite://", "does not name a regular file"),
        ("sqlite:///:memory:", "does not name a regular file"),
        ("sqlite:///file:x.db?mode=ro&uri=true", "does not name a regular file"),
    ],
)
def test_url_that_names_no_file(url: str, message: str) -> None:
    async def main() -> None:
        with pytest.raises(InvalidConfigError, match=message) as caught:
            await SqlHighAvailabilityServices.open(url, cluster_id="test", lease_duration=1)
        assert "high-availability.sql.url" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    asyncio.run(main())
