"""`firesteel node` starts one more node of the cluster, on this machine or on another one."""

from __future__ import annotations

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import json_option
from firesteel.cli.lazy import LazyGroup
from firesteel.cli.nodes import become_node
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import echo_json
from firesteel.client.discovery import find_nodes, rest_file
from firesteel.config.high_availability import HaType
from firesteel.deployment.local_nodes import check_settings, node_log, one_at_a_time, start_node
from firesteel.errors import FiresteelError

COMMANDS = {"start": ("firesteel.cli.node", "start", "Start one more node of the cluster.")}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def node() -> None:
    """Manage the nodes of a cluster. One leads, and the others take over when it ends."""


@click.command()
@click.option(
    "--foreground",
    is_flag=True,
    help="Run the node in this process, log to standard error, and run until a signal ends it.",
)
@json_option
@configured
def start(given: Given, foreground: bool, as_json: bool) -> int:
    """Start one more node of the cluster, which runs until it is stopped.

    It needs the settings of the others: the same `high-availability.*` and the same `data.dir`, which on other machines is the
    same directory of a shared file system. If other nodes run here, it takes a free port unless -Drest.port sets one.
    """
    with one_at_a_time(given):
        others = find_nodes(given.configuration)
        if others and given.configuration.high_availability.type is HaType.NONE:
            raise FiresteelError(
                f"a node is already running at {others[0].address}, and it can share nothing with another one: "
                "high-availability.type is none"
            )
        extra: dict[str, str] = {}
        if others:
            check_settings(given)
            if "rest.port" not in given.overrides:
                extra["rest.port"] = "0"
        if foreground:
            become_node(given, extra)
        started = start_node(given, woken=False, extra=extra, own_log=bool(others))
    log = node_log(rest_file(given.configuration).parent, started.process.pid)
    cluster = given.configuration.high_availability.cluster_id
    facts = {"cluster_id": cluster, "address": started.address, "pid": started.process.pid, "log": str(log)}
    if as_json:
        echo_json({**facts, "started": True})
        return exit_codes.OK
    click.echo(f"A node of cluster {cluster} serves at {started.address} (process {started.process.pid}).")
    click.echo(f"  log                       {log}")
    click.echo("  firesteel cluster status  shows its nodes, and which one leads")
    click.echo(f"  kill {started.process.pid:<20} ends this one; jobs keep running")
    return exit_codes.OK
