"""A node in a process of its own: `ha_child.py <put|lead|stop> <database> <lease> [<cluster id>] [elsewhere]`.

Says on stdout what happens to it. The database is a file or a URL; `elsewhere` is a host of another name; `stop` stops itself
in the middle of a transaction.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.ha.speaking_node import SpeakingNode, say

from firesteel.ha import witness
from firesteel.ha.sql.services import SqlHighAvailabilityServices


def stop_in_the_next_transaction(services: SqlHighAvailabilityServices) -> None:
    """After the row was locked, and before it is let go."""

    def stop(*_: object) -> None:
        del vars(services._database)["carry_out"]
        say("stops")
        os.kill(os.getpid(), signal.SIGSTOP)

    vars(services._database)["carry_out"] = stop


async def main(what: str, database: str, lease: float, cluster_id: str = "test", where: str = "") -> None:
    if where:
        vars(witness)["process_namespace"] = lambda: where
    url = database if "://" in database else f"sqlite:///{database}"
    services = await SqlHighAvailabilityServices.open(url, cluster_id=cluster_id, lease_duration=lease)
    node, epoch = await SpeakingNode.begin(services)
    if what == "put":
        await node.put(epoch)
    if what == "stop":
        stop_in_the_next_transaction(services)
    await node.lead(epoch)


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
