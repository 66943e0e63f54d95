"""The leader dies at a write to the store: F5, each kind of write, before and after it."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator

from firesteel.client.cluster import ClusterClient
from firesteel.client.operations import SAVEPOINT
from firesteel.errors import FiresteelError
from firesteel.fs.files import write_atomically
from firesteel.types import JobID
from firesteel_chaos.faults.clients import begin_with_job, graph, one_job
from firesteel_chaos.faults.model import Fault, Strike, World, fault
from firesteel_chaos.faults.nodes import bring_up

POINTS = {
    "graphs/": "a submission is written, or taken away when its job is cleaned up",
    "jobs/": "a job's record is written: an attempt that is meant to start, its failure, a wish",
    "results/": "a result is written, dirty or clean",
    "operations/": "a stop or savepoint is written, or its outcome",
    "n-th": "its n-th write, whatever that is",
}
"""First parts of the paths that are written in the life of a job."""


def _crash(side: str, where: str, words: str) -> Fault:
    @fault(
        "F5",
        f"{side}-{where.rstrip('/')}",
        f"the leader crashes {side} {words}",
        needs="kill orders",
        harms="nodes",
        hold=(2.0, 5.0),
        weight=0.5,
    )
    def crash(world: World, strike: Strike) -> Iterator[None]:
        assert world.orders is not None
        orders = world.orders
        point = where if where.endswith("/") else str(world.draw.randint(1, 6))
        job = uuid.UUID(int=world.draw.getrandbits(128)).hex
        refused: list[str] = []
        node = world.leader()

        def write(_: threading.Event) -> None:
            """Give the leader something to write down."""
            with ClusterClient(
                world.cluster.addresses, token=world.cluster.token, ca=world.cluster.ca, timeout=10
            ) as client:
                try:
                    if where == "operations/" and (streams := world.drivers("streaming")):
                        wish = {"target-directory": None, "cancel-job": False}
                        client.trigger(SAVEPOINT, wish, job_id=JobID(streams[0][0]))
                    client.submit(graph("crash", 1), job_id=job)
                except FiresteelError:
                    pass  # that nobody answers is to be expected; what came of it is looked at later

        strike.later(lambda: one_job(world, strike, job, refused, name="crash"))
        begin_with_job(world, strike, job, target=node.name, what=f"crash {side} {point}")
        # Only a leader writes, so it does not matter that all nodes read it.
        write_atomically(orders, json.dumps({"crash": f"{side}:{point}"}))
        try:
            with strike.meanwhile(write):
                yield
        finally:
            orders.unlink(missing_ok=True)
            strike.note(f"{node.name} {'has not written in time' if node.alive else 'crashed'}")
            bring_up(*(each for each in world.cluster.nodes() if not each.alive))

    return crash


FAULTS = tuple(_crash(side, where, words) for where, words in POINTS.items() for side in ("before", "after"))
