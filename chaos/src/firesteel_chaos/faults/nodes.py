"""What happens to nodes: F1 to F4, F12, F26."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from firesteel_chaos.controlled import ChaosError, ControlledNode
from firesteel_chaos.faults.model import NoTargetError, Strike, World, fault


def bring_up(*nodes: ControlledNode) -> None:
    """Start them at the same time. When that fails, as it may while another fault lasts, the player of the round sees to it."""

    def start(node: ControlledNode) -> None:
        with contextlib.suppress(ChaosError):
            node.start()

    starting = [threading.Thread(target=start, args=(node,), daemon=True) for node in nodes]
    for each in starting:
        each.start()
    for each in starting:
        each.join()


@contextlib.contextmanager
def down(*nodes: ControlledNode) -> Iterator[None]:
    """Kill them now; they are up again when the block is left."""
    for node in nodes:
        node.kill()
    try:
        yield
    finally:
        bring_up(*nodes)


@fault("F1", "kill-leader", "SIGKILL of the leader", needs="kill", harms="nodes", hold=(0.2, 3.0))
def kill_leader(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    strike.begin(node.name)
    with down(node):
        yield


@fault("F1", "kill-follower", "SIGKILL of a node that does not lead", needs="kill", harms="nodes", hold=(0.2, 1.0))
def kill_follower(world: World, strike: Strike) -> Iterator[None]:
    node = world.follower()
    strike.begin(node.name)
    with down(node):
        yield


@fault("F2", "kill-all", "SIGKILL of all nodes", needs="kill", harms="nodes", hold=(0.2, 3.0))
def kill_all(world: World, strike: Strike) -> Iterator[None]:
    nodes = world.alive_nodes()
    strike.begin("all nodes")
    with down(*nodes):
        yield


@fault("F3", "kill-at-random", "SIGKILL of a random node every 0 to 3 s", needs="kill", harms="nodes", hold=(4.0, 7.0))
def kill_at_random(world: World, strike: Strike) -> Iterator[None]:
    draw = world.draw

    def kills(over: threading.Event) -> None:
        while not over.wait(draw.uniform(0, 3)):
            node = draw.choice(world.cluster.nodes())
            with down(node):
                over.wait(draw.uniform(0, 0.5))

    strike.begin("any node")
    with strike.meanwhile(kills):
        yield


@fault(
    "F4",
    "pause-leader",
    "SIGSTOP of the leader beyond its lease, then SIGCONT",
    needs="pause",
    harms="nodes",
    hold=(1.3, 2.2),
    leases=True,
)
def pause_leader(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    strike.begin(node.name)
    node.pause()
    try:
        yield
    finally:
        node.resume()


@fault(
    "F4",
    "pause-briefly",
    "SIGSTOP of the leader for less than its lease",
    needs="pause",
    harms="nodes",
    hold=(0.2, 0.7),
    leases=True,
)
def pause_briefly(world: World, strike: Strike) -> Iterator[None]:
    with pause_leader.inject(world, strike):
        yield


@fault("F26", "hand-over", "SIGTERM of the leader", needs="terminate", harms="nodes", hold=(0.2, 2.0))
def hand_over(world: World, strike: Strike) -> Iterator[None]:
    node = world.leader()
    strike.begin(node.name)
    node.terminate()
    try:
        yield
    finally:
        bring_up(node)


@fault(
    "F26",
    "rolling-restart",
    "SIGTERM and start of one node after the other",
    needs="terminate",
    harms="nodes",
    hold=(0.0, 1.0),
    weight=0.5,
)
def rolling_restart(world: World, strike: Strike) -> Iterator[None]:
    strike.begin("all nodes")
    for node in world.cluster.nodes():
        try:
            node.terminate()
        finally:
            bring_up(node)
    yield


@fault(
    "F12",
    "skewed-clock",
    "a leader whose time of day is an hour ahead or behind",
    needs="kill failing-node",
    harms="nodes",
    hold=(1.0, 4.0),
)
def skewed_clock(world: World, strike: Strike) -> Iterator[None]:
    skew = world.draw.choice(["3600", "-3600"])
    yield from _in_place_of_leader(world, strike, {"FIRESTEEL_CHAOS_SKEW": skew}, f"time of day off by {skew} s")


def _in_place_of_leader(world: World, strike: Strike, environment: dict[str, str], what: str) -> Iterator[None]:
    """A node that was started in another way comes to lead, for as long as it can."""
    leader = world.leader()
    others = [n for n in world.alive_nodes() if n.name != leader.name]
    if not others:
        raise NoTargetError("there is no second node")
    chosen = world.draw.choice(others)
    strike.begin(chosen.name, what=what)
    idle = [node for node in others if node is not chosen]
    with down(*idle):
        chosen.kill()
        try:
            with contextlib.suppress(ChaosError):  # it may have crashed by the time that we look
                chosen.start(command=world.failing_node, environment=environment)
            leader.kill()
            yield
        finally:
            chosen.kill()
            bring_up(chosen, leader)


FAULTS = (
    kill_leader,
    kill_follower,
    kill_all,
    kill_at_random,
    pause_leader,
    pause_briefly,
    hand_over,
    rolling_restart,
    skewed_clock,
)
