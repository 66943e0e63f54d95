"""`firesteel-chaos` with all that only tests have: servers of the stores, nodes that crash at the n-th write, small disks.

python -m tests.chaos.with_servers run --backend zookeeper --rounds 50 --seed 7 --report report.md
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.server_faults import Databases, postgresql_faults, zookeeper_faults
from tests.support.postgresql import PostgreSqlServer, url_of
from tests.support.zookeeper import ZooKeeperQuorum, ZooKeeperServer

from firesteel.config import load_configuration
from firesteel_chaos.controlled import ChaosError
from firesteel_chaos.faults import TABLE, Fault
from firesteel_chaos.hosts import HostNetwork
from firesteel_chaos.hosts.cluster import HostedCluster
from firesteel_chaos.main import StageOptions, make_command
from firesteel_chaos.records import open_records
from firesteel_chaos.stage import LocalSettings, Stage, StoreAddress, local_stage

PROJECT = Path(__file__).parents[2]
FAILING_NODE = (sys.executable, "-m", "tests.chaos.failing_node")
DISK_MB = 400
HOSTED = {
    # Several engines have to share two cores here.
    "engine.master": "local[1]",
    "engine.max": "2",
    "engine.slots": "8",
    "heartbeat.interval": "1 s",
}
TICK_MS = 200


@contextlib.contextmanager
def open_stage(wish: StageOptions) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        if wish.workers:
            yield stack.enter_context(hosted_stage(wish))
            return
        address, faults, abilities = stack.enter_context(servers(wish))
        if stack.enter_context(small_disk(wish.root / "data")):
            abilities |= {"small-disk"}
        witness, orders = wish.root / "witness", wish.root / "orders.json"
        witness.mkdir(exist_ok=True)
        yield stack.enter_context(
            local_stage(
                LocalSettings(
                    wish.root,
                    address,
                    nodes=wish.nodes,
                    lease=wish.lease,
                    options=wish.options,
                    environment={
                        "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
                        "FIRESTEEL_CHAOS_WITNESS": str(witness),
                        "FIRESTEEL_CHAOS_ORDERS": str(orders),
                    },
                    # Each node writes down what it writes to the store, so that fencing can be judged from outside.
                    command=FAILING_NODE,
                    failing_node=FAILING_NODE,
                    witness=witness,
                    orders=orders,
                    abilities=abilities,
                    faults=(*TABLE, *faults),
                )
            )
        )


@contextlib.contextmanager
def hosted_stage(wish: StageOptions) -> Iterator[Stage]:
    """Each node and each worker on a host of its own; the store is on this machine, at its address on their network."""
    nodes = [f"n{n + 1}" for n in range(wish.nodes)]
    workers = [f"w{n + 1}" for n in range(wish.workers)]
    with (
        HostNetwork(wish.root / "network", [*nodes, *workers]) as network,
        store_for_hosts(wish, network) as store,
        HostedCluster(
            network,
            nodes,
            workers=workers,
            options={**HOSTED, **store, **wish.options},
            lease=wish.lease,
            isolation=wish.isolation,
        ) as cluster,
    ):
        configuration = load_configuration(overrides=cluster.options, environ={"HOME": os.environ.get("HOME", "/")})
        yield Stage(
            cluster, TABLE, configuration, open_records(configuration), store=wish.backend, isolation=wish.isolation
        )


@contextlib.contextmanager
def store_for_hosts(wish: StageOptions, network: HostNetwork) -> Iterator[dict[str, str]]:
    """The options with which nodes on the network find it."""
    match wish.backend:
        case "zookeeper":
            with ZooKeeperServer(wish.root / "zookeeper", address=network.address, tick_ms=TICK_MS) as server:
                address = StoreAddress("zookeeper", server.hosts)
                yield {
                    **address.options([server.hosts], network.shared, wish.lease),
                    "high-availability.zookeeper.client.acl": "creator",
                    "high-availability.zookeeper.client.auth": "firesteel:of-these-tests",
                }
        case "postgresql":
            settings = {"listen_addresses": f"127.0.0.1,{network.address}"}
            with contextlib.closing(PostgreSqlServer.create(settings)) as server:
                server.admit(f"{network.address}/24")
                yield {"high-availability.sql.url": url_of(server.port).replace("127.0.0.1", network.address)}
        case _:
            raise ChaosError("hosts need a store that all of them reach; use --backend zookeeper or postgresql")


@contextlib.contextmanager
def servers(wish: StageOptions) -> Iterator[tuple[StoreAddress, tuple[Fault, ...], frozenset[str]]]:
    """The store, what can be done to its servers, and the ability to do so."""
    match wish.backend:
        case "zookeeper":
            with ZooKeeperQuorum(wish.root / "zookeeper", tick_ms=TICK_MS) as quorum:
                yield StoreAddress("zookeeper", quorum.hosts), zookeeper_faults(quorum), frozenset({"zookeeper"})
        case "postgresql":
            with contextlib.ExitStack() as stack:
                primary = stack.enter_context(contextlib.closing(PostgreSqlServer.create()))
                standby = stack.enter_context(contextlib.closing(primary.standby("standby")))
                primary.set("synchronous_standby_names", "standby")
                url = url_of(primary.port, standby.port)
                faults = postgresql_faults(Databases(primary, standby))
                yield StoreAddress("postgresql", url), faults, frozenset({"postgresql"})
        case _:
            yield StoreAddress("sqlite"), (), frozenset()


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[bool]:
    """A file system of its own at `directory`; False where this user may not mount one."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "tmpfs", str(directory)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            # Whoever still has a file open there does not keep the others from going on.
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


if __name__ == "__main__":
    # For `faults`, which has no servers: they are not asked for anything before they are used.
    known = (*TABLE, *zookeeper_faults(None), *postgresql_faults(None))  # type: ignore[arg-type]
    make_command(open_stage, known)(prog_name="python -m tests.chaos.with_servers")
