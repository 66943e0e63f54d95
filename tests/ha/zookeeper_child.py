"""A node in a process of its own: `zookeeper_child.py <what> <hosts> <cluster id> <storage dir> <lease> [elsewhere]`.

Says on stdout what happens to it, as ha_child.py does. What: `lead`, or `crash`, which is to die after the file of a large
value was written and before its pointer was. `elsewhere` is a host of another name.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.ha.speaking_node import SpeakingNode, say

from firesteel.config import load_configuration
from firesteel.ha import witness
from firesteel.ha.services import open_high_availability
from firesteel.ha.storage_files import LocalFiles


def die_after_writing_a_file() -> None:
    write = LocalFiles.write

    def write_and_die(self: LocalFiles, name: str, value: bytes) -> None:
        write(self, name, value)
        say("dies")
        os._exit(9)

    LocalFiles.write = write_and_die  # type: ignore[method-assign]


async def main(what: str, hosts: str, cluster_id: str, storage: str, lease: str, where: str = "") -> None:
    if where:
        vars(witness)["process_namespace"] = lambda: where
    configuration = load_configuration(
        overrides={
            "high-availability.type": "zookeeper",
            "high-availability.cluster-id": cluster_id,
            "high-availability.storageDir": storage,
            "high-availability.zookeeper.quorum": hosts,
            "high-availability.zookeeper.client.session-timeout": f"{lease} s",
        },
        environ={"HOME": storage},
    )
    services = await open_high_availability(configuration)
    node, epoch = await SpeakingNode.begin(services)
    if what == "crash":
        die_after_writing_a_file()
        await services.store.put("graphs/large", bytes(2**20), epoch=epoch)
    await node.lead(epoch)


asyncio.run(main(*sys.argv[1:]))
