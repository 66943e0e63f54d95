"""A leader in doubt: revoked by its own clock, and contending again."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder


@contextlib.asynccontextmanager
async def node(directory: Path, *, lease: float) -> AsyncIterator[SqlHighAvailabilityServices]:
    url = f"sqlite:///{directory / 'cluster.db'}"
    services = await SqlHighAvailabilityServices.open(url, cluster_id="test", lease_duration=lease)
    try:
        yield services
    finally:
        await services.close()


@pytest.mark.slow
def test_leader_that_cannot_renew_is_revoked_before_its_lease_ends(tmp_path: Path) -> None:
    """Also while a renewal hangs: the database is locked for longer than the lease."""

    async def main() -> None:
        async with node(tmp_path, lease=6.0) as services:
            driver, listener = services.election("node"), Recorder()
            await driver.start(listener)
            first = await listener.granted()
            with contextlib.closing(sqlite3.connect(tmp_path / "cluster.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                locked = time.monotonic()
                await listener.until(lambda: "revoke" in listener.events)
                assert time.monotonic() - locked < 6.0
                assert not driver.holds(first)
                other.execute("ROLLBACK")
            assert await listener.granted() > first
            assert listener.events == ["grant", "revoke", "grant"]

    asyncio.run(main())


@pytest.mark.slow
def test_leader_stays_leader_over_many_leases(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, lease=9.0) as one, node(tmp_path, lease=9.0) as other:
            driver, listener, waiting = one.election("one"), Recorder(), Recorder()
            await driver.start(listener)
            epoch = await listener.granted()
            await other.election("other").start(waiting)
            deadline = time.monotonic() + 11
            while time.monotonic() < deadline:
                assert driver.holds(epoch)
                await asyncio.sleep(0.01)
            assert listener.events == ["grant"]
            assert waiting.events == []

    asyncio.run(main())


def test_leader_that_finds_another_epoch_is_revoked(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, lease=6.0) as services:
            driver, listener = services.election("node"), Recorder()
            await driver.start(listener)
            first = await listener.granted()
            with contextlib.closing(sqlite3.connect(tmp_path / "cluster.db")) as other, other:
                other.execute("UPDATE firesteel_leadership SET epoch = 41, holder = '', renewals = 0")
            await listener.until(lambda: len(listener.events) == 3)
            assert listener.events == ["grant", "revoke", "grant"]
            assert listener.epochs == [first, 42]

    asyncio.run(main())


def test_take_over_that_was_not_waited_for_is_given_up_on_close(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path, lease=LONG_LEASE) as services:
            for pauses in range(10):  # closes at different points of the first take-over
                driver = services.election("brief")
                await driver.start(Recorder())
                for _ in range(pauses):
                    await asyncio.sleep(0.001)
                await driver.close()
                assert await services.election("looks").leader() is None

    asyncio.run(main())
