"""PostgreSQL databases that cannot be used, or not yet: each says which, what is wrong and what to do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text
from tests.ha.postgresql_nodes import a_cluster, database_of, lead, node
from tests.support.postgresql import PASSWORD, QUOTED_PASSWORD, PostgreSqlServer, servers, url_of
from tests.support.waiting import until

from firesteel.errors import StoreBrokenError, StoreError, StoreUnavailableError
from firesteel.ha.protocols import Stored
from firesteel.ha.sql import services as services_module
from firesteel.ha.sql.postgresql.database import PostgreSqlDatabase
from firesteel.ha.sql.schema import MIGRATIONS
from firesteel.ha.sql.services import SqlHighAvailabilityServices
from firesteel.ports import unused_port

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services_module, "OPENING_SECONDS", 0.1)


def refusal(url: str, kind: type[StoreError] = StoreBrokenError) -> str:
    """What opening says, which never has a password in it."""

    async def main() -> str:
        with pytest.raises(kind) as caught:
            await SqlHighAvailabilityServices.open(url, cluster_id=a_cluster(), lease_duration=10)
        assert type(caught.value) is kind
        chain: BaseException | None = caught.value
        while chain is not None:
            for secret in (PASSWORD, QUOTED_PASSWORD, "hunter2"):
                assert secret not in f"{chain} {chain!r}"
            chain = chain.__cause__ or chain.__context__
        return str(caught.value)

    return asyncio.run(main())


@contextlib.contextmanager
def role(server: PostgreSqlServer, options: str = "") -> Iterator[str]:
    """A user that is nobody special, by name."""
    server.sql(f"CREATE ROLE plain LOGIN PASSWORD 'hunter2' {options}")
    try:
        yield url_of(server.port, user="plain", password="hunter2")
    finally:
        server.sql("DROP OWNED BY plain")
        server.sql("DROP ROLE plain")


def test_wrong_password_user_or_database(postgresql: PostgreSqlServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    port = postgresql.port
    said = refusal(url_of(port, password="hunter2"))
    assert f"cannot connect to the database firesteel at 127.0.0.1:{port}" in said
    assert "set the right user and password" in said
    assert "set the right user and password" in refusal(url_of(port, user="stranger"))
    assert "create it with CREATE DATABASE, or name another" in refusal(url_of(port, database="nothing"))
    assert "hunter2" not in caplog.text
    assert PASSWORD not in caplog.text


def test_nobody_there_is_out_of_reach_and_not_broken() -> None:
    said = refusal(url_of(unused_port()), StoreUnavailableError)
    assert "is out of reach; it may work later" in said
    assert "refused" in said
    assert "out of reach" in refusal("postgresql://u@no.such.host.invalid/jobs", StoreUnavailableError)


def test_server_that_comes_up_a_little_later_is_waited_for(
    postgresql: PostgreSqlServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(services_module, "OPENING_SECONDS", 60.0)

    async def main() -> None:
        await asyncio.to_thread(postgresql.stop)
        opening = asyncio.create_task(opened_and_closed(postgresql.url))
        await asyncio.to_thread(until, lambda: "tried again in" in caplog.text, "it was not tried")
        assert not opening.done()
        await asyncio.to_thread(postgresql.start)
        await opening

    asyncio.run(main())


def test_parameter_of_the_url_that_is_wrong(postgresql: PostgreSqlServer) -> None:
    assert "correct that parameter" in refusal(url_of(postgresql.port, sslmode="sometimes"))
    assert "check sslmode" in refusal(url_of(postgresql.port, sslmode="require"))


def test_user_that_may_not_make_tables(postgresql: PostgreSqlServer) -> None:
    with role(postgresql), postgresql.database("closed"):
        postgresql.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database="closed")
        url = url_of(postgresql.port, database="closed", user="plain", password="hunter2")
        said = refusal(url)
        assert "42501" in said
        assert "GRANT the user CREATE" in said
        # Once somebody else has made them, it need not.
        postgresql.sql("GRANT CREATE ON SCHEMA public TO plain", database="closed")
        asyncio.run(opened_and_closed(url))
        postgresql.sql("REVOKE CREATE ON SCHEMA public FROM plain", database="closed")
        asyncio.run(opened_and_closed(url))


async def opened_and_closed(url: str) -> None:
    async with node(url):
        pass


def test_no_connection_left(postgresql: PostgreSqlServer) -> None:
    with role(postgresql, "CONNECTION LIMIT 0") as url:
        assert "raise max_connections" in refusal(url, StoreUnavailableError)


def test_newer_schema_is_left_alone(postgresql: PostgreSqlServer) -> None:
    with postgresql.database("newer") as url:
        asyncio.run(opened_and_closed(url))
        postgresql.sql("UPDATE firesteel_meta SET schema_version = 99", database="newer")
        said = refusal(url)
        assert "newer Firesteel (schema version 99; this one knows 1)" in said
        assert postgresql.sql("SELECT schema_version FROM firesteel_meta", database="newer") == ["99"]


def test_read_only_server_is_waited_for(postgresql: PostgreSqlServer) -> None:
    with postgresql.setting("default_transaction_read_only", "on"):
        assert "is read-only now" in refusal(postgresql.url, StoreUnavailableError)
        # Who takes any server gets so far as to be refused by it.
        said = refusal(url_of(postgresql.port, target_session_attrs="any"), StoreUnavailableError)
        assert "is read-only now" in said
        assert "25006" in said


@pytest.mark.parametrize("damage", ["DROP TABLE firesteel_leadership", "DELETE FROM firesteel_leadership"])
def test_damage_that_shows_while_running_reaches_callers_and_the_election(
    postgresql: PostgreSqlServer, damage: str
) -> None:
    async def main(url: str) -> None:
        async with node(url, lease=3.0) as services:
            _, listener, epoch = await lead(services)
            postgresql.sql(f"DROP TABLE firesteel_state; {damage}", database="damaged")
            with pytest.raises(StoreBrokenError, match="restore"):
                await services.store.put("a/1", b"", epoch=epoch)
            with pytest.raises(StoreBrokenError, match="restore"):
                await services.store.get("a/1")
            await listener.until(lambda: bool(listener.errors))
            assert listener.events == ["grant", "revoke", "error"]
            assert isinstance(listener.errors[0], StoreBrokenError)

    with postgresql.database("damaged") as url:
        asyncio.run(main(url))


def test_many_make_the_tables_of_a_new_database_and_one_cluster_at_once(postgresql: PostgreSqlServer) -> None:
    cluster_id = a_cluster()
    together = threading.Barrier(6)

    def open_one(url: str) -> None:
        async def main() -> None:
            await asyncio.to_thread(together.wait)
            async with node(url, cluster_id=cluster_id) as services:
                assert await services.store.get("a") is None

        asyncio.run(main())

    with postgresql.database("fresh") as url, ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(open_one, url) for _ in range(6)]:
            done.result()
        assert postgresql.sql("SELECT count(*) FROM firesteel_leadership", database="fresh") == ["1"]


def test_many_migrate_a_database_at_once_and_one_does_it(postgresql: PostgreSqlServer) -> None:
    together = threading.Barrier(4)

    def migrate(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE firesteel_state ADD COLUMN more text"))

    def open_one(url: str) -> None:
        together.wait()
        PostgreSqlDatabase.open(url, lease_duration=10, migrations=(*MIGRATIONS, migrate)).close()

    with postgresql.database("older") as url, ThreadPoolExecutor(4) as threads:
        asyncio.run(opened_and_closed(url))
        for done in [threads.submit(open_one, url) for _ in range(4)]:
            done.result()
        assert postgresql.sql("SELECT schema_version FROM firesteel_meta", database="older") == [
            str(len(MIGRATIONS) + 2)
        ]
        assert "install that version" in refusal(url)


def test_tables_of_others_in_a_shared_database_are_no_hindrance(postgresql: PostgreSqlServer) -> None:
    with postgresql.database("shared") as url:
        postgresql.sql("CREATE TABLE recipes (name text)", database="shared")
        asyncio.run(opened_and_closed(url))


def test_loss_of_what_was_acknowledged_is_warned_of(
    postgresql: PostgreSqlServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        asyncio.run(opened_and_closed(postgresql.url))
        assert "lose" not in caplog.text
        assert "lost" not in caplog.text
        with postgresql.setting("synchronous_commit", "off"):
            asyncio.run(opened_and_closed(postgresql.url))
        assert "synchronous_commit off for this user: acknowledged jobs can be lost" in caplog.text
        caplog.clear()
        asyncio.run(opened_and_closed(url_of(postgresql.port, postgresql.port)))
        assert "a failover can lose acknowledged jobs; set synchronous_standby_names" in caplog.text


def test_fsync_that_is_off_is_warned_of(caplog: pytest.LogCaptureFixture, postgresql: PostgreSqlServer) -> None:
    with caplog.at_level(logging.WARNING), servers({"fsync": "off"}) as careless:
        asyncio.run(opened_and_closed(careless.url))
        assert "fsync off: a crash of its machine can destroy it" in caplog.text


def test_defaults_of_the_database_do_not_change_how_it_is_used(postgresql: PostgreSqlServer) -> None:
    async def main(url: str) -> None:
        async with node(url) as services:
            _, _, epoch = await lead(services)
            version = await services.store.put("a/A", b"\0\xff", epoch=epoch)
            assert await services.store.get("a/A") == Stored(b"\0\xff", version)
            with database_of(services).write() as connection:
                asked = connection.exec_driver_sql("SHOW transaction_isolation").scalar_one()
            assert asked == "read committed"

    with postgresql.database("peculiar") as url:
        for setting in (
            "default_transaction_isolation = 'serializable'",
            "bytea_output = 'escape'",
            "datestyle = 'German'",
            "timezone = 'Pacific/Kiritimati'",
            "client_encoding = 'LATIN1'",
        ):
            postgresql.sql(f"ALTER DATABASE peculiar SET {setting}")
        asyncio.run(main(url))


def test_connections_are_few_and_gone_when_closed(postgresql: PostgreSqlServer) -> None:
    async def main() -> None:
        async with node(postgresql.url) as services:
            mark = database_of(services)._target.session
            assert postgresql.sessions().count(mark) == 1  # a program that only reads a value needs no more
            _, _, epoch = await lead(services)
            await asyncio.gather(*(services.store.put(f"a/{n}", b"", epoch=epoch) for n in range(50)))
            await asyncio.gather(*(services.store.get(f"a/{n}") for n in range(50)))
            assert 3 <= postgresql.sessions().count(mark) <= 4
        deadline = asyncio.get_running_loop().time() + 10
        while mark in postgresql.sessions():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)

    asyncio.run(main())


def test_server_of_an_old_version_is_refused(postgresql: PostgreSqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.ha.sql.postgresql.database.OLDEST_SERVER", 99)
    assert "; use 99 or a newer one" in refusal(postgresql.url)


def test_repr_shows_no_password(postgresql: PostgreSqlServer) -> None:
    with contextlib.closing(PostgreSqlDatabase.open(postgresql.url, lease_duration=10)) as database:
        shown = f"{database!r} {database._writing!r} {database._writing.url!r} {database._target!r} {vars(database)}"
        assert PASSWORD not in shown
        assert QUOTED_PASSWORD not in shown
