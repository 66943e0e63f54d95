"""Nodes on PostgreSQL that are real processes, as of another host: killed, and stopped past their lease."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
from tests.ha.postgresql_nodes import a_cluster, lead, node
from tests.ha.test_sql_processes import Child, wait_for
from tests.support.postgresql import PostgreSqlServer

from firesteel.errors import FencingError
from firesteel.ha.protocols import Epoch
from firesteel.testing.ha_contract.harness import LONG_LEASE, Recorder

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]


@contextlib.contextmanager
def child(
    what: str, server: PostgreSqlServer, cluster_id: str, *, lease: float, host: str = "elsewhere"
) -> Iterator[Child]:
    made = Child(what, server.url, lease, cluster_id, host)
    try:
        yield made
    finally:
        made.kill()


def test_every_acknowledged_put_survives_kill_9_of_node_and_server(postgresql: PostgreSqlServer) -> None:
    cluster_id = a_cluster()
    with child("put", postgresql, cluster_id, lease=LONG_LEASE) as putter:
        assert putter.line() == "granted 1"
        acknowledged: list[str] = []
        while len(acknowledged) < 300:
            word, path = putter.line().split()
            assert word == "ack"
            acknowledged.append(path)
        # The last line may have been cut off by the kill; an acknowledgement is a whole one.
        acknowledged += [line.split()[1] for line in putter.kill() if line.endswith("\n")]
    postgresql.kill()
    postgresql.start()

    async def check() -> None:
        async with node(postgresql.url, cluster_id=cluster_id) as services:
            stored = await services.store.list("acks")
            assert set(acknowledged) <= set(stored)
            assert all(value.value == path.encode() * 50 for path, value in stored.items())

    asyncio.run(check())


def test_killed_leader_of_another_host_is_replaced_when_its_lease_has_run_out(postgresql: PostgreSqlServer) -> None:
    cluster_id = a_cluster()
    with child("lead", postgresql, cluster_id, lease=4.0) as old:
        assert old.line() == "granted 1"
        old.kill()
        killed = time.monotonic()

    async def check() -> None:
        async with node(postgresql.url, lease=LONG_LEASE, cluster_id=cluster_id) as services:
            _, _, epoch = await lead(services)  # long before its own lease: the database's clock says so
            assert epoch == 2
            # The last renewal was at most a third of the lease before the kill.
            assert time.monotonic() - killed >= 4.0 * 2 / 3 - 0.5
            with pytest.raises(FencingError):
                await services.store.put("a", b"", epoch=Epoch(1))

    asyncio.run(check())


def test_leader_that_was_stopped_past_its_lease_is_revoked_and_refused_when_it_goes_on(
    postgresql: PostgreSqlServer,
) -> None:
    cluster_id = a_cluster()
    with child("lead", postgresql, cluster_id, lease=4.0) as old:
        assert old.line() == "granted 1"
        old.process.send_signal(signal.SIGSTOP)

        async def check() -> None:
            async with node(postgresql.url, lease=4.0, cluster_id=cluster_id) as services:
                listener = Recorder()
                began = time.monotonic()
                await services.election("heir").start(listener)
                assert await listener.granted() == 2
                assert time.monotonic() - began >= 4.0  # its sessions are there, so it is watched for a lease
                old.process.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(old.line) == "revoked and knows it"
                assert await asyncio.to_thread(old.line) == "fenced"
                assert await services.store.get("stale") is None
                assert listener.events == ["grant"]

        asyncio.run(check())


def test_leader_that_was_stopped_in_a_transaction_keeps_nobody_waiting(postgresql: PostgreSqlServer) -> None:
    """It has locked the row that every leader needs. The server ends its session before its lease is over."""
    cluster_id = a_cluster()
    with child("stop", postgresql, cluster_id, lease=4.0) as old:
        assert old.line() == "granted 1"
        assert old.line() == "stops"

        async def check() -> None:
            async with node(postgresql.url, lease=4.0, cluster_id=cluster_id) as services:
                _, listener, epoch = await lead(services)
                assert epoch == 2
                await services.store.put("a", b"", epoch=epoch)
                old.process.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(old.line) == "revoked and knows it"
                assert await asyncio.to_thread(old.line) == "fenced"
                assert await services.store.get("stale") is None
                assert listener.events == ["grant"]

        asyncio.run(check())


def test_processes_that_are_killed_one_after_the_other_lead_one_after_the_other(postgresql: PostgreSqlServer) -> None:
    cluster_id = a_cluster()
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(child("lead", postgresql, cluster_id, lease=2.0, host=host))
            for host in ("one", "two", "three")
        ]
        epochs = []
        while children:

            def one_has_spoken() -> Child | None:
                return next((c for c in children if c.has_spoken), None)

            leader = wait_for(one_has_spoken)
            word, epoch = leader.line().split()
            assert word == "granted"
            epochs.append(epoch)
            leader.kill()
            children.remove(leader)
        assert epochs == ["1", "2", "3"]
