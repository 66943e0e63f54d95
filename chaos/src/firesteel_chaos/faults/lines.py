"""What happens between nodes, clients and store: F6 and F7."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from firesteel_chaos.controlled import BadLine, ControlledNode, Line
from firesteel_chaos.faults.model import Fault, NoTargetError, Strike, World, fault
from firesteel_chaos.network import TO_CLIENT, TO_SERVER

FLAPPING_SECONDS = 1.0


def _line(node: ControlledNode, which: str) -> Line:
    line = node.clients if which == "clients" else node.store
    if line is None:
        raise NoTargetError(f"node {node.name} has no line to {which}")
    return line


@contextlib.contextmanager
def _restored(lines: Sequence[Line]) -> Iterator[None]:
    try:
        yield
    finally:
        for line in lines:
            line.restore()


def _cut(which: str, words: str) -> Fault:
    @fault("F6", f"cut-{which}", f"the leader is cut off from {words}", needs=which, harms="network", hold=(1.0, 6.0))
    def cut(world: World, strike: Strike) -> Iterator[None]:
        node = world.leader()
        line = _line(node, which)
        strike.begin(node.name)
        with _restored([line]):
            line.cut()
            yield

    return cut


def _one_way(which: str, words: str) -> Fault:
    @fault(
        "F6",
        f"one-way-{which}",
        f"between the leader and {words} everything is lost in one direction, and no connection breaks",
        needs=f"bad-{which}",
        harms="network",
        hold=(1.0, 7.0),
    )
    def one_way(world: World, strike: Strike) -> Iterator[None]:
        node = world.leader()
        line = cast("BadLine", _line(node, which))
        direction = world.draw.choice([TO_CLIENT, TO_SERVER])
        strike.begin(node.name, what=f"{words}: nothing passes {direction}")
        with _restored([line]):
            line.freeze(direction)
            yield

    return one_way


def _flapping(which: str, words: str) -> Fault:
    @fault(
        "F6",
        f"flapping-{which}",
        f"the leader's line to {words} is cut and restored every second",
        needs=which,
        harms="network",
        hold=(3.0, 6.0),
    )
    def flapping(world: World, strike: Strike) -> Iterator[None]:
        node = world.leader()
        line = _line(node, which)

        def flap(over: threading.Event) -> None:
            while not over.is_set():
                line.cut()
                over.wait(FLAPPING_SECONDS)
                line.restore()
                over.wait(FLAPPING_SECONDS)

        strike.begin(node.name)
        with _restored([line]), strike.meanwhile(flap):
            yield

    return flapping


def _bad(variant: str, which: str, words: str, make_bad: Callable[[World, BadLine], None]) -> Fault:
    @fault("F7", f"{variant}-{which}", words, needs=f"bad-{which}", harms="network", hold=(2.0, 6.0))
    def bad(world: World, strike: Strike) -> Iterator[None]:
        lines = [cast("BadLine", _line(node, which)) for node in world.cluster.nodes()]
        strike.begin("all nodes")
        with _restored(lines):
            for line in lines:
                make_bad(world, line)
            yield

    return bad


def _delay(world: World, line: BadLine) -> None:
    line.disturb(delay=world.draw.choice([0.2, 0.4, 0.8, 2.0, 5.0]))


def _delay_of_store(world: World, line: BadLine) -> None:
    line.disturb(delay=world.draw.choice([0.1, 0.2, 0.4]))


def _loss(world: World, line: BadLine) -> None:
    line.disturb(delay=0.01, loss=world.draw.uniform(0.05, 0.3))


def _narrow(world: World, line: BadLine) -> None:
    line.disturb(bytes_per_second=world.draw.choice([8_000, 32_000, 128_000]))


_CLIENTS = "its clients and the other nodes"
_STORE = "its store"

FAULTS = (
    _cut("clients", _CLIENTS),
    _one_way("clients", _CLIENTS),
    _flapping("clients", _CLIENTS),
    _cut("store", _STORE),
    _one_way("store", _STORE),
    _flapping("store", _STORE),
    _bad("delay", "clients", "everything between clients and nodes arrives 0.2 to 5 s later", _delay),
    _bad("loss", "clients", "5 to 30 % of what clients and nodes send is lost at first, and overtaken", _loss),
    _bad("narrow", "clients", "connections to nodes carry 8 to 128 KB a second", _narrow),
    _bad("delay", "store", "everything between nodes and store arrives 0.1 to 0.4 s later, each way", _delay_of_store),
    _bad("loss", "store", "5 to 30 % of what nodes and store send is lost at first", _loss),
)
