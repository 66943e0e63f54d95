"""Elections on PostgreSQL: whose clock counts, who is woken up, and a leader whose database is not well."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest
from tests.ha.postgresql_nodes import a_cluster, database_of, lead, node
from tests.support.postgresql import PostgreSqlServer, url_of

from firesteel.errors import FencingError, StoreUnavailableError
from firesteel.ha import witness
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.lease import LeaseElectionDriver
from firesteel.ha.protocols import Epoch, LeaderInformation
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.ha.sql.postgresql.lease import EPOCHS_THAT_MAY_BE_LOST
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder, eventually

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]

LEASE = 3.0


@pytest.fixture(autouse=True)
def every_process_is_of_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a holder on this host would be known to be gone, and no lease would count."""
    monkeypatch.setattr(witness, "process_namespace", lambda: "")


def update(server: PostgreSqlServer, services: SqlHighAvailabilityServices, change: str) -> None:
    server.sql(f"UPDATE firesteel_leadership SET {change} WHERE cluster_id = '{services._cluster_id}'")


def lease_is_over(services: SqlHighAvailabilityServices) -> bool:
    """As the database sees it."""
    database = database_of(services)
    with database.read() as connection:
        return database.look(connection, services._cluster_id)[1]


async def dead_leader(url: str, cluster_id: str) -> Epoch:
    """Led, and is gone without a word, as after kill -9: no session of it is left."""
    services = await SqlHighAvailabilityServices.open(url, cluster_id=cluster_id, lease_duration=LEASE)
    driver, _, epoch = await lead(services, "dead")
    assert isinstance(driver, LeaseElectionDriver)
    await driver._tasks.close()
    driver._left = True
    await services.close()
    return epoch


def test_one_who_has_just_come_takes_over_at_once_when_the_lease_ran_out_by_the_database_clock(
    postgresql: PostgreSqlServer,
) -> None:
    async def main() -> None:
        cluster_id = a_cluster()
        epoch = await dead_leader(postgresql.url, cluster_id)
        # Its own lease is long: it would watch the row for a minute, if it had to.
        async with node(postgresql.url, lease=LONG_LEASE, cluster_id=cluster_id) as services:
            _, _, taken = await lead(services)
            assert taken == epoch + 1
            with pytest.raises(FencingError):
                await services.store.put("a", b"", epoch=epoch)

    asyncio.run(main())


