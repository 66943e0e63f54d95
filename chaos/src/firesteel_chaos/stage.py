"""The stage of a game: a cluster that is started for it over some store, and what can be done to both."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from firesteel.config import Configuration, load_configuration
from firesteel_chaos.cluster import NODE, StagedCluster
from firesteel_chaos.controlled import ChaosError, ControlledCluster
from firesteel_chaos.faults import TABLE, Fault
from firesteel_chaos.faults.model import Records
from firesteel_chaos.network import LineGroup, TcpProxy
from firesteel_chaos.records import open_records

BACKENDS = ("sqlite", "postgresql", "zookeeper")


@dataclass(frozen=True)
class Stage:
    cluster: ControlledCluster
    faults: Sequence[Fault] = TABLE
    """All faults; the cluster's abilities decide which of them can be played."""
    configuration: Configuration | None = None
    """Access to the store that bypasses all cut lines; None if there is none."""
    records: Records | None = None
    failing_node: tuple[str, ...] = ()
    witness: Path | None = None
    """The directory in which wrapped nodes record their writes."""
    orders: Path | None = None
    """The file that tells nodes at which write to crash."""
    engines: int | None = None
    """The largest allowed number, if it is known."""
    store: str = ""
    """The kind of store, for the report."""
    isolation: float | None = None
    """How long a worker may hear from no leader before it ends its jobs, in seconds; None without workers."""


@dataclass(frozen=True)
class StoreAddress:
    """The servers of a store, and the options that configure nodes for it. Pure: no connection is made."""

    backend: str
    url: str = ""
    """`postgresql://user:password@host:port,host:port/database`, or ZooKeeper's `host:port,host:port`."""

    @property
    def servers(self) -> list[tuple[str, int]]:
        match self.backend:
            case "postgresql":
                hosts, default = urlsplit(self.url).netloc.rpartition("@")[2], 5432
            case "zookeeper":
                hosts, default = self.url, 2181
            case _:
                return []
        found = [h.rpartition(":") if ":" in h else (h, ":", str(default)) for h in hosts.split(",") if h]
        if not found:
            raise ChaosError(f"'{self.url}' does not name a {self.backend} server; set its address with --store")
        return [(host, int(port)) for host, _, port in found]

    def options(self, addresses: Sequence[str], root: Path, lease: float) -> dict[str, str]:
        """The options of a node that uses the servers at these addresses."""
        match self.backend:
            case "postgresql":
                parts = urlsplit(self.url)
                account, at, _ = parts.netloc.rpartition("@")
                url = parts._replace(netloc=f"{account}{at}{','.join(addresses)}").geturl()
                return {"high-availability.sql.url": url}
            case "zookeeper":
                return {
                    "high-availability.type": "zookeeper",
                    "high-availability.storageDir": str(root / "large-values"),
                    "high-availability.zookeeper.quorum": ",".join(addresses),
                    "high-availability.zookeeper.client.session-timeout": f"{lease:g} s",
                    "high-availability.zookeeper.client.connection-timeout": f"{lease:g} s",
                }
        return {}


@dataclass(frozen=True)
class LocalSettings:
    """A cluster of processes of this host."""

    root: Path
    store: StoreAddress
    nodes: int = 3
    lease: float = 4.0
    options: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = NODE
    environment: Mapping[str, str] = field(default_factory=dict)
    failing_node: tuple[str, ...] = ()
    witness: Path | None = None
    orders: Path | None = None
    abilities: frozenset[str] = frozenset()
    faults: Sequence[Fault] = TABLE


@contextlib.contextmanager
def local_stage(settings: LocalSettings) -> Iterator[Stage]:
    """Start a cluster. Each node has its own line to clients and, if the store is a server, to the store."""
    root, store, lease = settings.root, settings.store, settings.lease
    direct = store.options([f"{host}:{port}" for host, port in store.servers], root, lease)
    abilities = {"records", *settings.abilities}
    if store.backend == "sqlite":
        abilities.add("sqlite")
    if settings.failing_node:
        abilities.add("failing-node")
    if settings.orders is not None:
        abilities.add("orders")
    with contextlib.ExitStack() as stack:
        lines = [
            stack.enter_context(LineGroup([TcpProxy(server) for server in store.servers]))
            for _ in range(settings.nodes if store.servers else 0)
        ]
        cluster = stack.enter_context(
            StagedCluster(
                root,
                nodes=settings.nodes,
                lease=lease,
                options=settings.options,
                store_lines=lines,
                node_options=[store.options(line.addresses, root, lease) for line in lines],
                abilities=frozenset(abilities),
                command=settings.command,
                environment=settings.environment,
            )
        )
        configuration = load_configuration(
            overrides={**cluster.options, **direct}, environ={"HOME": os.environ.get("HOME", "/")}
        )
        yield Stage(
            cluster,
            settings.faults,
            configuration,
            open_records(configuration),
            settings.failing_node,
            settings.witness,
            settings.orders,
            configuration.engine.max_engines,
            store.backend,
        )
