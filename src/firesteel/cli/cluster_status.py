"""`firesteel cluster status` shows the leader, the engines and the number of jobs. It wakes up no cluster."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.command_line import cluster_options, effective, json_option
from firesteel.cli.connection import is_awake, retrieved
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import console, count, echo_json, moment, new_table, plain, print_facts, span, status_text
from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import find_nodes, rest_file
from firesteel.client.model import ClusterOverview, ClusterStatus, EngineInfo, Queue
from firesteel.deployment.local_nodes import node_log
from firesteel.status import JobStatus


@click.command()
@json_option
@cluster_options
@configured
def status(given: Given, line: ClusterOptions, as_json: bool) -> int:
    """Show which node leads, which one answers, the engines, and how many jobs are in each state."""
    given = effective(given, line)
    if not is_awake(given):
        if as_json:
            echo_json({"running": False, "cluster_id": given.configuration.high_availability.cluster_id})
        else:
            where = f"cluster {given.configuration.high_availability.cluster_id}, data directory {given.configuration.data.dir}"
            click.echo(f"No cluster is running here ({where}). Commands wake one up when they need it.")
        return exit_codes.OK
    with retrieved(given) as client:
        told = client.cluster_status()
        if told.degraded:
            return _degraded(client.addresses[0], told, as_json)
        seen = _look(client, told, [] if given.configuration.client.addresses else _nodes(given, told))
    if as_json:
        echo_json({"running": True, **seen.to_json()})
    else:
        _show(console(), seen)
    return exit_codes.OK


@dataclasses.dataclass(frozen=True)
class _Seen:
    address: str
    cluster: ClusterStatus
    overview: ClusterOverview
    engines: Sequence[EngineInfo]
    queue: Queue
    jobs: dict[JobStatus, int]
    nodes: Sequence[Mapping[str, Any]]
    """The nodes on this machine; empty for a cluster elsewhere."""

    def to_json(self) -> dict[str, Any]:
        return {
            "address": self.address,
            **dataclasses.asdict(self.cluster),
            "slots": self.overview.slots,
            "free_slots": self.overview.free_slots,
            "engines": [dataclasses.asdict(e) for e in self.engines],
            "jobs": {s.value: n for s, n in self.jobs.items()},
            "queue": dataclasses.asdict(self.queue),
            "nodes": list(self.nodes),
        }


def _nodes(given: Given, cluster: ClusterStatus) -> list[dict[str, Any]]:
    directory = rest_file(given.configuration).parent
    return [
        {
            "address": n.address,
            "pid": n.process.pid,
            "leads": n.address == cluster.leader,
            "log": str(node_log(directory, n.process.pid)),
        }
        for n in reversed(find_nodes(given.configuration))
    ]


def _degraded(address: str, cluster: ClusterStatus, as_json: bool) -> int:
    """Show what a node knows while there is no leader to ask for more."""
    if as_json:
        echo_json({"running": True, "address": address, **dataclasses.asdict(cluster)})
        return exit_codes.FAILED
    out = console()
    out.print(plain(f"cluster {cluster.cluster_id}", "bold"), plain(address), plain("degraded", "bold red"))
    facts = [("version", plain(cluster.version)), ("leader", plain("none at the moment", "yellow"))]
    if cluster.reason:
        facts.append(("reason", plain(cluster.reason)))
    if cluster.since is not None:
        facts.append(("since", plain(f"{moment(cluster.since)}, for {span(time.time() - cluster.since)}")))
    if cluster.last_leader:
        facts.append(("led last", plain(cluster.last_leader)))
    facts.append(("node", plain(_node(cluster))))
    facts.append(("high availability", plain(cluster.high_availability)))
    print_facts(out, iter(facts))
    out.print(plain("Running jobs continue. Nothing is accepted, started or changed until a node leads again."))
    return exit_codes.FAILED


def _look(client: ClusterClient, cluster: ClusterStatus, nodes: Sequence[Mapping[str, Any]]) -> _Seen:
    jobs = Counter(j.status for j in client.jobs())
    return _Seen(
        address=client.addresses[0],
        cluster=cluster,
        overview=client.overview(),
        engines=client.engines(),
        queue=client.queue(),
        jobs={s: jobs[s] for s in JobStatus if jobs[s]},
        nodes=nodes,
    )


def _show(out: Console, seen: _Seen) -> None:
    cluster = seen.cluster
    out.print(plain(f"cluster {cluster.cluster_id}", "bold"), plain(seen.address))
    print_facts(out, _facts(seen))
    if len(seen.nodes) > 1:
        table = new_table("node", "process", "", "log", right=["process"])
        for n in seen.nodes:
            table.add_row(plain(n["address"]), str(n["pid"]), "leads" if n["leads"] else "", plain(n["log"]))
        out.print()
        out.print(table)
    if seen.engines:
        numbers = ["cores", "slots", "free"]
        where = ["worker"] if len({e.worker for e in seen.engines}) > 1 else []
        table = new_table("engine", *where, "master", "memory", *numbers, "state", "address", right=numbers)
        for e in seen.engines:
            foreign = ", foreign" if e.foreign else ""
            table.add_row(
                plain(e.engine_id),
                *[plain(e.worker) for _ in where],
                plain(e.master),
                plain(e.memory),
                str(e.cores or "?"),
                str(e.slots),
                str(e.free),
                plain(e.state + foreign),
                plain(e.address),
            )
        out.print()
        out.print(table)


def _facts(seen: _Seen) -> Iterator[tuple[str, Text]]:
    cluster, node = seen.cluster, seen.cluster.node
    yield "version", plain(cluster.version)
    led = f"{cluster.leader} (epoch {cluster.epoch})" if cluster.leader else "none at the moment"
    yield "leader", plain(led, "" if cluster.leader else "yellow")
    if node:
        yield "node", plain(_node(cluster))
    yield "high availability", plain(cluster.high_availability)
    yield (
        "slots",
        plain(f"{seen.overview.free_slots} of {seen.overview.slots} free on {count(len(seen.engines), 'engine')}"),
    )
    jobs = Text("none")
    if seen.jobs:
        jobs = Text(", ").join(Text(f"{n} ").append_text(status_text(s)) for s, n in seen.jobs.items())
    yield "jobs", jobs
    yield "queue", plain(f"{count(seen.queue.waiting, 'job')} waiting" if seen.queue.waiting else "empty")
    for why, jobs_held_up in sorted(Counter(j.waits_for for j in seen.queue.jobs if j.waits_for).items()):
        yield "", plain(f"{count(jobs_held_up, 'job')} for {why}", "yellow")


def _node(cluster: ClusterStatus) -> str:
    node = cluster.node
    up = span(time.time() - float(node.get("started") or 0) / 1000)
    return f"process {node.get('pid')} on {node.get('host')}, up for {up}"