def test_lease_that_runs_is_waited_for(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        cluster_id = a_cluster()
        await dead_leader(postgresql.url, cluster_id)
        async with node(postgresql.url, lease=LONG_LEASE, cluster_id=cluster_id) as services:
            update(postgresql, services, "expires_at = clock_timestamp() + interval '1 hour'")
            assert not lease_is_over(services)
            update(postgresql, services, "expires_at = clock_timestamp() - interval '1 second'")
            assert lease_is_over(services)
            update(postgresql, services, "expires_at = NULL")
            assert not lease_is_over(services)

    asyncio.run(main())


def test_clock_that_was_set_forward_does_not_replace_a_leader_that_lives(postgresql: PostgreSqlServer) -> None:
    """F12. The row is an hour too old, but its holder has sessions at the server."""

    async def main() -> None:
        cluster_id = a_cluster()
        async with (
            node(postgresql.url, lease=9.0, cluster_id=cluster_id) as one,
            node(postgresql.url, lease=9.0, cluster_id=cluster_id) as other,
        ):
            driver, listener, epoch = await lead(one)
            waiting = Recorder()
            await other.election("other").start(waiting)
            looks = 0
            while looks < 100 and driver.holds(epoch):
                update(postgresql, one, "expires_at = clock_timestamp() - interval '1 hour'")
                assert not lease_is_over(other)
                looks += 1
                await asyncio.sleep(0)  # it renews its lease meanwhile, however long this takes
            assert driver.holds(epoch)
            assert (listener.events, waiting.events) == (["grant"], [])

    asyncio.run(main())


def test_clock_that_was_set_back_costs_a_lease_and_not_an_hour(postgresql: PostgreSqlServer) -> None:
    """F12. The row says that the lease of one who is gone lasts for another hour."""

    async def main() -> None:
        cluster_id = a_cluster()
        epoch = await dead_leader(postgresql.url, cluster_id)
        async with node(postgresql.url, lease=LEASE, cluster_id=cluster_id) as services:
            update(postgresql, services, "expires_at = clock_timestamp() + interval '1 hour'")
            began = time.monotonic()
            _, _, taken = await lead(services)
            assert taken == epoch + 1
            assert time.monotonic() - began >= LEASE

    asyncio.run(main())


def test_clock_of_another_server_is_not_believed(postgresql: PostgreSqlServer) -> None:
    """F12. After a failover, or a restart, the time in the row is of a clock that nobody can ask any more."""

    async def main() -> None:
        cluster_id = a_cluster()
        epoch = await dead_leader(postgresql.url, cluster_id)
        await asyncio.to_thread(postgresql.restart)
        async with node(postgresql.url, lease=LEASE, cluster_id=cluster_id) as services:
            update(postgresql, services, "expires_at = clock_timestamp() - interval '1 hour'")
            assert not lease_is_over(services)
            began = time.monotonic()
            _, _, taken = await lead(services)
            assert time.monotonic() - began >= LEASE
            # The server may have forgotten a few that the one before had granted.
            assert taken == epoch + EPOCHS_THAT_MAY_BE_LOST

    asyncio.run(main())


def test_leader_that_lives_through_a_restart_keeps_its_epoch_and_the_next_one_is_the_next(
    postgresql: PostgreSqlServer,
) -> None:
    async def main() -> None:
        async with node(postgresql.url, lease=9.0) as services:
            driver, listener, epoch = await lead(services)
            await asyncio.to_thread(postgresql.restart)
            [then] = postgresql.sql(
                f"SELECT renewals FROM firesteel_leadership WHERE cluster_id = '{services._cluster_id}'"
            )

            async def renewed() -> bool:
                query = (
                    f"SELECT renewals > {then} FROM firesteel_leadership WHERE cluster_id = '{services._cluster_id}'"
                )
                return postgresql.sql(query) == ["t"]

            await eventually(renewed)
            assert driver.holds(epoch)
            assert listener.events == ["grant"]
            await driver.close()
            assert (await lead(services, "next"))[2] == epoch + 1

    asyncio.run(main())


# -- being told ----------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody_looks_by_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is woken up by a notification, or not at all."""
    original = LeadershipChanges.after

    async def after(self: LeadershipChanges, mark: int, timeout: float) -> None:  # noqa: ASYNC109 - as there
        await original(self, mark, 1000.0)

    monkeypatch.setattr(LeadershipChanges, "after", after)


@pytest.mark.usefixtures("nobody_looks_by_himself")
def test_contenders_and_followers_are_told_at_once(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        cluster_id = a_cluster()
        async with (
            node(postgresql.url, cluster_id=cluster_id) as one,
            node(postgresql.url, cluster_id=cluster_id) as other,
            node(postgresql.url) as of_another_cluster,
        ):
            retrieval = LeaderRetrieval(other.election("follower"), interval=1000.0)
            await retrieval.start()
            elsewhere = LeaderRetrieval(of_another_cluster.election("follower"), interval=1000.0)
            await elsewhere.start()
            driver, _, epoch = await lead(one)
            heir, new = other.election("heir"), Recorder()
            await heir.start(new)

            async def knows(leader: LeaderInformation | None) -> None:
                async def met() -> bool:
                    return retrieval.current == leader

                await eventually(met)

            await knows(LeaderInformation(epoch, ""))
            await driver.publish(epoch, "http://one")
            await knows(LeaderInformation(epoch, "http://one"))

            async def listens_elsewhere() -> bool:
                return of_another_cluster._changes.mark == 1  # told once, that it listens

            await eventually(listens_elsewhere)
            await driver.close()
            second = await new.granted()
            await heir.publish(second, "http://other")
            await knows(LeaderInformation(second, "http://other"))
            await heir.close()
            await knows(None)
            assert await listens_elsewhere()
            await retrieval.close()
            await elsewhere.close()

    asyncio.run(main())


@pytest.mark.usefixtures("nobody_looks_by_himself")
def test_ear_is_there_again_after_a_restart_and_what_it_missed_is_looked_for(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        cluster_id = a_cluster()
        async with (
            node(postgresql.url, cluster_id=cluster_id) as one,
            node(postgresql.url, cluster_id=cluster_id) as other,
        ):
            driver, _, _ = await lead(one)
            new = Recorder()
            await other.election("heir").start(new)
            await asyncio.to_thread(postgresql.stop)
            await asyncio.to_thread(postgresql.start)
            # Given up before the heir listens again, perhaps, or after: it hears of it, or looks because it is back.
            await driver.close()
            await new.granted()

    asyncio.run(main())


# -- a database that is not well -----------------------------------------------------------------------------------


def test_read_only_database_costs_a_leader_its_lease_and_not_its_life(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url, lease=LEASE) as services:
            driver, listener, epoch = await lead(services)
            version = await services.store.put("a", b"1", epoch=epoch)
            with postgresql.setting("default_transaction_read_only", "on"):
                with pytest.raises(StoreUnavailableError, match="read-only now"):
                    await services.store.put("a", b"2", epoch=epoch)
                await listener.until(lambda: "revoke" in listener.events)
                assert not driver.holds(epoch)
                with pytest.raises(StoreUnavailableError):
                    await services.store.put("a", b"2", epoch=epoch)
            again = await listener.granted()
            assert again > epoch
            assert listener.events == ["grant", "revoke", "grant"]
            found = await services.store.get("a")
            assert found is not None
            assert (found.value, found.version) == (b"1", version)
            with pytest.raises(FencingError):
                await services.store.put("a", b"2", epoch=epoch)

    asyncio.run(main())


def test_slow_database_that_holds_a_renewal_past_the_lease(postgresql: PostgreSqlServer) -> None:
    """Somebody has locked the row. The leader stops before its lease ends, though its renewal hangs, and leads again after."""

    async def main() -> None:
        async with node(postgresql.url, lease=6.0) as services:
            driver, listener, epoch = await lead(services)
            async with await psycopg.AsyncConnection.connect(postgresql.url) as other:
                query = "SELECT 1 FROM firesteel_leadership WHERE cluster_id = %s FOR UPDATE"
                await other.execute(query, [services._cluster_id])
                locked = time.monotonic()
                await listener.until(lambda: "revoke" in listener.events)
                assert time.monotonic() - locked < 6.0
                assert not driver.holds(epoch)
                await other.execute("SELECT pg_sleep(0.5)")
                await other.rollback()
            assert await listener.granted() > epoch
            assert listener.events == ["grant", "revoke", "grant"]

    asyncio.run(main())


def test_leader_stays_leader_when_its_connections_are_ended_again_and_again(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url, lease=LEASE) as services:
            driver, listener, epoch = await lead(services)
            mark = database_of(services)._target.session
            ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{mark}'"
            until = time.monotonic() + 2 * LEASE
            while time.monotonic() < until:
                await asyncio.to_thread(postgresql.sql, ended)
                await services.store.put("a", b"", epoch=epoch)
                await asyncio.sleep(0.05)
            assert driver.holds(epoch)
            assert listener.events == ["grant"]

    asyncio.run(main())


def test_server_that_is_away_for_less_than_the_lease_is_not_noticed(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(url_of(postgresql.port), lease=30.0) as services:
            driver, listener, epoch = await lead(services)
            await asyncio.to_thread(postgresql.stop)
            with pytest.raises(StoreUnavailableError, match="out of reach"):
                await services.store.put("a", b"", epoch=epoch)
            await asyncio.to_thread(postgresql.start)
            await services.store.put("a", b"", epoch=epoch)
            assert driver.holds(epoch)
            assert listener.events == ["grant"]

    asyncio.run(main())
