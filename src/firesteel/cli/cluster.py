"""`firesteel cluster` groups the commands about the cluster of this machine as a whole."""

from __future__ import annotations

import click

from firesteel.cli.lazy import LazyGroup

COMMANDS = {
    "start": ("firesteel.cli.nodes", "start", "Start a node that runs until it is stopped."),
    "stop": ("firesteel.cli.nodes", "stop", "Stop the node on this machine; jobs keep running."),
    "status": (
        "firesteel.cli.cluster_status",
        "status",
        "Show the leader, the engines, and how many jobs there are.",
    ),
    "handover": ("firesteel.cli.handover", "handover", "Hand leadership over to another node."),
    "gc": ("firesteel.cli.gc", "gc", "Find and remove leftover engines and files."),
    "token": ("firesteel.cli.tokens", "token", "Create, list and revoke tokens."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Manage the cluster of this machine, whose files are in the data directory."""
