"""A node in a process of its own: `kubernetes_child.py <put|lead> <directory> <kubeconfig> <namespace> <lease>`.

Says on stdout what happens to it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.ha.kubernetes_nodes import configured
from tests.ha.speaking_node import SpeakingNode

from firesteel.ha.kubernetes.services import open_kubernetes


async def main(what: str, directory: str, kubeconfig: str, namespace: str, lease: str) -> None:
    configuration = configured(Path(directory), Path(kubeconfig), namespace, lease=float(lease))
    services = await open_kubernetes(configuration)
    node, epoch = await SpeakingNode.begin(services)
    if what == "put":
        await node.put(epoch)
    await node.lead(epoch)


asyncio.run(main(*sys.argv[1:]))
