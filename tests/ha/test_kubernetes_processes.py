"""Nodes that are real processes on a real API server: killed, and stopped past their lease."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ha.kubernetes_nodes import KubernetesCluster, on_cluster
from tests.support.kubernetes import KubernetesServer
from tests.support.kubernetes_door import Door

from firesteel.testing.ha_contract.harness import LONG_LEASE, contend, leading

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]

CHILD = Path(__file__).with_name("kubernetes_child.py")
PATIENCE = 60.0
"""For a process that has much to import."""


class Child:
    def __init__(self, what: str, cluster: KubernetesCluster, lease: float) -> None:
        arguments = [what, str(cluster.directory), str(cluster.kubeconfig), cluster.namespace, str(lease)]
        self.process = subprocess.Popen([sys.executable, str(CHILD), *arguments], stdout=subprocess.PIPE, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self._lines.put(line)

    async def line(self) -> str:
        """The next line, waiting for it."""
        return (await asyncio.to_thread(self._lines.get, timeout=PATIENCE)).strip()

    def kill(self) -> list[str]:
        """End it without warning; returns what it had said by then and was not read."""
        self.process.kill()
        self.process.wait()
        self._reading.join()
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]


@contextlib.contextmanager
def child(what: str, cluster: KubernetesCluster, *, lease: float) -> Iterator[Child]:
    made = Child(what, cluster, lease)
    try:
        yield made
    finally:
        made.kill()


def test_every_acknowledged_put_survives_kill_9(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        with child("put", cluster, lease=LONG_LEASE) as putter:
            assert await putter.line() == "granted 1"
            acknowledged: list[str] = []
            while len(acknowledged) < 300:
                word, path = (await putter.line()).split()
                assert word == "ack"
                acknowledged.append(path)
            # The last line may have been cut off by the kill; an acknowledgement is a whole one.
            acknowledged += [line.split()[1] for line in putter.kill() if line.endswith("\n")]
        stored = await (await cluster.open()).store.list("acks")
        assert set(acknowledged) <= set(stored)
        assert all(value.value == path.encode() * 50 for path, value in stored.items())

    on_cluster(kubernetes, tmp_path, test)


def test_leader_that_was_killed_is_replaced_once_its_lease_has_run_out(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        with child("lead", cluster, lease=3.0) as old:
            assert await old.line() == "granted 1"
            services = await cluster.open(lease=3.0)
            _, listener = await contend(services)
            began = time.monotonic()
            old.kill()
            assert await listener.granted() == 2
            assert time.monotonic() - began >= 3.0 * 2 / 3  # it renewed a third of a lease before it died, or later

    on_cluster(kubernetes, tmp_path, test)


def test_leader_that_was_stopped_past_its_lease_is_revoked_and_refused_when_it_goes_on(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    """F4, I7."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        with child("lead", cluster, lease=4.0) as old:
            assert await old.line() == "granted 1"
            services = await cluster.open(lease=4.0)
            _, listener = await contend(services)
            old.process.send_signal(signal.SIGSTOP)
            assert await listener.granted() == 2
            await services.store.put("mine", b"2", epoch=listener.epochs[0])
            old.process.send_signal(signal.SIGCONT)
            assert await old.line() == "revoked and knows it"
            assert await old.line() == "fenced"
            assert await services.store.get("stale") is None
            assert listener.events == ["grant"]

    on_cluster(kubernetes, tmp_path, test)


def test_stopped_leader_that_nobody_replaced_leads_anew_with_another_epoch(
    kubernetes: KubernetesServer, tmp_path: Path
) -> None:
    """Its old epoch is not trusted again: somebody may have led in between, for all it knows."""

    async def test(cluster: KubernetesCluster, door: Door) -> None:
        with child("lead", cluster, lease=3.0) as old:
            assert await old.line() == "granted 1"
            old.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(3.5)  # the lease itself: nothing can be waited for in a process that is stopped
            old.process.send_signal(signal.SIGCONT)
            assert await old.line() == "revoked and knows it"
            # The claim of the new epoch fences the old one; either may be told first.
            assert sorted([await old.line(), await old.line()]) == ["fenced", "granted 2"]

    on_cluster(kubernetes, tmp_path, test)


def test_many_processes_begin_a_new_cluster_at_once(kubernetes: KubernetesServer, tmp_path: Path) -> None:
    async def test(cluster: KubernetesCluster, door: Door) -> None:
        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(child("lead", cluster, lease=3.0)) for _ in range(3)]
            lines = {asyncio.create_task(one.line()): one for one in children}
            epochs = []
            while lines:  # each that leads is killed, and so makes room for the next
                done, _ = await asyncio.wait(lines, return_when=asyncio.FIRST_COMPLETED)
                assert len(done) == 1
                [told] = done
                leader = lines.pop(told)
                epochs.append(told.result())
                await asyncio.to_thread(leader.kill)
        assert epochs == ["granted 1", "granted 2", "granted 3"]
        _, _, epoch = await leading(await cluster.open(lease=3.0))
        assert epoch == 4

    on_cluster(kubernetes, tmp_path, test)
