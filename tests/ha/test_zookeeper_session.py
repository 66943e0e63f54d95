"""The session with real servers, over a network that fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooState  # type: ignore[import-untyped]
from kazoo.exceptions import AuthFailedError, ConnectionLoss, NoNodeError  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    Create,
    Exists,
    GetData,
    Sync,
    Transaction,
)
from kazoo.protocol.states import KeeperState  # type: ignore[import-untyped]
from tests.ha.zookeeper_nodes import ZooKeeperCluster
from tests.support.tcp_proxy import TO_CLIENT
from tests.support.zookeeper import ZooKeeperServer

from firesteel.errors import StoreError, StoreUnavailableError
from firesteel.ha.services import open_high_availability
from firesteel.ha.zookeeper import session as session_module
from firesteel.ha.zookeeper.client import acl_of, make_client, send
from firesteel.ha.zookeeper.session import WINDOW, Session
from firesteel.ports import unused_ports
from firesteel.testing.ha_contract.harness import eventually, run

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> ZooKeeperCluster:
    return ZooKeeperCluster(zookeeper.hosts, tmp_path)


def on(cluster: ZooKeeperCluster, test: Callable[[ZooKeeperCluster], Awaitable[None]]) -> None:
    run(cluster, lambda _: test(cluster))


def when(condition: Callable[[], bool]) -> Awaitable[None]:
    async def look() -> bool:
        return condition()

    return eventually(look)


def test_servers_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    [port] = unused_ports(1)
    cluster = ZooKeeperCluster(f"127.0.0.1:{port}", tmp_path)
    configuration = cluster.configuration(cluster.hosts, 1, client__connection_timeout="300 ms")
    with pytest.raises(StoreUnavailableError, match=rf"127\.0\.0\.1:{port} could not be reached .*quorum"):
        asyncio.run(open_high_availability(configuration))


def test_host_that_is_no_host(tmp_path: Path) -> None:
    cluster = ZooKeeperCluster("no-such-host.invalid:2181", tmp_path)
    # A server beyond this machine is spoken to with a credential only.
    known = {"client__auth": "firesteel:secret", "client__acl": "creator"}
    configuration = cluster.configuration(cluster.hosts, 1, client__connection_timeout="300 ms", **known)
    with pytest.raises(StoreUnavailableError, match=r"no-such-host\.invalid"):
        asyncio.run(open_high_availability(configuration))


@pytest.mark.parametrize(("asked", "granted"), [(0.1, 0.4), (7.0, 7.0), (1000.0, 120.0)])
def test_timeout_is_the_one_that_the_servers_grant(cluster: ZooKeeperCluster, asked: float, granted: float) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open(lease=asked)
        assert services.session.timeout == pytest.approx(granted)
        assert services.session.trusted_until < time.monotonic() + granted * 0.67

    on(cluster, test)


def test_requests_queue_up_here_and_not_in_kazoo_while_nothing_passes(cluster: ZooKeeperCluster) -> None:
    """kazoo blocks whoever asks, when it has some 270 that it cannot send."""

    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        session, network = services.session, cluster.network(services)
        network.freeze()
        before = session.requests
        asked = [asyncio.ensure_future(session.read(GetData(cluster.path, None))) for _ in range(1000)]
        await when(lambda: session.requests - before >= WINDOW)
        assert len(session._unanswered) == WINDOW
        network.thaw()
        assert len(await asyncio.gather(*asked)) == 1000
        assert session._unanswered == set()

    on(cluster, test)


def test_caller_that_goes_away_costs_no_place(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        session, network = services.session, cluster.network(services)
        for _ in range(3):
            network.freeze()
            asked = [asyncio.ensure_future(session.read(GetData(cluster.path, None))) for _ in range(2 * WINDOW)]
            await asyncio.sleep(0)
            for each in asked:
                each.cancel()
            await asyncio.wait(asked)
            network.thaw()
            await session.read(GetData(cluster.path, None))
        await when(lambda: not session._unanswered)
        assert session._slots._value == WINDOW

    on(cluster, test)


def test_read_is_repeated_when_the_connection_breaks_and_a_write_is_not(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open()
        session, network = services.session, cluster.network(services)
        network.freeze(TO_CLIENT)
        reading = asyncio.ensure_future(session.read(GetData(cluster.path, None)))
        made = f"{cluster.path}/made"
        writing = asyncio.ensure_future(session.request(Create(made, b"", acl_of(services.session._options), 0)))
        with cluster.client() as client:
            await when(lambda: client.exists(made) is not None)
        network.drop()
        network.thaw()
        assert (await reading)[0]
        with pytest.raises(StoreUnavailableError, match="may or may not have been carried out"):
            await writing  # and it has
        assert await session.read(Exists(made, None)) is not None

    on(cluster, test)


def test_answers_that_are_about_a_node_come_as_they_are(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        session = (await cluster.open()).session
        with pytest.raises(NoNodeError):
            await session.read(Sync("/"), GetData("/none", None))

    on(cluster, test)


class FallsOver:
    """A request that ends kazoo's thread, as an answer that it does not understand would."""

    type = 4
    path = "/"

    def serialize(self) -> bytes:
        raise RuntimeError("falls over")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_connection_whose_thread_died_is_made_anew(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open(client__retry_wait="100 ms")
        session = services.session
        generation, died = session.generation, session._client
        others = [asyncio.ensure_future(session.read(GetData(cluster.path, None))) for _ in range(10)]
        with pytest.raises(StoreUnavailableError):
            await session.request(FallsOver())
        await asyncio.wait(others)
        assert (await session.read(GetData(cluster.path, None)))[0]
        assert session._client is not died
        assert session.generation > generation
        assert session._slots._value == WINDOW

    on(cluster, test)


def test_credentials_that_were_good_once_are_tried_again(cluster: ZooKeeperCluster) -> None:
    """A connection that breaks while they are checked looks like a refusal to kazoo."""

    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open(client__retry_wait="50 ms")
        session = services.session
        refused = session._client
        session._state_changed(KazooState.LOST, KeeperState.AUTH_FAILED, time.monotonic())

        async def answers() -> bool:
            with contextlib.suppress(StoreUnavailableError):  # one that waited while the session ended
                return bool((await session.read(GetData(cluster.path, None)))[0])
            return False

        await eventually(answers)
        assert session._broken is None
        assert session._client is not refused

    on(cluster, test)


def test_request_that_meets_a_refusal_of_good_credentials_may_be_repeated(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo says that it is connected before it has shown its credentials: there are requests for it to fail."""

    async def test(cluster: ZooKeeperCluster) -> None:
        session = (await cluster.open()).session
        refusing = lambda client, request, reply: reply.set_exception(AuthFailedError("Connection dropped in SASL"))  # noqa: E731
        with monkeypatch.context() as patch:
            patch.setattr(session_module, "send", refusing)
            with pytest.raises(StoreUnavailableError):
                await session.request(Sync("/"))
        await session.request(Sync("/"))

    on(cluster, test)


def test_connection_that_cannot_be_begun_is_tried_until_it_can(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F24: no descriptor, no thread, no certificate for a while; and a client that dies before it was ever connected."""
    made: list[Any] = []

    def make(options: Any, hosts: str) -> Any:
        made.append(hosts)
        if len(made) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        client = make_client(options, hosts)
        if len(made) == 3:
            client.start_async = lambda: None  # as if its thread had ended at once
        return client

    async def test(cluster: ZooKeeperCluster) -> None:
        session = (await cluster.open(client__retry_wait="50 ms")).session
        monkeypatch.setattr(session_module, "make_client", make)
        session._state_changed(KazooState.LOST, KeeperState.CLOSED, time.monotonic())
        session._state_changed(KazooState.LOST, KeeperState.CLOSED, time.monotonic())
        await when(lambda: len(made) == 4 and session.connected)
        assert (await session.read(GetData(cluster.path, None)))[0]

    on(cluster, test)


def test_read_is_not_repeated_in_another_session(cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """I18: the server that takes a new session may lag behind what the last one saw."""

    async def test(cluster: ZooKeeperCluster) -> None:
        session = (await cluster.open()).session
        sent: list[Any] = []

        def breaks(client: Any, request: Any, reply: Any) -> None:
            sent.append(request)
            if len(sent) == 1:
                if expires:
                    session.generation += 1
                reply.set_exception(ConnectionLoss())
            else:
                send(client, request, reply)

        monkeypatch.setattr(session_module, "send", breaks)
        expires = False
        assert (await session.read(GetData(cluster.path, None)))[0]
        assert len(sent) == 2
        sent.clear()
        expires = True
        with pytest.raises(StoreUnavailableError):
            await session.read(GetData(cluster.path, None))

    on(cluster, test)


def test_end_of_a_session_does_not_wait_for_a_silent_server(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_CLOSE_SECONDS", 0.2)

    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open(lease=2.0)
        cluster.network(services).freeze()
        await services.close()
        with pytest.raises(StoreError, match="closed"):
            await services.session.request(Sync("/"))
        cluster.network(services).drop()
        await when(lambda: not any(t.name == "zookeeper-stop" for t in threading.enumerate()))

    on(cluster, test)


def test_life_is_proven_without_being_asked_for(cluster: ZooKeeperCluster) -> None:
    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open(lease=3.0)
        session = services.session
        for _ in range(3):
            trusted = session.trusted_until
            await when(lambda trusted=trusted: session.trusted_until > trusted)  # type: ignore[misc]
        assert session.generation == 0

    on(cluster, test)


def test_read_proves_nothing_and_a_write_does(cluster: ZooKeeperCluster) -> None:
    """A server that is cut off from its leader answers reads for a while."""

    async def test(cluster: ZooKeeperCluster) -> None:
        session: Session = (await cluster.open()).session
        trusted = session.trusted_until
        await session.read(GetData(cluster.path, None))
        assert session.trusted_until == trusted
        made = Create(f"{cluster.path}/made", b"", acl_of(session._options), 0)
        await session.request(Transaction([made]))
        assert session.trusted_until > trusted

    on(cluster, test)
