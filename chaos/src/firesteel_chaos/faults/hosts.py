"""What happens to hosts, and to the workers on them: F27, F28, F29.

Each fault says on which hosts attempts may end because of it. Whatever restarts elsewhere, or too late, is a violation.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence

from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.faults.model import NoTargetError, Strike, World, fault
from firesteel_chaos.faults.nodes import bring_up
from firesteel_chaos.hosts.cluster import HostedCluster, HostedNode, HostedWorker
from firesteel_chaos.hosts.links import Direction

MARGIN_SECONDS = 8.0
"""Held so much longer than the isolation time, a cut is known to the leader as one beyond repair."""


def cluster_of(world: World) -> HostedCluster:
    assert isinstance(world.cluster, HostedCluster)
    return world.cluster


def busy_worker(world: World) -> HostedWorker:
    """One that has attempts, if there is any; waits a moment for one."""
    there = [w for w in cluster_of(world).workers() if w.alive]
    if not there:
        raise NoTargetError("no worker runs")
    with contextlib.suppress(NoTargetError):
        there = world.wait_for(lambda: [w for w in there if w.busy] or None, world.patience / 2, "all are idle")
    return world.draw.choice(there)


def leading(world: World) -> HostedNode:
    node = world.leader()
    assert isinstance(node, HostedNode)
    return node


def hosts_up(world: World, workers: Sequence[HostedWorker] = (), nodes: Sequence[HostedNode] = ()) -> None:
    for worker in workers:
        with contextlib.suppress(ChaosError):
            worker.start()
    bring_up(*nodes)


def beyond(world: World, strike: Strike) -> None:
    """Have the fault last until its hosts have been given up, whatever was drawn."""
    strike.last(cluster_of(world).isolation + MARGIN_SECONDS)


@fault(
    "F27", "crash-worker-host", "a host with a worker loses its power", needs="workers", harms="drivers engines hosts"
)
def crash_worker_host(world: World, strike: Strike) -> Iterator[None]:
    worker = busy_worker(world)
    strike.begin(worker.name, sites=[worker.name])
    worker.crash()
    try:
        yield
        beyond(world, strike)
    finally:
        hosts_up(world, [worker])


@fault("F27", "crash-leader-host", "the leader's host loses its power", needs="hosts", harms="nodes", hold=(0.5, 8.0))
def crash_leader_host(world: World, strike: Strike) -> Iterator[None]:
    node = leading(world)
    strike.begin(node.name)
    node.host.crash()
    try:
        yield
    finally:
        hosts_up(world, nodes=[node])


@fault(
    "F27",
    "crash-both",
    "the leader's host and a host with a worker lose their power at once",
    needs="workers",
    harms="nodes drivers engines hosts",
)
def crash_both(world: World, strike: Strike) -> Iterator[None]:
    node, worker = leading(world), busy_worker(world)
    strike.begin(f"{node.name} and {worker.name}", sites=[worker.name])
    worker.crash()
    node.host.crash()
    try:
        yield
        beyond(world, strike)
    finally:
        hosts_up(world, [worker], [node])


@fault(
    "F27", "reboot-worker-host", "a host with a worker restarts at once", needs="workers", harms="drivers engines hosts"
)
def reboot_worker_host(world: World, strike: Strike) -> Iterator[None]:
    worker = busy_worker(world)
    strike.begin(worker.name, sites=[worker.name])
    worker.crash()
    hosts_up(world, [worker])
    yield


def _cut(world: World, strike: Strike, direction: Direction) -> Iterator[None]:
    worker = busy_worker(world)
    strike.begin(worker.name, sites=[worker.name])
    worker.host.cut_off(direction)
    try:
        yield
        beyond(world, strike)
    finally:
        worker.host.heal()


@fault(
    "F28",
    "cut-worker",
    "a worker's host is cut off in both directions",
    needs="workers",
    harms="drivers engines hosts",
)
def cut_worker(world: World, strike: Strike) -> Iterator[None]:
    yield from _cut(world, strike, Direction.BOTH)


@fault(
    "F28",
    "cut-worker-out",
    "nothing that a worker's host sends arrives",
    needs="workers",
    harms="drivers engines hosts",
)
def cut_worker_out(world: World, strike: Strike) -> Iterator[None]:
    yield from _cut(world, strike, Direction.OUT)


@fault("F28", "cut-worker-in", "nothing arrives at a worker's host", needs="workers", harms="drivers engines hosts")
def cut_worker_in(world: World, strike: Strike) -> Iterator[None]:
    yield from _cut(world, strike, Direction.IN)


@fault(
    "F28",
    "cut-worker-briefly",
    "a host with a worker is cut off for less than its time",
    needs="workers",
    harms="network",
    hold=(0.3, 3.0),
)
def cut_worker_briefly(world: World, strike: Strike) -> Iterator[None]:
    worker = busy_worker(world)
    direction = world.draw.choice(list(Direction))
    strike.begin(worker.name, what=f"{worker.name} is cut off for less than its time ({direction})")
    worker.host.cut_off(direction)
    try:
        yield
    finally:
        worker.host.heal()


@fault(
    "F28",
    "cut-leader-host",
    "the leader's host is cut off beyond its lease",
    needs="hosts",
    harms="nodes",
    hold=(1.3, 2.2),
    leases=True,
)
def cut_leader_host(world: World, strike: Strike) -> Iterator[None]:
    node = leading(world)
    strike.begin(node.name)
    node.host.cut_off()
    try:
        yield
    finally:
        node.host.heal()


@fault(
    "F28",
    "control-plane-away",
    "no host of a node reaches any other, beyond the time of the workers",
    needs="workers",
    harms="nodes hosts",
    weight=0.5,
)
def control_plane_away(world: World, strike: Strike) -> Iterator[None]:
    """Whether workers stop is for them to say: those that are to run on must not."""
    cluster = cluster_of(world)
    runs_on = cluster.options.get("worker.when-isolated") == "run-on"
    everywhere = [worker.name for worker in cluster.workers()]
    harms = ["nodes"] if runs_on else ["nodes", "drivers", "engines", "hosts"]
    strike.begin("all nodes", sites=[] if runs_on else everywhere, harms=harms)
    for node in cluster.nodes():
        node.host.cut_off()
    try:
        yield
        beyond(world, strike)
    finally:
        cluster.network.heal()


@fault(
    "F29",
    "kill-worker",
    "SIGKILL of a worker's process; drivers and engines run on",
    needs="workers",
    harms="network",
    hold=(0.2, 3.0),
)
def kill_worker(world: World, strike: Strike) -> Iterator[None]:
    worker = busy_worker(world)
    strike.begin(worker.name)
    worker.kill()
    try:
        yield
    finally:
        hosts_up(world, [worker])


@fault(
    "F29",
    "pause-worker-host",
    "a host with a worker stands still beyond its time, and goes on",
    needs="workers",
    harms="drivers engines hosts frozen",
)
def pause_worker_host(world: World, strike: Strike) -> Iterator[None]:
    worker = busy_worker(world)
    strike.begin(worker.name, sites=[worker.name])
    worker.host.pause()
    try:
        yield
        beyond(world, strike)
    finally:
        worker.host.resume()


@fault(
    "F29",
    "pause-worker",
    "SIGSTOP of a worker's process alone beyond its time, then SIGCONT",
    needs="workers",
    harms="drivers engines hosts frozen",
)
def pause_worker(world: World, strike: Strike) -> Iterator[None]:
    """Its drivers run on, with nobody to end them: what they write must not count."""
    worker = busy_worker(world)
    strike.begin(worker.name, sites=[worker.name])
    worker.process.signal(signal.SIGSTOP)
    try:
        yield
        beyond(world, strike)
    finally:
        worker.process.signal(signal.SIGCONT)


FAULTS = (
    crash_worker_host,
    crash_leader_host,
    crash_both,
    reboot_worker_host,
    cut_worker,
    cut_worker_out,
    cut_worker_in,
    cut_worker_briefly,
    cut_leader_host,
    control_plane_away,
    kill_worker,
    pause_worker_host,
    pause_worker,
)
