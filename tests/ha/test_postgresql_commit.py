"""A COMMIT without an answer: what was written may be there or not, and nobody is told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

import pytest
from tests.ha.postgresql_nodes import a_cluster, database_of, lead, node
from tests.support.postgresql import PostgreSqlServer, url_of

from firesteel.concurrency import Backoff
from firesteel.errors import StoreUnavailableError
from firesteel.ha.protocols import NEW, Stored
from firesteel.ha.retrying import RetryingStore
from firesteel.ha.sql.database import UndoneError
from firesteel.testing.ha_contract.harness import eventually

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]

Loss = Literal["request", "answer"]


class CommitProxy:
    """Stands before a server. The next COMMIT after `lose` is cut off, before or after the server has got it."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._loss: Loss | None = None
        self.lost = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def lose(self, loss: Loss) -> None:
        self.lost.clear()
        self._loss = loss

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            for way in ((client, server), (server, client)):
                self._threads.append(threading.Thread(target=self._pass_on, args=way, daemon=True))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if target.getpeername()[1] == self._server and b"COMMIT\0" in data and self._loss is not None:
                    loss, self._loss = self._loss, None
                    if loss == "answer":
                        source.shutdown(socket.SHUT_WR)  # nothing reaches the client any more
                        target.sendall(data)
                        target.shutdown(socket.SHUT_WR)
                        while target.recv(65536):  # until the server has done it and gone
                            pass
                    self.lost.set()
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def proxy(postgresql: PostgreSqlServer) -> Iterator[CommitProxy]:
    with contextlib.closing(CommitProxy(postgresql.port)) as made:
        yield made


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_connection_that_is_cut_in_a_commit(postgresql: PostgreSqlServer, proxy: CommitProxy, loss: Loss) -> None:
    async def main() -> None:
        cluster_id = a_cluster()
        async with (
            node(url_of(proxy.port), cluster_id=cluster_id) as services,
            node(postgresql.url, cluster_id=cluster_id) as other,
        ):
            _, listener, epoch = await lead(services)
            before = await services.store.put("a", b"old", epoch=epoch)
            proxy.lose(loss)
            with pytest.raises(StoreUnavailableError, match="may or may not have happened") as caught:
                await services.store.put("a", b"new", epoch=epoch, expected=before)
            assert not isinstance(caught.value, UndoneError)  # which would have been tried again, on a doubt
            assert proxy.lost.wait(10)
            found = await other.store.get("a")
            assert found is not None
            assert found == Stored(b"old", before) if loss == "request" else found.value == b"new"
            # And it works again, with another connection.
            assert await services.store.put("a", b"newest", epoch=epoch) > found.version
            assert listener.events == ["grant"]

    asyncio.run(main())


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_repeated_write_happens_once_whether_its_first_commit_did_or_not(
    postgresql: PostgreSqlServer, proxy: CommitProxy, loss: Loss
) -> None:
    async def main() -> None:
        async with node(url_of(proxy.port)) as services:
            _, _, epoch = await lead(services)
            store = RetryingStore(services.store, Backoff(0.01, 0.05))
            proxy.lose(loss)
            version = await store.put("a", b"once", epoch=epoch, expected=NEW)
            assert await services.store.get("a") == Stored(b"once", version)
            proxy.lose(loss)
            assert await store.delete("a", epoch=epoch, expected=version) is True
            assert await services.store.get("a") is None

    asyncio.run(main())


async def waits_for_a_standby(server: PostgreSqlServer, mark: str) -> str:
    """The process of the server that waits in its COMMIT."""
    found: list[str] = []

    async def waiting() -> bool:
        found[:] = server.sql(
            f"SELECT pid FROM pg_stat_activity WHERE application_name = '{mark}' AND wait_event = 'SyncRep'"
        )
        return bool(found)

    await eventually(waiting)
    return found[0]


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_commit_whose_waiting_for_a_standby_was_ended_is_not_called_done(
    postgresql: PostgreSqlServer, end: str
) -> None:
    """PostgreSQL calls it done, with a warning. After a failover it may not be there."""

    async def main() -> None:
        async with node(postgresql.url) as services:
            _, _, epoch = await lead(services)
            with postgresql.setting("synchronous_standby_names", "nobody"):
                writing = asyncio.create_task(services.store.put("a", b"", epoch=epoch))
                pid = await waits_for_a_standby(postgresql, database_of(services)._target.session)
                postgresql.sql(f"SELECT pg_{end}_backend({pid})")
                with pytest.raises(StoreUnavailableError):
                    await writing
            assert await services.store.put("b", b"", epoch=epoch)

    asyncio.run(main())


def test_commit_that_waits_for_a_standby_for_too_long_is_given_up(postgresql: PostgreSqlServer) -> None:
    """No timeout of the server's ends it. Who leads loses its lease meanwhile, in order, and leads again when it is over."""

    async def main() -> None:
        async with node(postgresql.url, lease=6.0) as services:
            driver, listener, epoch = await lead(services)
            with postgresql.setting("synchronous_standby_names", "nobody"):
                with pytest.raises(StoreUnavailableError, match="may or may not have happened"):
                    await services.store.put("a", b"", epoch=epoch)
                await listener.until(lambda: "revoke" in listener.events)
                assert not driver.holds(epoch)
            assert await listener.granted() > epoch
            assert listener.events == ["grant", "revoke", "grant"]

    asyncio.run(main())
