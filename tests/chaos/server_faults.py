"""What happens to the servers of a store: F8 (ZooKeeper) and F11 (PostgreSQL)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import cast

from tests.support.postgresql import PostgreSqlServer
from tests.support.zookeeper import ZooKeeperQuorum, ZooKeeperServer

from firesteel_chaos.controlled import BadLine
from firesteel_chaos.faults import Fault, NoTargetError, Strike, World, fault


def zookeeper_faults(quorum: ZooKeeperQuorum) -> tuple[Fault, ...]:
    @contextlib.contextmanager
    def dead(servers: list[ZooKeeperServer]) -> Iterator[None]:
        for server in servers:
            server.kill()
        try:
            yield
        finally:
            for server in servers:
                server.start(wait=False)
            for server in servers:
                server.wait_until_serving()

    def running() -> list[ZooKeeperServer]:
        return [server for server in quorum.servers if server.running]

    @fault("F8", "kill-server", "SIGKILL of one of the servers", needs="zookeeper", harms="store", hold=(1, 4))
    def kill_server(world: World, strike: Strike) -> Iterator[None]:
        server = world.draw.choice(running())
        strike.begin(server.hosts, what=f"SIGKILL of a server that is {server.mode()}")
        with dead([server]):
            yield

    @fault("F8", "kill-quorum", "SIGKILL of all servers but one", needs="zookeeper", harms="store quorum", hold=(2, 8))
    def kill_quorum(world: World, strike: Strike) -> Iterator[None]:
        victims = running()
        world.draw.shuffle(victims)
        strike.begin(", ".join(s.hosts for s in victims[1:]))
        with dead(victims[1:]):
            yield

    @fault(
        "F8",
        "session-expiry",
        "the leader's session expires while its connections seem to stand",
        needs="zookeeper bad-store",
        harms="store network",
        hold=(1.3, 2.0),
        leases=True,
    )
    def session_expiry(world: World, strike: Strike) -> Iterator[None]:
        node = world.leader()
        line = cast("BadLine", node.store)
        strike.begin(node.name)
        line.freeze()
        try:
            yield
        finally:
            line.restore()

    @fault(
        "F8",
        "suspended",
        "the connection of every node breaks again and again, and no session expires",
        needs="zookeeper bad-store",
        harms="store network",
        hold=(1, 4),
    )
    def suspended(world: World, strike: Strike) -> Iterator[None]:
        def drops(over: threading.Event) -> None:
            while not over.wait(world.draw.uniform(0.1, 1.0)):
                for node in world.cluster.nodes():
                    cast("BadLine", node.store).drop()

        strike.begin("all nodes")
        with strike.meanwhile(drops):
            yield

    @fault(
        "F8",
        "pause-server",
        "SIGSTOP of the server that leads the others",
        needs="zookeeper",
        harms="store",
        hold=(1, 4),
    )
    def pause_server(world: World, strike: Strike) -> Iterator[None]:
        server = next((s for s in running() if s.mode() == "leader"), None)
        if server is None:
            raise NoTargetError("no server leads the others")
        strike.begin(server.hosts)
        server.pause()
        try:
            yield
        finally:
            server.resume()

    return kill_server, kill_quorum, session_expiry, suspended, pause_server


class Databases:
    """A primary, and perhaps a standby that may take its place once."""

    def __init__(self, primary: PostgreSqlServer, standby: PostgreSqlServer | None) -> None:
        self.primary = primary
        self.standby = standby

    def fail_over(self) -> None:
        assert self.standby is not None
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, None


def postgresql_faults(databases: Databases) -> tuple[Fault, ...]:
    @fault(
        "F11", "kill-server", "SIGKILL of the server and its processes", needs="postgresql", harms="store", hold=(0, 4)
    )
    def kill_server(_: World, strike: Strike) -> Iterator[None]:
        server = databases.primary
        strike.begin("primary")
        server.kill()
        try:
            yield
        finally:
            server.start()

    @fault(
        "F11",
        "read-only",
        "the database takes no writes",
        needs="postgresql",
        harms="store",
        hold=(0.3, 1.7),
        leases=True,
    )
    def read_only(_: World, strike: Strike) -> Iterator[None]:
        server = databases.primary
        strike.begin("primary")
        with server.setting("default_transaction_read_only", "on"):
            yield

    @fault("F11", "slow", "the server answers nobody for 1 to 10 s", needs="postgresql", harms="store", hold=(1, 10))
    def slow(_: World, strike: Strike) -> Iterator[None]:
        server = databases.primary
        strike.begin("primary")
        server.pause()
        try:
            yield
        finally:
            server.resume()

    @fault(
        "F11",
        "row-locked",
        "somebody else has locked the row of the lease",
        needs="postgresql",
        harms="store",
        hold=(1, 7),
    )
    def locked(_: World, strike: Strike) -> Iterator[None]:
        import psycopg

        with psycopg.connect(databases.primary.url, connect_timeout=5) as connection:
            strike.begin("primary")
            try:
                connection.execute("SET lock_timeout = '5s'")
                connection.execute("SELECT * FROM firesteel_leadership FOR UPDATE")
            except psycopg.Error as error:
                raise NoTargetError(f"the lock cannot be had: {error}") from None
            yield
            with contextlib.suppress(psycopg.Error):
                connection.rollback()

    @fault(
        "F11",
        "connections-ended",
        "the server ends the nodes' connections again and again",
        needs="postgresql",
        harms="store",
        hold=(1, 4),
    )
    def connections_ended(world: World, strike: Strike) -> Iterator[None]:
        server = databases.primary
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'firesteel-%'"

        def ends(over: threading.Event) -> None:
            while not over.wait(world.draw.uniform(0.1, 1.0)):
                with contextlib.suppress(RuntimeError):
                    server.sql(end)

        strike.begin("primary")
        with strike.meanwhile(ends):
            yield

    @fault(
        "F11",
        "fail-over",
        "the primary dies and its synchronous standby takes its place",
        needs="postgresql",
        harms="store",
        hold=(0, 1),
        weight=0.5,
    )
    def fail_over(_: World, strike: Strike) -> Iterator[None]:
        if databases.standby is None:
            raise NoTargetError("there is no standby left")
        strike.begin("primary")
        databases.fail_over()
        yield

    return kill_server, read_only, slow, locked, connections_ended, fail_over
