"""`firesteel cluster start` and `stop` start and stop the node of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import CheckedCommand, cluster_options, effective, json_option
from firesteel.cli.connection import is_awake, retrieved
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import count, echo_json
from firesteel.client.discovery import LocalCluster, connect, find_local, find_nodes, rest_file
from firesteel.config.fingerprint import differing, fingerprint
from firesteel.config.high_availability import HaType
from firesteel.config.sections import Authentication
from firesteel.deployment.local import LOCAL
from firesteel.deployment.local_nodes import POLL_SECONDS, one_at_a_time, start_node, wait_for_end
from firesteel.durations import show_seconds
from firesteel.errors import FiresteelError
from firesteel.fs.files import read_json
from firesteel.ha.identity import check as check_store
from firesteel.layout import NODE_LOG

LEADER_SECONDS = 15.0
_HERE = {"client.addresses": "", "client.timeout": "5 s"}

# -- start ----------------------------------------------------------------------------------------------------------


@click.command()
@click.option(
    "--foreground",
    is_flag=True,
    help="Run the node in this process, log to standard error, and run until a signal ends it.",
)
@json_option
@configured
def start(given: Given, foreground: bool, as_json: bool) -> int:
    """Start a node in the background that runs until it is stopped. A node that is already running is left as it is."""
    check_store(rest_file(given.configuration).parent, given.configuration)
    with one_at_a_time(given):
        found = find_local(given.configuration)
        if found is not None and not (_was_woken(given) and _put_to_sleep(given, found)):
            _runs_already(given, found, as_json)
            return exit_codes.OK
        if foreground:
            become_node(given)
        started = start_node(given, woken=False)
    _wait_for_a_leader(given)
    if as_json:
        echo_json({**_described(given, started), "started": True})
    else:
        click.echo(f"Cluster {_name(given)} serves at {started.address} (process {started.process.pid}).")
        _hints(given, started)
    return exit_codes.OK


def _wait_for_a_leader(given: Given) -> None:
    """Wait a moment for a leader, so that the next command finds one. If there is none by then, the status says why."""
    deadline = time.monotonic() + LEADER_SECONDS
    # The leader of an earlier life may have to be waited for, a whole lease of it.
    with contextlib.suppress(FiresteelError), connect(_with(given, **_HERE).configuration) as client:
        while client.cluster_status().degraded and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def _runs_already(given: Given, found: LocalCluster, as_json: bool) -> None:
    if as_json:
        echo_json({**_described(given, found), "started": False})
        return
    click.echo(f"Cluster {_name(given)} is already running at {found.address} (process {found.process.pid}).")
    settings = (read_json(rest_file(given.configuration)) or {}).get("settings") or {}
    if differences := differing(settings, fingerprint(given.configuration)):
        click.echo(f"It was started with other settings: {', '.join(differences)}.")
    if _was_woken(given):
        idle = show_seconds(given.configuration.local_cluster.idle_timeout)
        click.echo(f"A command woke it up, and it ends {idle} after its last job; then start one that stays.")


def _hints(given: Given, started: LocalCluster) -> None:
    click.echo(f"  log                     {rest_file(given.configuration).parent / NODE_LOG}")
    click.echo("  firesteel list          lists its jobs\n  firesteel cluster stop  stops it; jobs keep running")
    if Authentication.TOKEN in given.configuration.security.authentication:
        host = urlsplit(started.address).netloc
        click.echo("Flink's command line and other users need a token:")
        click.echo("  TOKEN=$(firesteel cluster token create NAME)")
        click.echo(f'  FLINK_REST_CLIENT_HEADERS="Authorization:Bearer $TOKEN" flink list -m {host}')


def _described(given: Given, node: LocalCluster) -> dict[str, Any]:
    return {
        "cluster_id": _name(given),
        "address": node.address,
        "pid": node.process.pid,
        "log": str(rest_file(given.configuration).parent / NODE_LOG),
    }


def _was_woken(given: Given) -> bool:
    return bool((read_json(rest_file(given.configuration)) or {}).get("woken"))


def _put_to_sleep(given: Given, found: LocalCluster) -> bool:
    """End a node that a command woke up, to make room for one that stays. Returns False when it is busy."""
    with connect(_with(given, **{"client.addresses": ""}).configuration) as client:
        if any(not j.status.terminal for j in client.jobs()):
            return False
        client.shut_down()
    wait_for_end(found)
    return True


def become_node(given: Given, extra: Mapping[str, str] | None = None) -> NoReturn:
    become("firesteel.entrypoint", given, extra)


def become(module: str, given: Given, extra: Mapping[str, str] | None = None) -> NoReturn:
    """Run a server in this process, in place of the command."""
    # -P: no module of the directory that a command happens to be given in becomes a part of the node (S45).
    command = [sys.executable, "-P", "-m", module]
    if given.config_file is not None:
        command += ["--config", str(given.config_file.absolute())]
    # As arguments, settings that are secret would be there for all to see (S27).
    with tempfile.TemporaryFile() as definitions:
        definitions.write(json.dumps({**given.overrides, **(extra or {})}).encode())
        definitions.seek(0)
        os.dup2(definitions.fileno(), 0)
    sys.stdout.flush()
    os.execv(sys.executable, [*command, "--definitions-from-stdin"])  # noqa: S606 - an argv array, no shell


# -- stop -----------------------------------------------------------------------------------------------------------


def _check_stop(context: click.Context) -> None:
    if context.params["everything"] and (context.params["address"] or context.params["cluster_target"]):
        raise click.UsageError("--all is for the clusters of this machine; omit -m and -t", context)


@click.command(cls=CheckedCommand, check=_check_stop)
@click.option("-a", "--all", "everything", is_flag=True, help="Stop the nodes of all clusters in this data directory.")
@json_option
@cluster_options
@configured
def stop(given: Given, line: ClusterOptions, everything: bool, as_json: bool) -> int:
    """Stop the node of this machine, or with -m the leader there. Running jobs continue; the next node adopts them."""
    stopped = [_stop(one) for one in (_all_clusters(given) if everything else [effective(given, line)])]
    if as_json:
        echo_json([s for s in stopped if s is not None])
        return exit_codes.OK
    for s in stopped:
        if s is not None:
            _tell(s)
    if not any(stopped):
        click.echo("No cluster is running here.")
    return exit_codes.OK


def _stop(given: Given) -> dict[str, Any] | None:
    """Stop a node and describe it; None when there was nothing to stop."""
    if not is_awake(given):
        return None
    nodes = () if given.configuration.client.addresses else find_nodes(given.configuration)
    with retrieved(given) as client:
        told = client.cluster_status()
        # Of several nodes it is the leader that ends, whichever the others are.
        local = next((n for n in nodes if n.process.pid == told.node.get("pid")), nodes[0] if nodes else None)
        running = sum(not j.status.terminal for j in client.jobs())
        client.shut_down()
        address = client.addresses[0]
    if local is not None:
        wait_for_end(local)
    return {
        "cluster_id": told.cluster_id,
        "address": local.address if local else address,
        "pid": local.process.pid if local else None,
        "jobs_running": running,
        "high_availability": told.high_availability,
        "other_nodes": [n.address for n in nodes if n is not local],
    }


def _tell(stopped: dict[str, Any]) -> None:
    who = f"Cluster {stopped['cluster_id']} at {stopped['address']}"
    click.echo(f"{who} has ended." if stopped["pid"] else f"{who}: the leader was told to end.")
    running = stopped["jobs_running"]
    if others := stopped["other_nodes"]:
        serve = "is still up" if len(others) == 1 else "are still up"
        click.echo(f"{count(len(others), 'other node')} of the cluster {serve}: {', '.join(others)}.")
        return
    if running and stopped["high_availability"] == HaType.NONE.value:
        go = "keeps" if running == 1 else "keep"
        click.echo(f"{count(running, 'job')} {go} running, and no node will take over: high-availability.type is none.")
    elif running:
        who = "it" if running == 1 else "them"
        go = "keeps" if running == 1 else "keep"
        click.echo(f"{count(running, 'job')} {go} running; the next node to start takes {who} over.")


def _all_clusters(given: Given) -> Iterator[Given]:
    for file in sorted(given.configuration.data.dir.glob(f"clusters/*/{rest_file(given.configuration).name}")):
        there = {"high-availability.cluster-id": file.parent.name, "client.addresses": "", "execution.target": LOCAL}
        yield _with(given, **there)


def _with(given: Given, **settings: str) -> Given:
    return given.with_overrides({**given.overrides, **settings})


def _name(given: Given) -> str:
    return given.configuration.high_availability.cluster_id
